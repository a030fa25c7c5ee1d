"""`weir plan`: the graph, and what a start would restore, drop or refuse, by the rules of the start itself."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import classes, encode
from checkpoint.elements import EdgeName
from checkpoint.state.operator_lists import KINDS
from checkpoint.state.snapshot_writer import write_snapshot
from checkpoint.storage import fencing
from checkpoint.storage.handles import StateFile
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.storage import CheckpointStorage
from pipeline import Pipeline, PipelineError
from pipeline.cli import main
from pipeline.cli.common import in_options
from pipeline.cli.script import find_pipeline
from pipeline.runtime.driver import owner_liveness
from pipeline.runtime.driver.start.restore_plan import check_restorable
from pipeline.runtime.topology_changes import snapshot_edges

SCRIPT = """
from pipeline import CheckpointConfig, KeyedOperator, Pipeline, ValueState
from sinks import PrintSink
from sources import SequenceSource

class Total(KeyedOperator):
    total = ValueState(default=0)

    def process(self, value, ctx):
        yield value

p = Pipeline("job", parallelism=2, max_parallelism=64, checkpoints=CheckpointConfig("FOLDER"))
p.source("numbers", SequenceSource(5)).map(lambda n: n).key_by("id").process("totals", Total()).sink("out", PrintSink())
"""
IN_TO_TOTALS = EdgeName("map-1", "totals", "0.0")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The job of `SCRIPT`, with a folder for checkpoints beside it; what running it changes here is undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("WEIR_SCRIPT_FOLDER", "")
    path = tmp_path / "planned.py"
    path.write_text(SCRIPT.replace("FOLDER", str(tmp_path / "checkpoints")))
    yield path
    sys.modules.pop("weir_script_planned", None)


def change(script: Path, before: str, after: str) -> None:
    text = script.read_text()
    assert before in text
    script.write_text(text.replace(before, after))


def plan(script: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["plan", str(script), *arguments])


def planned(script: Path, *arguments: str, starts: bool = True) -> dict[str, Any]:
    """What `--json` says."""
    result = plan(script, "--json", *arguments)
    assert result.exit_code == (0 if starts else 1), result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert bool(found["refusals"]) is not starts
    return found


def checkpointed(
    script: Path,
    states: Mapping[str, Mapping[str, Any]] | None = None,
    in_flight: Mapping[EdgeName, int] | None = None,
    keyed: Mapping[str, tuple[StateFile, ...]] | None = None,
    **metadata: Any,
) -> CheckpointMetadata:
    """Leave a checkpoint 7 of the script's job as it is now. Each step has its state in both subtasks, and what is in
    flight lies with subtask 0."""
    p = find_pipeline(str(script))
    assert p.checkpoints is not None
    storage = CheckpointStorage(p.checkpoints.uri, p.name)
    storage.prepare()
    states = states if states is not None else {"numbers": {"source": [[0, 1]]}, "totals": {"operator": "x" * 100}}

    def subtask(vertex: Any, index: int) -> SubtaskSnapshot:
        operators = {
            step.id: OperatorSnapshot(states[step.id], keyed_state=(keyed or {}).get(step.id, ()))
            for step in vertex.steps
            if step.id in states
        }
        rows = {e: n for e, n in (in_flight or {}).items() if index == 0 and e.downstream == vertex.head.id}
        return SubtaskSnapshot(operators, (), rows)

    graph = p.plan()
    made = CheckpointMetadata(
        **{
            "id": 7,
            "attempt": 1,
            "kind": CheckpointKind.CHECKPOINT,
            "pipeline": p.name,
            "lineage": "x",
            "lineage_parent": None,
            "max_parallelism": p.max_parallelism,
            "weir_version": "0",
            "trigger_time": 0.0,
            "duration": 0.5,
            "options": {},
            "vertices": {
                v.name: VertexSnapshot(tuple(subtask(v, i) for i in range(v.parallelism))) for v in graph.vertices
            },
            "edges": snapshot_edges(graph),
            **metadata,
        }
    )
    storage.write_metadata(made.id, made.attempt, made)
    return made


def fates(found: Mapping[str, Any]) -> dict[str, str]:
    return {one["step"]: one["fate"] for one in found["state"]}


def the_start_says(script: Path, checkpoint: CheckpointMetadata) -> str:
    """The error that the start's own check raises."""
    p: Pipeline = find_pipeline(str(script))
    with pytest.raises(PipelineError) as caught:
        check_restorable(checkpoint, p.plan(), p.max_parallelism, allow_unclaimed=False)
    return str(caught.value)


