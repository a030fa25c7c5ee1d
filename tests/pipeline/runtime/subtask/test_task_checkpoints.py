"""A subtask's part in checkpoints: what it acknowledges, and when it no longer does."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from checkpoint.barriers.events import Barrier
from checkpoint.in_flight.restored_input import RestoredInput
from pipeline.runtime.protocol import Acknowledged, SnapshotTaken
from pipeline.runtime.subtask.task_checkpoints import TaskCheckpoints
from pipeline.runtime.subtask.task_metrics import TaskMetrics


class Later:
    """An executor that runs what it has got when it is told to."""

    def __init__(self) -> None:
        self._tasks: list[Callable[[], Any]] = []

    def submit(self, function: Callable[..., Any], *args: Any) -> None:
        self._tasks.append(lambda: function(*args))

    def run(self) -> None:
        while self._tasks:
            self._tasks.pop(0)()


class Files:
    def gather(self, barrier: Barrier, step: str, snapshot: Any) -> Any:
        return snapshot

    def spill(self, barrier: Barrier, step: str, snapshot: Any) -> Any:
        return snapshot

    def completed(self, checkpoint_id: int) -> None:
        pass

    def aborted(self, checkpoint_id: int) -> None:
        pass


def task_checkpoints(reported: list[Any], pool: Later) -> TaskCheckpoints:
    """Of a subtask without outputs and state."""
    chain: Any = SimpleNamespace(
        head="sink", snapshot=lambda n: {}, broadcast_snapshot=dict, broadcast_contents=dict, freeze_lists=dict
    )
    event_time: Any = SimpleNamespace(snapshot_watermarks=dict, snapshot=dict)
    driver: Any = SimpleNamespace(report=reported.append)
    files: Any = Files()
    executor: Any = pool
    return TaskCheckpoints(
        chain=chain,
        event_time=event_time,
        subtask=0,
        writers=[],
        sinks={},
        backend=None,
        log=None,
        restored=RestoredInput(),
        driver=driver,
        files=files,
        pool=executor,
        metrics=TaskMetrics(time.monotonic),
    )


@pytest.mark.parametrize("given_up", ["no", "aborted", "closed"])
def test_what_is_given_up_while_its_state_is_written_is_not_acknowledged(given_up: str) -> None:
    reported: list[Any] = []
    pool = Later()
    checkpoints = task_checkpoints(reported, pool)
    checkpoints.take(Barrier(1), False, 0.0, [], {}, {})
    assert reported == [SnapshotTaken(1, None, False)]
    if given_up == "aborted":
        checkpoints.aborted(1)
    elif given_up == "closed":
        checkpoints.close()
    pool.run()
    acknowledged = [one.checkpoint_id for one in reported if isinstance(one, Acknowledged)]
    assert acknowledged == ([1] if given_up == "no" else [])
