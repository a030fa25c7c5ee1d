"""Requests as they run in an event loop: batches, time limits, retries, figures."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from checkpoint.codec import decode
from checkpoint.counted import counted
from checkpoint.errors import PermanentFailure
from pipeline.async_calls.options import LONGEST_BACKOFF, AsyncStep

_RECENT: Final = 1000
"""Requests whose latency is kept."""


class RequestResult(NamedTuple):
    """What became of the request for one record."""

    token: Any
    """What `Requests.add` was given."""
    value: Any
    error: BaseException | None
    tries: int


Answered: TypeAlias = Callable[[RequestResult], None]


class _Asked(NamedTuple):
    token: Any
    value: Any
    encoded: bytes


class RequestTimeout(Exception):
    """A request had no answer in time."""


class WrongAnswer(Exception):
    """A function returned what `map_async` can't take."""


class Requests:
    """Used in the event loop's thread only, but for the figures, which any thread may read."""

    def __init__(
        self,
        step: AsyncStep,
        answered: Answered,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """
        Args:
            answered: takes what became of each record, in any order.
            jitter: a number between two.
        """
        self._step = step
        self._answered = answered
        self._jitter = jitter
        self._tasks: set[asyncio.Task[None]] = set()
        self._batch: list[_Asked] = []
        self._full_at: asyncio.TimerHandle | None = None
        self._closing = False
        self.asked = 0
        """Requests that were begun, retries included."""
        self.retries = 0
        self.timeouts = 0
        self.answered = 0
        """Requests that have ended, with their retries."""
        self.seconds = 0.0
        """How long they took in all."""
        self.latencies: deque[float] = deque(maxlen=_RECENT)
        """In seconds, of the last ones."""

    async def open(self) -> None:
        open_ = getattr(self._step.function, "open", None)
        if open_ is not None:
            await open_()

    def add(self, token: Any, value: Any, encoded: bytes) -> None:
        """Ask for a record, or put it into the batch that is to be asked.

        Args:
            encoded: what the value is made of again for a retry: the first try may have changed it.
        """
        asked = _Asked(token, value, encoded)
        size = self._step.batch_size
        if size is None:
            self._begin([asked])
            return
        self._batch.append(asked)
        if len(self._batch) >= size:
            self.flush()
        elif self._full_at is None:
            self._full_at = asyncio.get_running_loop().call_later(self._step.batch_wait, self.flush)

    def flush(self) -> None:
        """Ask for the batch as it is."""
        if self._full_at is not None:
            self._full_at.cancel()
            self._full_at = None
        if self._batch:
            batch, self._batch = self._batch, []
            self._begin(batch)

    async def close(self) -> None:
        """Cancel what is under way and close the function.

        Raises:
            Exception: what its `close` raised.
        """
        self._closing = True
        if self._full_at is not None:
            self._full_at.cancel()
        await _cancelled(self._tasks)
        try:
            close = getattr(self._step.function, "close", None)
            if close is not None:
                await close()
        finally:
            # What the function has begun beside its requests.
            await _cancelled(asyncio.all_tasks() - {asyncio.current_task()})

    def _begin(self, batch: list[_Asked]) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, batch: list[_Asked]) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        tries = 0
        while True:
            tries += 1
            values = [one.value if tries == 1 else decode(one.encoded) for one in batch]
            error, results = None, [None] * len(batch)
            try:
                results = await self._try(values)
            except BaseException as raised:  # also a SystemExit of the function, which would end the loop
                if self._closing:
                    raise
                error = raised
            if error is None or tries > self._step.retries or not self._may_help(error):
                break
            self.retries += 1
            longest = min(self._step.backoff * 2 ** min(tries - 1, 30), LONGEST_BACKOFF)
            await asyncio.sleep(self._jitter(longest / 2, longest))
        took = clock() - began
        self.answered += 1
        self.seconds += took
        self.latencies.append(took)
        for asked, result in zip(batch, results, strict=True):
            failed = result if isinstance(result, Exception) else error
            self._answered(RequestResult(asked.token, None if failed else result, failed, tries))

    def _may_help(self, error: BaseException) -> bool:
        """To ask again."""
        return isinstance(error, self._step.retry_on) and not isinstance(error, PermanentFailure)

    async def _try(self, values: list[Any]) -> list[Any]:
        step = self._step
        self.asked += 1
        limit = asyncio.timeout(step.timeout)
        try:
            async with limit:
                if step.batch_size is None:
                    return [await step.function(values[0])]
                results = await step.function(values)
        except TimeoutError as error:
            if not limit.expired():
                raise  # the function's own
            self.timeouts += 1
            raise RequestTimeout(f"no answer within {step.timeout:g} s") from error
        if not isinstance(results, list | tuple) or len(results) != len(values):
            what = (
                counted(len(results), "result") if isinstance(results, list | tuple) else f"a {type(results).__name__}"
            )
            raise WrongAnswer(
                f"the function got a batch of {counted(len(values), 'record')} and returned {what}: with batch_size it "
                "returns a list with the result of each, in the same order"
            )
        return list(results)


async def _cancelled(tasks: set[Any]) -> None:
    """Cancel tasks and wait for their end."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