# -- the graph --------------------------------------------------------------------------------------------------------


def test_the_graph_is_shown_with_chains_kinds_partitioners_and_slots(script: Path) -> None:
    found = planned(script)
    assert (found["pipeline"], found["slots"], found["max_parallelism"]) == ("job", 4, 64)
    assert [(vertex["name"], vertex["parallelism"]) for vertex in found["vertices"]] == [
        ("numbers → map-1", 2),
        ("totals → out", 2),
    ]
    assert [(step["id"], step["kind"], step["reads"]) for vertex in found["vertices"] for step in vertex["steps"]] == [
        ("numbers", "source", []),
        ("map-1", "map", ["numbers, chained"]),
        ("totals", "keyed process", ["map-1, key_by('id')"]),
        ("out", "sink", ["totals, chained"]),
    ]
    assert found["restored"] is None


def test_ids_made_up_from_the_place_are_marked_and_warned_of(script: Path) -> None:
    found = planned(script)
    assert [step["id"] for v in found["vertices"] for step in v["steps"] if not step["named"]] == ["map-1"]
    (warning,) = found["warnings"]
    assert "made up from their place in the graph: map-1." in warning
    change(script, "lambda n: n", "lambda n: n, id='same'")
    assert planned(script)["warnings"] == []


def test_options_count_as_for_a_start(script: Path) -> None:
    found = planned(script, "--parallelism", "3", "--set", "checkpoints.uri=/nowhere/at/all")
    assert (found["slots"], found["checkpoints"]) == (6, "/nowhere/at/all")


def test_a_graph_that_cannot_run_is_an_error(script: Path) -> None:
    change(script, "max_parallelism=64", "max_parallelism=1")
    result = plan(script)
    assert result.exit_code == 1
    assert "is above the pipeline's max_parallelism 1" in result.output


def test_what_cannot_be_sent_to_the_workers_would_not_start(script: Path) -> None:
    change(script, "lambda n: n", "lambda n, lock=__import__('threading').Lock(): n")
    (refusal,) = planned(script, starts=False)["refusals"]
    assert "step 'map-1': function can't be sent to the workers" in refusal


# -- what is restored -------------------------------------------------------------------------------------------------


def test_state_is_restored_with_its_size_and_both_parallelisms(script: Path) -> None:
    checkpointed(script)
    found = planned(script, "--parallelism", "3")
    assert (found["restored"]["id"], found["restored"]["kind"]) == (7, "checkpoint")
    numbers, totals = found["state"]
    assert (totals["step"], totals["old_parallelism"], totals["parallelism"]) == ("totals", 2, 3)
    assert totals["fate"] == numbers["fate"] == "restored"
    assert 200 < totals["parts"]["operator"] < 250
    assert list(numbers["parts"]) == ["source"]


def test_nothing_is_claimed_or_written(script: Path, tmp_path: Path) -> None:
    def files() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".pyc"
        }

    planned(script)
    assert not (tmp_path / "checkpoints").exists()
    checkpointed(script)
    before = files()
    planned(script)
    planned(script, "--restore", "none")
    assert files() == before


def test_without_restore_nothing_is_restored(script: Path) -> None:
    checkpointed(script)
    found = planned(script, "--restore", "none")
    assert found["restored"] is None
    assert found["state"] == []


