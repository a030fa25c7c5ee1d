"""Crashes and failing storage around checkpoints that hold data in flight: while it is written, while it is restored,
and of the driver between the two."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import topology_driver
from topology import EXACT, Schedule, Shape, SlowSink, build, validate

from checkpoint.storage.storage import CheckpointStorage
from pipeline import Pipeline
from pipeline.handle import JobHandle
from pipeline.testing import failpoints

Name = Callable[[str], str]


class Stage:
    """A topology whose sink is slower than its sources, with unaligned checkpoints, and what comes of it."""

    def __init__(self, folder: Path, name: str, spark: Any, checkpoints: int, failures: int) -> None:
        self.folder, self.name, self.spark = folder, name, spark
        self.schedule, self.sink = Schedule(folder, checkpoints, failures), SlowSink(0.001)

    def job(self, shape: Shape, parallelism: int, **options: Any) -> Pipeline:
        options = {"alignment": "unaligned", "interval": 0.1, **options}
        return build(self.name, self.folder / "checkpoints", self.sink, self.schedule, parallelism, shape, **options)

    def run(self, shape: Shape = "pipeline", parallelism: int = 2, **options: Any) -> JobHandle:
        return self.job(shape, parallelism, **options).run(spark=self.spark, timeout=160)

    def assert_exact(self) -> None:
        assert validate(self.sink.records, self.schedule.emitted()) == EXACT


@pytest.fixture
def stage(tmp_path: Path, unique_name: Name, spark: Any) -> Callable[..., Stage]:
    def make(checkpoints: int = 8, failures: int = 0) -> Stage:
        return Stage(tmp_path, unique_name("job"), spark, checkpoints, failures)

    return make


@pytest.mark.parametrize(
    ("shape", "max_concurrent"),
    [
        ("pipeline", 1),
        pytest.param("pipeline", 3, marks=pytest.mark.matrix),
        pytest.param("multi-input", 3, marks=pytest.mark.matrix),
        pytest.param("union", 1, marks=pytest.mark.matrix),
    ],
)
def test_a_crash_while_channel_state_is_written_leaves_the_output_exact(
    stage: Callable[..., Stage], shape: Shape, max_concurrent: int
) -> None:
    one = stage()
    with failpoints.crash("snapshot.channel_state", nth=9) as point:
        handle = one.run(shape, max_concurrent=max_concurrent)
    assert point.fired
    assert handle.restarts == 1
    one.assert_exact()


@pytest.mark.parametrize(
    ("shape", "parallelism"),
    [
        ("pipeline", 2),
        pytest.param("multi-input", 2, marks=pytest.mark.matrix),
        pytest.param("union", 3, marks=pytest.mark.matrix),
    ],
)
def test_a_crash_while_in_flight_data_is_restored_leaves_the_output_exact(
    stage: Callable[..., Stage], shape: Shape, parallelism: int
) -> None:
    one = stage(failures=1)
    with failpoints.crash("restore.in_flight") as point:
        handle = one.run(shape, parallelism)
    assert point.fired
    assert handle.restarts == 2
    one.assert_exact()


def test_crashes_in_restore_after_restore_leave_the_output_exact(stage: Callable[..., Stage]) -> None:
    one = stage(failures=1)
    # More often than there are subtasks, so in more than one attempt.
    with failpoints.crash("restore.in_flight", times=5) as point:
        handle = one.run(parallelism=1)
    assert point.hits > 5
    assert handle.restarts >= 3
    one.assert_exact()


def test_a_failure_to_write_channel_state_fails_that_checkpoint_only(stage: Callable[..., Stage]) -> None:
    one = stage()
    with failpoints.fail("snapshot.channel_state", nth=5, error="no space left") as point:
        handle = one.run()
    assert point.fired
    assert handle.restarts == 0
    failed = [row for row in handle.checkpoints() if row.status == "failed"]
    assert len(failed) == 1
    assert "no space left" in (failed[0].failure or "")
    one.assert_exact()


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    ("shape", "step"),
    [
        ("pipeline", "coordinator.after_metadata"),
        pytest.param("multi-input", "coordinator.before_metadata", marks=pytest.mark.matrix),
    ],
)
def test_a_killed_driver_that_is_started_again_goes_on_with_what_was_in_flight(
    tmp_path: Path, unique_name: Name, shape: Shape, step: str
) -> None:
    name = unique_name("job")
    options: dict[str, Any] = {"checkpoints": 10, "interval": 0.1, "max_concurrent": 3}
    killed = topology_driver.start(tmp_path, name, shape, crash=step, nth=6, **options)
    topology_driver.end(killed)
    assert killed.returncode == -signal.SIGKILL
    storage = CheckpointStorage((tmp_path / "checkpoints").as_uri(), name)
    assert storage.load(storage.list_checkpoints()[-1]).in_flight_records > 0
    ended = topology_driver.end(topology_driver.start(tmp_path, name, shape, **options))
    assert ended == {"status": "finished", "restarts": 0, "failure": None}
    schedule, sink = topology_driver.parts(tmp_path, 10)
    assert validate(sink.records, schedule.emitted()) == EXACT
