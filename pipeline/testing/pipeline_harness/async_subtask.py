"""A subtask of a harness whose chain begins with `map_async`: its event loop runs where the test is, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.runtime.subtask.steps.async_calls import InFrontOf
from pipeline.runtime.subtask.task_checkpoints import InFlightSequence
from pipeline.runtime.subtask.waits_in_queue import WaitsInQueue
from pipeline.runtime.topology_changes import edge_shapes
from pipeline.testing.inline_loop import InlineLoop
from pipeline.testing.pipeline_harness.subtask import HarnessSubtask


class AsyncHarnessSubtask(WaitsInQueue, HarnessSubtask):
    """See `pipeline.runtime.subtask.async_task.AsyncTask`."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        assert self.chain.calls is not None
        self._calls = self.chain.calls
        self._loop = InlineLoop(self._calls.options, self._world.clock)
        self._calls.loop = self._loop

    @property
    def requests_in_flight(self) -> int:
        return self._calls.queue.records

    def choices(self) -> list[Callable[[], None]]:
        with self._blamed():
            self._calls.collect()
        if self._batch and self._batch.inside:
            return [self._process_batch]
        if self._time_due:
            return [self._fire]
        go_on: list[Callable[[], None]] = [self._hand_on] if self._calls.queue.ready else []
        return go_on if self._calls.full else [*go_on, *super().choices()]

    def seconds_to_next(self, now: float) -> float:
        at = self._loop.next_time()
        return min(super().seconds_to_next(now), float("inf") if at is None else max(0.0, at - now))

    def _process_batch(self) -> None:
        origin = self._batch.origin
        self._calls.channel = self._names[origin] if isinstance(origin, int) else origin
        super()._process_batch()

    def _hand_on(self) -> None:
        self._hand_on_until(self._mailbox)

    def _before_all(self) -> InFlightSequence:
        shapes = edge_shapes(self._world.plan)
        return InFrontOf(self._calls, self._restored, lambda edge: shapes[edge].format)
