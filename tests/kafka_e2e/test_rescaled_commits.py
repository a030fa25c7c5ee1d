"""Crashes around the commit, and another parallelism at the next start: what is left to commit lies with other subtasks
than those that have prepared it, and goes out under its old owners' names, in the old order.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import kafka_driver
import pytest
from kafka_job import EXACT, Stage, await_processed, staged_ids
from small_job import WAIT, running

from checkpoint.storage.storage import CheckpointStorage
from pipeline import JobFailed, RestartStrategy
from pipeline.testing import failpoints

pytestmark = pytest.mark.timeout(240)

StageMaker = Callable[..., Stage]
NO_RESTART = RestartStrategy.none()

HITS = {
    "sink.before_flush": 3,
    "sink.after_flush": 3,
    "snapshot.async_write": 6,
    "subtask.after_acknowledge": 6,
    "committer.before_commit": 3,
    "committer.mid_produce": 2,
    "committer.after_send_offsets": 3,
    "committer.after_commit": 3,
}
"""Where a worker is killed, and after how many hits for each subtask of the sink: late enough for records to flow."""


def newest_staged(stage: Stage) -> set[int]:
    storage = CheckpointStorage(stage.folder.as_uri(), stage.name)
    return staged_ids(storage, storage.load(storage.list_checkpoints()[-1]))


IN_TEST = {("committer.before_commit", 2, 3), ("committer.mid_produce", 1, 3), ("committer.after_send_offsets", 3, 2)}
"""Of the other rows CI runs one a step."""


def rows() -> list[Any]:
    changes = [(2, 1), (1, 3), (3, 2), (2, 3)]
    marks: dict[tuple[str, int, int], Any] = dict.fromkeys(IN_TEST, ())
    for j, mark in enumerate((pytest.mark.matrix, pytest.mark.full)):
        for i, step in enumerate(HITS):
            marks.setdefault((step, *changes[(i + j) % 4]), mark)
    return [pytest.param(*row, marks=mark) for row, mark in sorted(marks.items(), key=lambda one: one[0])]


@pytest.mark.parametrize(("step", "before", "after"), rows())
def test_a_crash_at_any_step_and_another_parallelism_leave_the_output_exact(
    make_stage: StageMaker, spark: Any, step: str, before: int, after: int
) -> None:
    stage = make_stage(1600)
    with failpoints.crash(step, nth=HITS[step] * before + 1) as point, pytest.raises(JobFailed):
        stage.pipeline(parallelism=before, restart=NO_RESTART).run(spark=spark, timeout=WAIT)
    assert point.fired
    assert len(stage.outputs()) < 1600
    stage.pipeline(parallelism=after).run(spark=spark, timeout=WAIT)
    assert stage.findings() == EXACT


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        ("coordinator.after_metadata", 2, 1),
        pytest.param("coordinator.after_metadata", 1, 3, marks=pytest.mark.matrix),
        pytest.param("coordinator.before_metadata", 3, 2, marks=pytest.mark.matrix),
        pytest.param("coordinator.before_metadata", 2, 3, marks=pytest.mark.full),
    ],
)
def test_a_killed_driver_and_another_parallelism_leave_the_output_exact(
    make_stage: StageMaker, step: str, before: int, after: int
) -> None:
    stage = make_stage(1600)
    first = kafka_driver.start(stage, pipeline={"parallelism": before}, crash=step, nth=4)
    first.communicate(timeout=WAIT)
    assert first.returncode == -signal.SIGKILL
    assert kafka_driver.end(kafka_driver.start(stage, pipeline={"parallelism": after}))["status"] == "finished"
    assert stage.findings() == EXACT


def test_a_crash_while_restored_output_goes_out_at_another_parallelism_repeats_none_of_it(
    make_stage: StageMaker, spark: Any
) -> None:
    """Three parallelisms in a row; the one in the middle only gets some of what it restored out."""
    stage = make_stage(1600)
    for step, nth, parallelism in (("committer.before_commit", 10, 3), ("committer.after_send_offsets", 2, 1)):
        with failpoints.crash(step, nth=nth) as point, pytest.raises(JobFailed):
            stage.pipeline(parallelism=parallelism, restart=NO_RESTART).run(spark=spark, timeout=WAIT)
        assert point.fired
    stage.pipeline(parallelism=2).run(spark=spark, timeout=WAIT)
    assert stage.findings() == EXACT


def test_output_that_never_got_out_over_two_changes_of_parallelism_goes_out_in_order(
    make_stage: StageMaker, spark: Any
) -> None:
    stage = make_stage()
    for parallelism in (2, 3):
        with (
            failpoints.hold("committer.before_commit", times=100, timeout=WAIT) as held,
            running(stage.endless(parallelism=parallelism, restart=NO_RESTART), spark) as handle,
        ):
            for n in (200, 400):
                stage.produce(200)
                await_processed(handle, n)
                handle.checkpoint(WAIT)
            held.wait()
            os.kill(next(iter(handle.processes().values())), signal.SIGKILL)
            with pytest.raises(JobFailed):
                handle.wait(WAIT)
    assert stage.outputs() == []
    assert newest_staged(stage) == set(range(800))
    with failpoints.crash("committer.mid_produce", nth=3) as point, pytest.raises(JobFailed):
        stage.pipeline(parallelism=1, restart=NO_RESTART).run(spark=spark, timeout=WAIT)
    assert point.fired
    assert 0 < len(stage.outputs()) < 800
    stage.pipeline(parallelism=2).run(spark=spark, timeout=WAIT)
    assert stage.findings() == EXACT