def test_a_checkpoint_can_be_named_by_its_folder(script: Path, tmp_path: Path) -> None:
    checkpointed(script)
    uri = str(tmp_path / "checkpoints" / "job" / "chk-7-1")
    change(script, '"job"', '"fork"')
    found = planned(script, "--restore", uri)
    assert (found["restored"]["uri"], found["restored"]["pipeline"]) == (uri, "job")
    assert found["claims_output"] is False
    assert "claim=True: output that" in planned(script, "--restore", uri, "--claim", starts=False)["refusals"][0]
    (refusal,) = planned(script, "--restore", uri.replace("chk-7", "chk-8"), starts=False)["refusals"]
    assert "is no complete checkpoint" in refusal


def test_a_new_step_begins_without_state(script: Path) -> None:
    checkpointed(script, {"numbers": {"source": [[0, 1]]}})
    assert fates(planned(script)) == {"numbers": "restored", "totals": "new"}


def test_a_damaged_checkpoint_would_not_start(script: Path, tmp_path: Path) -> None:
    checkpointed(script)
    (tmp_path / "checkpoints" / "job" / "chk-7-1" / "_metadata").write_bytes(b"x")
    (refusal,) = planned(script, starts=False)["refusals"]
    assert "chk-7-1 can't be restored" in refusal
    assert "mend it" in refusal


# -- what doesn't fit, in the start's own words -----------------------------------------------------------------------


def test_state_of_a_renamed_step_would_be_refused_or_dropped(script: Path) -> None:
    checkpoint = checkpointed(script)
    change(script, '"totals"', '"sums"')
    found = planned(script, starts=False)
    assert found["refusals"] == [the_start_says(script, checkpoint)]
    assert fates(found) == {"numbers": "restored", "sums": "new", "totals": "refused"}
    assert fates(planned(script, "--allow-unclaimed"))["totals"] == "dropped"


def test_state_of_another_kind_of_step_would_be_refused_or_dropped(script: Path) -> None:
    checkpointed(script, {"numbers": {"source": [[0, 1]]}, "totals": {"sink": {"pending": [], "committers": []}}})
    (refusal,) = planned(script, starts=False)["refusals"]
    assert "under the id 'totals', which is a process step now" in refusal
    assert fates(planned(script, "--allow-unclaimed"))["totals"] == "dropped"


@pytest.mark.parametrize("part", ["keyed", "broadcast", *KINDS])
def test_a_state_that_its_operator_does_not_declare_any_more_would_be_refused_or_dropped(
    script: Path, tmp_path: Path, part: str
) -> None:
    keyed: tuple[StateFile, ...] = ()
    if part == "keyed":
        storage = CheckpointStorage(str(tmp_path / "checkpoints"), "job")
        storage.prepare()
        groups = [(3, [("total", {b"key": 1}), ("sum", {b"key": 2}), ("empty", {}), ("event timers", {})])]
        keyed = (StateFile(storage.write_file("shared/1/state", _snapshot(groups))),)
        states: dict[str, Any] = {"operator": 1}
    else:
        states = {part: {"sum": {b"a": b"b"} if part == "broadcast" else [[1, encode([encode(1)])]]}}
    checkpointed(script, {"numbers": {"source": [[0, 1]]}, "totals": states}, keyed={"totals": keyed})
    (refusal,) = planned(script, starts=False)["refusals"]
    assert "checkpoint 7 holds state 'sum' for step 'totals', whose Total declares 'total'" in refusal
    assert "allow_unclaimed=True" in refusal
    planned(script, "--allow-unclaimed")
    change(script, "total = ValueState(default=0)", "total = ValueState(default=0)\n    sum = ValueState(default=0)")
    planned(script)


