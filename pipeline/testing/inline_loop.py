"""The event loop of an async step where time passes only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from pipeline.async_calls.options import AsyncStep
from pipeline.async_calls.requests import RequestResult, Requests


class _SteppedLoop(asyncio.SelectorEventLoop):
    """Its time is that of a clock, and it never waits."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._now = clock
        self._times: list[float] = []
        self.scheduled = 0
        """How many callbacks were."""

    def time(self) -> float:
        return self._now()

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        self.scheduled += 1
        return super().call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # type: ignore[override]
        self.scheduled += 1
        heapq.heappush(self._times, when)
        return super().call_at(when, callback, *args, context=context)

    def next_time(self) -> float | None:
        """When something is due that was not when this was asked last; a clock value."""
        return self._times[0] if self._times else None

    def turn(self) -> None:
        """Run all that can be run now."""
        now = self.time()
        due = False
        while self._times and self._times[0] <= now:
            heapq.heappop(self._times)
            due = True
        while True:
            before = self.scheduled
            super().call_soon(self.stop)
            self.run_forever()
            if self.scheduled == before and not due:
                return
            due = False


class InlineLoop:
    """See `pipeline.async_calls.loop.Loop`: everything happens in the thread that calls, in an order that is the same
    each time. Functions may wait with `asyncio.sleep`, for other tasks and for what tests release; for nothing
    outside of the process."""

    def __init__(self, step: AsyncStep, clock: Callable[[], float]) -> None:
        """`clock`: in seconds."""
        self._loop = _SteppedLoop(clock)
        self._answers: deque[RequestResult] = deque()
        self.requests = Requests(step, self._answers.append, random.Random(0).uniform)
        self._over = False

    def open(self) -> None:
        self._run(self.requests.open())

    def ask(self, token: Any, value: Any, encoded: bytes) -> None:
        self._loop.call_soon(self.requests.add, token, value, encoded)

    def flush(self) -> None:
        self._loop.call_soon(self.requests.flush)

    def answers(self) -> deque[RequestResult]:
        self._loop.turn()
        return self._answers

    def next_time(self) -> float | None:
        """When a request may go on by itself, a clock value; `None` = never."""
        self._loop.turn()
        return self._loop.next_time()

    def close(self) -> None:
        if self._over:
            return
        self._over = True
        try:
            self._run(self.requests.close())
        finally:
            self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._loop.turn()
        if not task.done():
            task.cancel()
            self._loop.turn()
            raise TimeoutError(
                "open() or close() of the function of an async step waits for something that can't come in a test, "
                "where time stands still meanwhile"
            )
        task.result()
