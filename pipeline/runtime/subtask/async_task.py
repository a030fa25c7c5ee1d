"""A subtask whose chain begins with `map_async`."""

from __future__ import annotations

from typing import Any, Final

from checkpoint.waiting import WaitKind
from pipeline.async_calls.function import Counting
from pipeline.runtime.subtask.operator_task import OperatorTask
from pipeline.runtime.subtask.waits_in_queue import WaitsInQueue

_SLOW_SECONDS: Final = 1.0
"""Without an answer for so long the task says that it waits for them."""


class AsyncTask(WaitsInQueue, OperatorTask):
    """Takes records as long as there is room for their requests, and hands their results on.

    Barriers and mail never wait, as controls do (`WaitsInQueue`): what is in the queue is part of the snapshot.
    """

    def __init__(self, **common: Any):
        super().__init__(**common)
        assert self.chain.calls is not None
        self._calls = self.chain.calls
        self._calls.wake = self.mailbox.wake
        self._waited = f"answers to the requests of step {self._calls.id!r}"

    def _step(self) -> None:
        self._calls.collect()
        if not self._may_process():
            self._step_without_room()
        elif self.batch and self.batch.inside:
            self._process_batch()  # older than all that waits in front of the head
        elif self._time_due:
            self._fire()
        elif self._calls.queue.ready:
            self._hand_on_until(self.mailbox)
        elif self.batch:
            if self._calls.full:
                self._wait_for_answers()
            else:
                self._process_batch()
        elif self._calls.full:
            self._wait_for_answers()
        elif self._restoring:
            self._take_restored()
        elif self._input_ending and not self._input_ended:
            self._end_output()
        else:
            self._poll()

    def _process_batch(self) -> None:
        origin = self.batch.origin
        self._calls.channel = self._channels[origin] if isinstance(origin, int) else origin
        super()._process_batch()

    def _wait_for_answers(self) -> None:
        """As long as that takes the step is busy. What needs no room, such as a barrier, goes through."""
        before_all = not self.batch or not isinstance(self.batch.origin, int)
        """No barrier in front of which the rest of the batch belongs can come."""
        polled = self._inputs.poll(data=False) if before_all else None
        if polled is not None:
            self._take(*polled)
        else:
            self._wait()

    def _on_clock(self, now: float) -> None:
        super()._on_clock(now)
        calls = self._calls
        slow = calls.queue.records and now - calls.quiet_since >= _SLOW_SECONDS
        if slow and (calls.full or calls.queue.controls_wait):
            self.metrics.waiting.begin(self._waited, calls.quiet_since, WaitKind.REQUESTS)
        elif self.metrics.waiting:
            self.metrics.waiting.end(self._waited)

    def _set_gauges(self) -> None:
        super()._set_gauges()
        requests, metrics = self._calls.loop.requests, self.metrics
        metrics.gauge("requestsInFlight", self._calls.queue.records)
        metrics.gauge("requests", requests.asked)
        metrics.gauge("requestRetries", requests.retries)
        metrics.gauge("requestTimeouts", requests.timeouts)
        metrics.gauge("requestsAnswered", requests.answered)
        metrics.gauge("requestMs", 1000 * requests.seconds)
        recent = sorted(requests.latencies)
        for name, part in (("requestMsP50", 0.5), ("requestMsP95", 0.95)):
            metrics.gauge(name, 1000 * recent[int(part * (len(recent) - 1))] if recent else None)
        function = self._calls.options.function
        if isinstance(function, Counting):
            for name, count in function.counts().items():
                metrics.gauge(name, count)