ORDERS = """
import dataclasses
from decimal import Decimal

@dataclasses.dataclass
class Order:
    id: int
    FIELDS

"""


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("amount: float\n    note: str", "class shop:Order has changed: its field 'note' was not written and has no"),
        ("total: float = 0.0", "class shop:Order has changed: its field 'amount' was written and is no field now"),
        ("amount: Decimal", "class shop:Order has changed: its field 'amount' was float and is Decimal now"),
        ("amount: float = 0.0\n    note: str = ''", None),
    ],
)
def test_classes_of_values_that_have_changed_are_told_with_their_fields(
    script: Path, tmp_path: Path, fields: str, problem: str | None
) -> None:
    storage = CheckpointStorage(str(tmp_path / "checkpoints"), "job")
    storage.prepare()
    old = dataclasses.make_dataclass("Order", [("id", int), ("amount", float)])
    classes.install({"planned:Order": old}, [])
    try:
        file = StateFile(storage.write_file("shared/1/state", _snapshot([(3, [("total", {b"key": old(1, 2.5)})])])))
    finally:
        classes._installed.pop("planned:Order")
        classes.forms.clear()
    checkpointed(script, {"numbers": {"source": [[0, 1]]}, "totals": {"operator": 1}}, keyed={"totals": (file,)})
    change(script, "class Total", ORDERS.replace("FIELDS", fields) + "class Total")
    change(script, "ValueState(default=0)", "ValueState(Order)")
    if problem is None:
        planned(script)
        return
    (refusal,) = planned(script, "--allow-unclaimed", starts=False)["refusals"]
    assert refusal.startswith("checkpoint 7: values of state 'total' of step 'totals' (Total) don't fit: ")
    assert problem.replace("shop:", "planned:") in refusal
    assert "migrate=" in refusal
    assert [one["fate"] for one in planned(script, starts=False)["state"]] == ["restored", "refused"]
    change(script, "ValueState(Order)", "ValueState(Order, migrate=lambda old: Order(old['id']))")
    why = refusal.partition("fit: ")[2].partition(". ")[0]
    migrations = planned(script)["migrations"]
    assert migrations == [f"values of state 'total' of step 'totals' are migrated, since {why}"]
    assert "are migrated, since class planned:Order" in " ".join(plan(script).output.split())


def _snapshot(groups: Any) -> list[memoryview]:
    written: list[memoryview] = []
    write_snapshot(groups, written.append, "none", operator="Total", max_parallelism=64)
    return written


def test_every_reason_is_told_at_once(script: Path) -> None:
    checkpointed(script, in_flight={IN_TO_TOTALS: 12})
    change(script, '"totals"', '"sums"')
    change(script, "max_parallelism=64", "max_parallelism=32")
    refusals = planned(script, starts=False)["refusals"]
    assert [text.split(" ", 2)[2][:20] for text in refusals] == [
        "was taken with max_p",
        "has state of steps t",
        "has 12 records in fl",
    ]
    change(script, '"sums"', '"totals"')
    (refusal,) = planned(script, "--allow-unclaimed", starts=False)["refusals"]
    assert "was taken with max_parallelism 64" in refusal  # which no option drops


# -- what is in flight ------------------------------------------------------------------------------------------------


def test_an_unchanged_graph_restores_what_is_in_flight_without_a_wait(script: Path) -> None:
    checkpointed(script, in_flight={IN_TO_TOTALS: 12})
    found = planned(script)
    assert found["in_flight"] == [{"edge": IN_TO_TOTALS._asdict(), "records": 12, "fate": "restored"}]
    assert found["drains"] == []


