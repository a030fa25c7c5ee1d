"""`weir checkpoints` on the folders of real jobs: of one that runs, and of one whose driver was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deadlines import PATIENCE, eventually
from small_job import assert_exact, checkpoints_of, running, storage_of
from staged_job import RECORDS, staged_job

from pipeline.cli import main

Name = Callable[[str], str]
SUPPORT = Path(__file__).parents[1] / "support"


def weir(command: str, uri: str, *options: str) -> Any:
    result = CliRunner().invoke(main, ["checkpoints", command, uri, "--json", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def killed_at(step: str, nth: int, name: str, folder: Path) -> None:
    """Run the job in a driver of its own, which is killed."""
    process = subprocess.Popen(
        [sys.executable, SUPPORT / "jobs" / "killed.py", name, folder, step, str(nth)],
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    )
    try:
        assert process.wait(PATIENCE) == -signal.SIGKILL
    finally:
        process.kill()


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.sample(1 / 4)
def test_what_a_killed_driver_left_is_found_and_deleted_and_the_job_goes_on_exactly(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    name = unique_name("my job")
    job = staged_job(name, tmp_path)
    killed_at("coordinator.before_metadata", 4, name, tmp_path)
    storage = storage_of(job)
    folder, uri = Path(storage.location.removeprefix("file://")), storage.uri_of()
    good = storage.list_checkpoints()
    (left,) = set(storage.folders()) - set(good)
    needed = {handle.path for ref in good for handle in storage.load(ref).all_files()}
    unused = set(storage.list_shared()) - needed
    assert unused

    (found,) = weir("verify", uri)["jobs"]
    assert {orphan["path"] for orphan in found["orphans"]} == {left.path, *unused}
    (kept,) = weir("gc", uri)["jobs"]
    assert kept["deleted"] == []

    (cleaned,) = weir("gc", uri, "--stopped")["jobs"]
    assert {orphan["path"] for orphan in cleaned["deleted"]} == {left.path, *unused}
    metadata = {f"{ref.path}/_metadata" for ref in good}
    assert {path for path in files(folder) if not path.startswith("owner-")} == needed | metadata
    assert weir("verify", uri)["jobs"][0]["orphans"] == []

    job.run(spark=spark, timeout=PATIENCE)
    assert_exact(sink_of(job), RECORDS)


def sink_of(job: Any) -> Any:
    return next(step.payload for vertex in job.plan().vertices for step in vertex.steps if step.id == "out")


@pytest.mark.sample(1 / 4)
def test_a_running_job_is_listed_verified_and_cleaned_without_harm(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    """What it takes over from the killed run, in its checkpoints and on its way into them, stays."""
    name = unique_name("job")
    killed_at("coordinator.after_metadata", 3, name, tmp_path)
    job = staged_job(name, tmp_path)
    uri = storage_of(job).uri_of()
    with running(job, spark) as handle:
        eventually(lambda: handle.status == "running")
        rounds = 0
        while handle.status == "running":
            (cleaned,) = weir("gc", uri, "--void")["jobs"]
            assert all(orphan["epoch"] < 2 for orphan in cleaned["deleted"])
            (listed,) = weir("ls", uri)["jobs"]
            for one in listed["checkpoints"][-1:]:
                result = CliRunner().invoke(main, ["checkpoints", "show", one["uri"], "--json"])
                assert result.exit_code == 0 or "deleted" in result.output or "no complete" in result.output
            assert not weir("verify", uri)["damaged"]
            rounds += 1
        handle.wait(PATIENCE)
    assert rounds
    assert_exact(sink_of(job), RECORDS)
    found = weir("show", uri)
    assert found["summary"]["kind"] == "final"
    assert found["summary"]["ref"]["folder"] == checkpoints_of(job)[-1].path
    assert {state["step"] for state in found["steps"]} == {"in", "count", "out"}
    assert found["parallelism"].keys() == {"in", "count → map-1 → out"}
