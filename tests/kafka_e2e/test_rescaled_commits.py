"""Crashes around the commit, and another parallelism at the next start: what is left to commit lies with other subtasks
than those that have prepared it, and is committed under its old writers' names, in the old order.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from deadlines import PATIENCE
from kafka_job import EXACT, Stage, await_processed, staged_ids
from small_job import running

from checkpoint.storage.storage import CheckpointStorage
from pipeline import JobFailed, RestartStrategy
from pipeline.testing import failpoints

StageMaker = Callable[..., Stage]
NO_RESTART = RestartStrategy.none()


def newest_staged(stage: Stage) -> set[int]:
    storage = CheckpointStorage(stage.folder.as_uri(), stage.name)
    return staged_ids(storage, storage.load(storage.list_checkpoints()[-1]))


def test_a_crash_while_restored_output_goes_out_at_another_parallelism_repeats_none_of_it(
    make_stage: StageMaker, spark: Any
) -> None:
    """Three parallelisms in a row; the one in the middle only gets some of what it restored out."""
    stage = make_stage(1600)
    for step, nth, parallelism in (("committer.before_commit", 10, 3), ("committer.after_send_offsets", 2, 1)):
        with failpoints.crash(step, nth=nth) as point, pytest.raises(JobFailed):
            stage.pipeline(parallelism=parallelism, restart=NO_RESTART).run(spark=spark, timeout=PATIENCE)
        assert point.fired
    stage.pipeline(parallelism=2).run(spark=spark, timeout=PATIENCE)
    assert stage.findings() == EXACT


def test_output_that_never_got_out_over_two_changes_of_parallelism_goes_out_in_order(
    make_stage: StageMaker, spark: Any
) -> None:
    stage = make_stage()
    for parallelism in (2, 3):
        with (
            failpoints.hold("committer.before_commit", times=100, timeout=PATIENCE) as held,
            running(stage.endless(parallelism=parallelism, restart=NO_RESTART), spark) as handle,
        ):
            for n in (200, 400):
                stage.produce(200)
                await_processed(handle, n)
                handle.checkpoint(PATIENCE)
            held.wait()
            os.kill(next(iter(handle.processes().values())), signal.SIGKILL)
            with pytest.raises(JobFailed):
                handle.wait(PATIENCE)
    assert stage.outputs() == []
    assert newest_staged(stage) == set(range(800))
    with failpoints.crash("committer.mid_produce", nth=3) as point, pytest.raises(JobFailed):
        stage.pipeline(parallelism=1, restart=NO_RESTART).run(spark=spark, timeout=PATIENCE)
    assert point.fired
    assert 0 < len(stage.outputs()) < 800
    stage.pipeline(parallelism=2).run(spark=spark, timeout=PATIENCE)
    assert stage.findings() == EXACT