def test_records_in_flight_on_an_edge_that_is_gone_would_be_refused_or_dropped(script: Path) -> None:
    checkpoint = checkpointed(script, in_flight={IN_TO_TOTALS: 12})
    change(script, "lambda n: n", "lambda n: n, id='same'")
    found = planned(script, starts=False)
    assert found["refusals"] == [the_start_says(script, checkpoint)]
    assert [one["fate"] for one in found["in_flight"]] == ["refused"]
    found = planned(script, "--ignore-in-flight", "7")
    assert [(one["records"], one["fate"]) for one in found["in_flight"]] == [(12, "dropped")]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("parallelism=2", "parallelism=3", "had 2 → 2 subtasks, and has 3 → 3 now"),
        ('key_by("id")', 'key_by("user")', "is partitioned by another key or function now"),
        (
            'key_by("id").process("totals", Total())',
            "rebalance().map(str, id='totals')",
            "was keyed, and is rebalance now",
        ),
    ],
)
def test_a_restore_that_drains_says_why(script: Path, before: str, after: str, reason: str) -> None:
    checkpointed(script, {}, in_flight={IN_TO_TOTALS: 12})
    change(script, before, after)
    drains = planned(script)["drains"]
    assert f"the edge from 'map-1' to 'totals' {reason}" in drains


def test_a_checkpoint_taken_during_a_drain_drains_again(script: Path) -> None:
    checkpointed(script, replaying=True)
    assert planned(script)["drains"] == ["the checkpoint was taken while data of an earlier restore was replayed"]


def test_output_that_is_not_committed_is_counted(script: Path) -> None:
    pending = {"pending": [[0, [[[6, 0], "a", []], [[7, 0], "b", []]]]], "committers": []}
    checkpointed(script, {"out": {"sink": pending}})
    found = planned(script)
    assert found["uncommitted"] == {"out": 4}
    assert found["claims_output"] is True


def test_a_job_that_runs_is_told_by_its_claim(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver may have left its address in another user's state folder."""
    storage = CheckpointStorage((script.parent / "checkpoints").as_uri(), "job")
    storage.prepare()
    with socket.create_server(("127.0.0.1", 0)) as listens:
        address = f"127.0.0.1:{listens.getsockname()[1]}"
        # The listener stands for the server that a job has in this process.
        monkeypatch.setattr(owner_liveness, "OPEN_HERE", {address})
        fencing.take_ownership(storage, address=address)
        found = planned(script)
        assert found["runs"]
        assert any("job 'job' runs already" in text for text in found["warnings"])
        assert plan(script).output.endswith(
            "\nIt would start with --take-over, or once the job that runs has been stopped.\n"
        )
    found = planned(script)
    assert not found["runs"]
    assert not any("runs already" in text for text in found["warnings"])


# -- as text ----------------------------------------------------------------------------------------------------------


def test_the_tables_say_it_all(script: Path) -> None:
    checkpointed(script, in_flight={IN_TO_TOTALS: 1200})
    change(script, '"totals"', '"sums"')
    output = plan(script).output
    for text in (
        "slots:       4, one for each subtask",
        "(checkpoint 7 of 'job', triggered 1970-01-01 00:00:00 UTC)",
        "map-1 *",
        "map-1, key_by('id')",
        "from 'map-1' to 'totals'",
        "1,200",
        "refused",
        "It would not start:\n  checkpoint 7 has state of steps that the pipeline doesn't have: totals.",
    ):
        assert text in output, text
    assert plan(script, "--restore", "none").output.endswith("\nIt would start.\n")


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("or drop that state with allow_unclaimed=True", "or drop that state with --allow-unclaimed"),
        ("or start with rewind=True to begin anew", "or start with --rewind to begin anew"),
        ('or restore="none" begins anew', "or --restore none begins anew"),
        ("is DROPPED, since claim=False", "is DROPPED, since --no-claim"),
        ("drop them with ignore_in_flight=12.", "drop them with --ignore-in-flight 12."),
        ('without restoring (restore="none") and', "without restoring (--restore none) and"),
        ("not restore='latest'", "not --restore latest"),
        ("start with --take-over, or start(take_over=True).", "start with --take-over, or start(take_over=True)."),
        ("or start(rewind=True), the record {'claim=True'}", "or start(rewind=True), the record {'--claim'}"),
    ],
)
def test_what_an_error_advises_is_told_as_an_option(told: str, shown: str) -> None:
    assert in_options(told) == shown


