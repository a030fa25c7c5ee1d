"""`weir state`: get, export, diff and write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from deadlines import PATIENCE, eventually
from small_job import NEVER
from state_tables import make_savepoint, raw_rows, timers_at, values_of
from threads_for_processes import job_in_threads

from checkpoint.codec import encode_key
from pipeline import CheckpointConfig, KeyedOperator, MapState, Pipeline, ValueState
from pipeline.cli import main
from pipeline.handle import JobHandle
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.runtime.driver.operations import OperationsServer
from pipeline.runtime.driver.signals import Watched
from pipeline.testing import TestingSink, TestingSource

TOTALS = ("--step", "totals", "--state", "total")
STATE = {("totals", "total"): {"ann": 3, "bob": 4, 42: 5, ("a", 1): 2**70}, ("totals", "seen"): {"ann": [b"x", 1.0]}}


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return make_savepoint(tmp_path / "saved", STATE, {"totals": timers_at(("ann", 1000))})


def weir(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["state", *map(str, arguments)])


def said(*arguments: str | Path) -> str:
    result = weir(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str | Path) -> str:
    result = weir(*arguments)
    assert result.exit_code in (1, 2), result.output
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit)
    return result.output


@pytest.mark.parametrize(
    ("key", "value"), [("ann", "3"), ('"bob"', "4"), ("42", "5"), ('{"$tuple":["a",1]}', str(2**70))]
)
def test_get_prints_the_value_of_a_key(saved: str, key: str, value: str) -> None:
    assert said("get", saved, "totals", "total", key) == f"{value}\n"


@pytest.mark.parametrize("key", ["NaN", "Infinity"])
def test_a_key_that_only_python_takes_for_json_is_a_text(tmp_path: Path, key: str) -> None:
    saved = make_savepoint(tmp_path / "saved", {("totals", "total"): {key: 1, float(key): 2}})
    assert said("get", saved, "totals", "total", key) == "1\n"
    assert said("get", saved, "totals", "total", f'{{"$float":"{key.replace("inity", "").lower()}"}}') == "2\n"


def test_two_files_that_name_one_key_are_refused(saved: str, tmp_path: Path) -> None:
    for n in (1, 2):
        (tmp_path / f"{n}.jsonl").write_text(f'{{"key":"ann","value":{n}}}\n')
    both = (tmp_path / "1.jsonl", tmp_path / "2.jsonl")
    for option in ("--put", "--replace"):
        told = refused("write", tmp_path / "new", "--base", saved, option, both[0], option, both[1], *TOTALS)
        assert "two tables have key 'ann' of 'total' of step 'totals'" in told
    said("write", tmp_path / "new", "--base", saved, "--replace", both[0], "--put", both[1], *TOTALS)
    assert values_of((tmp_path / "new").as_uri(), "totals", "total") == {encode_key("ann"): 2}


def test_get_of_what_is_not_there(saved: str) -> None:
    assert "has no value of key '42' (str)" in refused("get", saved, "totals", "total", '"42"')
    assert "it has steps 'totals'" in refused("get", saved, "tools", "total", "ann")
    assert "totals: seen, total" in refused("get", saved, "totals", "totl", "ann")
    assert "does not exist" in refused("get", saved + "-not", "totals", "total", "ann")
    assert "'$x' is no type" in refused("get", saved, "totals", "total", '{"$x":1}')


def test_get_without_a_state_prints_all_that_the_key_has(saved: str) -> None:
    told = json.loads(said("get", saved, "totals", "ann"))
    assert told == {
        "states": {"seen": [{"$bytes": "eA=="}, 1.0], "total": 3},
        "timers": [{"at": 1000, "clock": "event"}],
    }
    assert "step 'totals' has nothing of key 'eve' (str)" in refused("get", saved, "totals", "eve")


def test_get_prints_one_entry_of_a_map(tmp_path: Path) -> None:
    saved = make_savepoint(tmp_path / "maps", {("totals", "seen"): {"ann": {"x": 1, ("a", 2): [5]}}})
    assert said("get", saved, "totals", "seen", "ann", "--entry", "x") == "1\n"
    assert said("get", saved, "totals", "seen", "ann", "--entry", '{"$tuple":["a",2]}') == "[5]\n"
    assert "of this key has no entry 'y'" in refused("get", saved, "totals", "seen", "ann", "--entry", "y")
    assert "--entry needs the STATE" in refused("get", saved, "totals", "ann", "--entry", "x")
    assert "give STEP, STATE and KEY" in refused("get", saved, "totals", "seen", "ann", "more")


# -- a job that runs --------------------------------------------------------------------------------------------------


class Count(KeyedOperator):
    total = ValueState(default=0)
    by_kind = MapState[Any, Any]()

    def process(self, value: Any, ctx: Any) -> Any:
        self.total.value += 1
        self.by_kind["last"] = (value, self.total.value)
        yield value


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobMaster]:
    """Called `orders`; has seen `ann` twice, in a checkpoint once."""
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path / "jobs"))
    p = Pipeline("orders", parallelism=2, checkpoints=CheckpointConfig(str(tmp_path / "checkpoints"), **NEVER))
    source = TestingSource(["ann", TestingSource.PAUSE(), "ann", TestingSource.PAUSE()])
    p.source("in", source).key_by(lambda value: value).process("totals", Count()).sink("out", TestingSink())
    master = job_in_threads(p)
    handle = JobHandle(master, Watched("orders", master, 30.0))
    server = OperationsServer("orders", handle)
    master.start()
    try:
        totals = handle.state("totals")
        eventually(lambda: totals.get("ann", "total", timeout=PATIENCE).value == 1)
        handle.checkpoint(PATIENCE)
        source.release()
        eventually(lambda: totals.get("ann", "total", timeout=PATIENCE).value == 2)
        yield master
    finally:
        master.cancel()
        assert master.ended.wait(PATIENCE)
        server.close()


def test_get_asks_a_job_that_runs_by_its_name(job: JobMaster) -> None:
    (id,) = [row.id for row in job.history.rows()]
    found = weir("get", "orders", "totals", "total", "ann")
    assert (found.stdout, found.stderr) == ("2\n", f"live, with all of checkpoint {id}\n")
    stored = weir("get", "orders", "totals", "total", "ann", "--at-checkpoint")
    assert (stored.stdout, stored.stderr) == ("1\n", f"as of checkpoint {id}\n")
    assert said("get", "orders", "totals", "by_kind", "ann", "--entry", "last") == '{"$tuple":["ann",2]}\n'
    assert said("get", "orders", "totals", "ann") == (
        '{"states":{"by_kind":{"last":{"$tuple":["ann",2]}},"total":2},"timers":[]}\n'
    )


def test_get_of_what_a_running_job_has_not(job: JobMaster) -> None:
    assert "has no value of key 'bob' (str)" in refused("get", "orders", "totals", "total", "bob")
    assert "has nothing of key 42 (int)" in refused("get", "orders", "totals", "42")
    assert "with an entry 'x'" in refused("get", "orders", "totals", "by_kind", "ann", "--entry", "x")
    assert "no state of keys called 'totl'; it has total, by_kind" in refused("get", "orders", "totals", "totl", "ann")
    assert "no step 'tools'; steps with state of keys: 'totals'" in refused("get", "orders", "tools", "ann")
    assert "no job called 'sales'" in refused("get", "sales", "totals", "ann")


# -- export -----------------------------------------------------------------------------------------------------------


def test_export_writes_lines_of_json(saved: str) -> None:
    rows = [json.loads(line) for line in said("export", saved, "state", "--state", "seen").splitlines()]
    ((row),) = rows
    assert (row["key"], row["value"]) == ("ann", [{"$bytes": "eA=="}, 1.0])
    assert '"at":1000' in said("export", saved, "timers")
    assert '"kind":"savepoint"' in said("export", saved, "checkpoints")
    assert said("export", saved, "state", "--key", "42").count("\n") == 1


def test_export_to_parquet(saved: str, tmp_path: Path) -> None:
    assert said("export", saved, *TOTALS, "--format", "parquet", "-o", tmp_path / "x.parquet").startswith("4 rows in")
    table = pq.read_table(tmp_path / "x.parquet")
    assert set(table["value_json"].to_pylist()) == {"3", "4", "5", str(2**70)}
    assert "is there already" in refused("export", saved, "-o", tmp_path / "x.parquet")
    assert "needs a file" in refused("export", saved, "--format", "parquet")
    assert "can't be written" in refused("export", saved, "-o", tmp_path / "no" / "x.jsonl")
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_what_is_exported_and_written_is_the_same(saved: str, tmp_path: Path, kind: str) -> None:
    files = [tmp_path / f"{table}.{kind}" for table in ("state", "timers")]
    for file in files:
        said("export", saved, file.stem, "--format", kind, "-o", file)
    replaced = [argument for file in files for argument in ("--replace", file)]
    said("write", tmp_path / "new", "--new", "orders", "--max-parallelism", "16", *replaced)
    said("write", tmp_path / "edited", "--base", saved, *replaced)
    assert raw_rows(str(tmp_path / "new")) == raw_rows(saved)
    assert raw_rows(str(tmp_path / "edited")) == raw_rows(saved)


def test_write_changes_and_deletes_and_says_so(saved: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": ["bob"], "value": [40]}), tmp_path / "bob.parquet")
    output = said(
        "write", tmp_path / "new", "--base", saved, "--put", tmp_path / "bob.parquet", *TOTALS, "--delete-key", "ann"
    )
    assert "totals total: 1 row removed, 1 put, 3 now" in output
    new = str(tmp_path / "new")
    assert values_of(new, "totals", "total")[encode_key("bob")] == 40
    assert encode_key("ann") not in values_of(new, "totals", "total")
    assert values_of(new, "totals", "seen") == values_of(saved, "totals", "seen")
    (tmp_path / "gone.jsonl").write_text('{"key": "ann"}\n\n')
    output = said("write", tmp_path / "gone", "--base", saved, "--delete", tmp_path / "gone.jsonl")
    assert "totals event timers: 1 row removed" in output
    changes = [json.loads(line) for line in said("diff", saved, tmp_path / "gone").splitlines()]
    assert {(row["state"], row["change"], row["key"]) for row in changes} == {
        (state, "removed", "ann") for state in ("total", "seen", "event timers")
    }
    show = CliRunner().invoke(main, ["checkpoints", "show", str(tmp_path / "gone")])
    assert "made from" in show.output
    assert "whole" in CliRunner().invoke(main, ["checkpoints", "verify", str(tmp_path / "gone")]).output
    assert "no row was changed" in said("write", tmp_path / "same", "--base", saved, "--delete-key", "nobody")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "either --base URI or --new PIPELINE"),
        (["--new", "x"], "--new needs --max-parallelism"),
        (["--base", "{saved}", "--new", "x"], "either --base"),
        (["--base", "{saved}", "--max-parallelism", "5"], "is that of --base"),
        (["--base", "{saved}", "--put", "{tmp}/none.parquet"], "can't be read"),
        (["--base", "{saved}", "--put", "{tmp}/bad.jsonl"], "bad.jsonl, line 2: "),
        (["--base", "{saved}", "--put", "{tmp}/uneven.jsonl"], "row 2 has no 'value', and others have"),
        (["--base", "{saved}", "--put", "{tmp}/list.jsonl"], "it is no object"),
        (["--base", "{saved}", "--delete-key", "ann", "--step", "tools"], "it has steps 'totals'"),
        (["--base", "{saved}", "--delete-key", "[1]"], "a key must not change"),
    ],
)
def test_write_refuses_what_it_can_not_do(saved: str, tmp_path: Path, arguments: list[str], problem: str) -> None:
    (tmp_path / "bad.jsonl").write_text('{"key":1,"value":2}\n{"key":')
    (tmp_path / "uneven.jsonl").write_text('{"key":1,"value":2}\n{"key":2}')
    (tmp_path / "list.jsonl").write_text("[1]")
    given: list[Any] = [one.format(saved=saved, tmp=tmp_path) if "$" not in one else one for one in arguments]
    assert problem in refused("write", tmp_path / "new", *given)
    assert not (tmp_path / "new").exists()
