"""`weir status|checkpoint|savepoint|stop|cancel` of jobs that run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from deadlines import PATIENCE, eventually
from small_job import NEVER, assert_exact, records, running, small_job
from weir_process import await_line, started

from pipeline import JobCancelled, RestartStrategy
from pipeline.cli import main
from pipeline.cli.drawing import open_console
from pipeline.cli.operate import find_job
from pipeline.cli.operate_tables import _vertices
from pipeline.runtime.running_jobs import running_jobs
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's jobs leave their files."""
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def weir(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def said(*arguments: str) -> str:
    """What the command prints."""
    result = weir(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def error_of(*arguments: str) -> str:
    result = weir(*arguments)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    return result.stderr


# -- a job from its start to its end ----------------------------------------------------------------------------------


def test_a_job_is_watched_checkpointed_and_stopped_with_a_savepoint_from_outside(
    tmp_path: Path, unique_name: Name, spark: Any, folder: Path
) -> None:
    name, sink = unique_name("job"), TestingSink()
    elements = [*records(0, 5), TestingSource.ABORT(), *records(5, 10), TestingSource.PAUSE(), *records(10, 20)]
    source = TestingSource(elements, directory=tmp_path / "source")
    restart = RestartStrategy.fixed_delay(1, 0.05)
    p = small_job(name, tmp_path / "checkpoints", source, sink, **NEVER, restart=restart)
    with running(p, spark) as handle:
        eventually(lambda: handle.restarts == 1 and handle.status == "running")
        id = said("checkpoint", name, "--timeout", "60")

        eventually(lambda: len(handle.metrics()["subtasks"]) == 2)
        status = json.loads(said("status", name, "--json"))
        assert (status["name"], status["address"], status["pid"]) == (name, handle.address, os.getpid())
        assert (status["status"], status["restarts"]) == ("running", 1)
        assert "TestingSource.ABORT()" in status["failure"]
        assert [(str(row["id"]), row["kind"], row["status"]) for row in status["checkpoints"][-1:]] == [
            (id, "checkpoint", "completed")
        ]
        (phases,) = status["recoveries"]
        assert list(phases) == ["cancel", "wait", "start", "restore", "catch_up"]
        assert phases["wait"] >= 0.05
        assert all(phases[phase] > 0 for phase in ("cancel", "start", "restore"))
        assert set(status["vertices"]) == {"in", "count → out"}

        assert {"recordsInPerSecond", "recordsLag", "busyMsPerSecond"} <= status["vertices"]["in"].keys()
        assert list(status["start"])[:3] == ["checks", "deploy", "restore"]  # of the restart
        metrics = json.loads(said("metrics", name, "--json"))
        assert metrics["subtasks"].keys() == handle.metrics()["subtasks"].keys()
        assert {"idleMsPerSecond", "recordsOutPerSecond"} <= metrics["subtasks"]["count → out[0]"].keys()
        assert all(text in said("metrics", name) for text in ("count → out[0]", "in/s", "idle", "heldMs"))
        tables = said("status", handle.address or "")
        assert all(text in tables for text in (f"job:         {name} at", "running for", "in this attempt", "catch up"))
        listed = json.loads(said("status", "--json"))["jobs"]
        assert [job["address"] for job in listed] == [handle.address]
        assert handle.address is not None
        assert handle.address in said("status")

        first = tmp_path / "first"
        assert said("savepoint", name, str(first)) == str(first)
        assert (first / "_metadata").is_file()
        assert handle.status == "running"
        assert "savepoint failed: " in error_of("savepoint", name, str(first))

        last = tmp_path / "last"
        result = weir("stop", name, "--savepoint", str(last))
        assert (result.exit_code, result.stdout.strip()) == (0, str(last)), result.output
        assert (handle.status, (last / "_metadata").is_file()) == ("finished", True)
        handle.wait(PATIENCE)
    assert list(folder.iterdir()) == []
    assert "no job of this user runs on this host" in said("status")
    assert f"no job called {name!r} of this user runs" in error_of("cancel", name)
    assert_exact(sink, records(0, 10))


def test_a_job_is_cancelled_from_outside_and_who_asked_learns_of_it(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    name = unique_name("job")
    source = TestingSource([*records(0, 5), TestingSource.PAUSE()], directory=tmp_path / "source")
    p = small_job(name, tmp_path / "checkpoints", source, TestingSink(), **NEVER)
    with running(p, spark) as handle:
        result = weir("cancel", name)
        assert (result.exit_code, result.stderr) == (0, f"job {name!r}: cancelled\n")
        with pytest.raises(JobCancelled):
            handle.wait(PATIENCE)


def test_of_several_jobs_with_one_name_one_is_chosen_by_its_address(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    name = unique_name("job")

    def job(which: str) -> Any:
        source = TestingSource([TestingSource.PAUSE()], directory=tmp_path / which)
        return small_job(name, tmp_path / f"checkpoints-{which}", source, TestingSink(), **NEVER)

    with running(job("a"), spark) as a, running(job("b"), spark) as b:
        message = error_of("cancel", name)
        assert f"2 jobs called {name!r} run here: choose one by its address, {a.address}, {b.address}" in message
        assert said("checkpoint", a.address or "") == "1"
        said("cancel", b.address or "")
        assert (a.status, b.status) == ("running", "cancelled")


# -- weir run ---------------------------------------------------------------------------------------------------------

ENDLESS = """
from pipeline import Pipeline
from sinks import PrintSink
from sources import SequenceSource

p = Pipeline("endless")
p.source("numbers", SequenceSource(None, rate=10)).sink("out", PrintSink())
"""


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_weir_run_tells_its_address_takes_options_from_the_environment_and_ends_when_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, config = tmp_path / "job.py", tmp_path / "weir.toml"
    script.write_text(ENDLESS)
    config.write_text(f'[checkpoints]\nuri = "{tmp_path / "checkpoints"}"\ninterval = 1000\n')
    monkeypatch.setenv("WEIR_CHECKPOINTS_INTERVAL", "0.2")
    with started("run", str(script), "--config", str(config)) as process:
        address = await_line(process, "job endless: starting at 127.0.0.1:").split()[-1]
        assert "from nothing after" in await_line(process, "job endless: running")
        await_line(process, "'id': 10")
        eventually(lambda: json.loads(said("status", address, "--json"))["checkpoints_completed"] > 1)
        said("cancel", "endless")
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "job 'endless' was cancelled" in output
    assert "Traceback" not in output
    assert running_jobs() == []


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_a_killed_driver_is_not_listed_any_more(tmp_path: Path, folder: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(ENDLESS)
    with started("run", str(script), "--set", f"checkpoints.uri={tmp_path / 'checkpoints'}") as process:
        await_line(process, "'id': 1")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(300)
        assert len(list(folder.iterdir())) == 1
        assert "no job of this user runs on this host" in said("status")
        assert list(folder.iterdir()) == []


def test_large_numbers_stay_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    values = {
        "subtasks": 64,
        "recordsIn": 1_234_567_890,
        "recordsOut": 1_234_567_891,
        "recordsInPerSecond": 125_431.4,
        "recordsOutPerSecond": 125_100.0,
        "recordsLag": 12_120_345,
        "busyMsPerSecond": 1000.0,
        "inFlightBytes": 13_500_000,
        "sourceGateClosedMs": 500_000,
        "pendingCommits": 12,
    }
    open_console().print(_vertices({"vertices": {"orders → cleaned → enriched": values}}))
    output = capsys.readouterr().out
    assert all(text in output for text in ("1,234,567,890", "1,234,567,891", "125,431", "12,120,345", "8 min 20 s"))


# -- what is refused --------------------------------------------------------------------------------------------------


def test_an_address_without_a_known_secret_is_refused_with_what_to_do() -> None:
    assert "give its secret by --secret-file or WEIR_JOB_SECRET" in error_of("status", "127.0.0.1:1")


def test_a_job_that_has_ended_is_told_from_one_with_another_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("a secret that is long enough\n")
    message = error_of("cancel", "127.0.0.1:1", "--secret-file", str(file))
    assert "no job answers at 127.0.0.1:1" in message
    assert "it has ended, or runs on another host" in message


@pytest.mark.parametrize(("said", "encrypted"), [("", False), ("true", True), (" TRUE ", True), ("false", False)])
def test_whether_a_job_of_which_only_the_secret_is_known_encrypts_says_a_variable(
    monkeypatch: pytest.MonkeyPatch, said: str, encrypted: bool
) -> None:
    monkeypatch.setenv("WEIR_JOB_SECRET", "a secret that is long enough")
    monkeypatch.setenv("WEIR_ENCRYPT", said)
    assert find_job("127.0.0.1:1", None).encrypted is encrypted


def test_a_variable_that_says_neither_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_JOB_SECRET", "a secret that is long enough")
    monkeypatch.setenv("WEIR_ENCRYPT", "yes")
    message = error_of("status", "127.0.0.1:1")
    assert "encrypt must be true or false, not 'yes' (from WEIR_ENCRYPT)" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [("short", "at least 16 bytes"), ('{"name": "x"}', "has no secret in it"), ("[1]", "at least 16 bytes")],
)
def test_a_file_without_a_secret_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "secret"
    file.write_text(content)
    assert message in error_of("cancel", "127.0.0.1:1", "--secret-file", str(file))


def test_a_jobs_own_file_can_be_given_as_secret(tmp_path: Path, unique_name: Name, spark: Any, folder: Path) -> None:
    name = unique_name("job")
    source = TestingSource([TestingSource.PAUSE()], directory=tmp_path / "source")
    p = small_job(name, tmp_path / "checkpoints", source, TestingSink(), **NEVER)
    with running(p, spark) as handle:
        (file,) = folder.iterdir()
        moved = file.rename(tmp_path / "moved.json")
        assert "no job of this user on this host has the address" in error_of("cancel", handle.address or "")
        said("cancel", handle.address or "", "--secret-file", str(moved))
        assert handle.status == "cancelled"