def test_a_refusal_names_the_option_of_the_command(script: Path) -> None:
    checkpointed(script)
    change(script, '"totals"', '"sums"')
    result = plan(script)
    assert "drop that state with --allow-unclaimed" in " ".join(result.output.split())
    assert "allow_unclaimed=True" not in result.output


def test_what_is_restored_is_told_in_words(script: Path) -> None:
    checkpointed(script, kind=CheckpointKind.FINAL)
    assert "(final checkpoint 7 of 'job', triggered" in " ".join(plan(script).output.split())


KEPT = """
from pipeline import CountWindow, Count, Global, Pipeline, Session, Sliding, Tumbling, WatermarkStrategy
from sinks import PrintSink
from sources import SequenceSource

p = Pipeline("job")
s = p.source("s", SequenceSource(5)).assign_timestamps(WatermarkStrategy.bounded("at", 1)).key_by("id")

def windows(id, window, **options):
    s.window(window, **options).aggregate(id, n=Count()).sink(id + "-out", PrintSink())

windows("tumbling", Tumbling(60), lateness=5)
windows("sliding", Sliding(60, 20))
windows("session", Session(2.5), lateness=60)
windows("count", CountWindow(10))
windows("last", CountWindow(10, 5))
windows("global", Global(count=3))
windows("cleared", Global(count=3, clear=True))
windows("timed", Global(every=60, clear=True))
for id, joined in {
    "interval": s.join(s, within=(-5, 3600), id="interval"),
    "window": s.join(s, window=Tumbling(60), id="window"),
    "sessions": s.join(s, window=Session(60), id="sessions"),
    "table": s.join_as_of(s, id="table"),
    "young": s.join_as_of(s, wait=False, max_age=7, id="young"),
}.items():
    joined.sink(id + "-out", PrintSink())
"""


def test_it_says_what_windows_and_joins_keep_and_until_when(script: Path) -> None:
    script.write_text(KEPT)
    found = {step["id"]: step["keeps"] for vertex in planned(script)["vertices"] for step in vertex["steps"]}
    keys = "for ever: nothing bounds how many keys there are"
    assert {id: keeps for id, keeps in found.items() if keeps} == {
        "tumbling": ["a window of a key is kept until the watermark passes its end + 5 s"],
        "sliding": ["a pane of a key is kept until the watermark passes the end of the last window with it"],
        "session": [
            "a session of a key is kept until the watermark passes the time of its last record + 2.500 s + 60 s"
        ],
        "count": [f"what fills no window of a key yet is kept until it does, or {keys}"],
        "last": [f"the last 10 records of a key are kept, as panes, {keys}"],
        "global": [f"the window of a key is kept {keys}"],
        "cleared": [f"the window of a key is kept until its next result, or {keys}"],
        "timed": ["the window of a key is kept until its next result, 60 s at most"],
        "interval": [
            "a record of the left stream is kept until the watermark passes its time + 3,600 s",
            "a record of the right stream is kept until the watermark passes its time + 5 s",
        ],
        "window": ["a record of either stream is kept until the watermark passes the end of its window"],
        "sessions": [
            "a record of either stream is kept until the watermark passes the last time of its session + 60 s"
        ],
        "table": [
            "a record of the left stream is kept until the watermark passes its time",
            "a version of the right stream is kept until a newer one is below the watermark, the newest one "
            f"{keys}, unless a record None takes one away",
        ],
        "young": [
            "a record of the left stream is not kept",
            "a version of the right stream is kept until a newer one is below the watermark, the newest one until the "
            "watermark passes its time + 7 s",
        ],
    }
    printed = " ".join(plan(script).output.split())
    assert "state of is kept" in printed
    assert "interval a record of the left stream is kept until" in printed
