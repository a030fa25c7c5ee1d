"""The event loop of an async step, as the task thread sees it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone
from typing import Any, Final, Protocol

from pipeline.async_calls.options import AsyncStep
from pipeline.async_calls.requests import RequestResult, Requests

_CLOSE_SECONDS: Final = 10.0


class Loop(Protocol):
    """Used by the task thread."""

    requests: Requests
    """For its figures."""

    def open(self) -> None:
        """Begin, and open the function.

        Raises:
            Exception: what its `open` raised.
        """

    def ask(self, token: Any, value: Any, encoded: bytes) -> None:
        """See `Requests.add`."""

    def flush(self) -> None:
        """See `Requests.flush`."""

    def answers(self) -> deque[RequestResult]:
        """What has come since it was asked last, to be emptied by the caller.

        Raises:
            RuntimeError: something beside the requests has raised what no event loop goes on after.
        """

    def close(self) -> None:
        """Cancel what is under way, close the function, end. Does nothing the second time.

        Raises:
            Exception: what the function's `close` raised.
        """


class LoopThread:
    """An event loop in a thread of its own. See `Loop`."""

    def __init__(self, name: str, step: AsyncStep, wake: Callable[[], None]) -> None:
        """
        Args:
            name: of the step.
            wake: called by the loop's thread when there are answers.
        """
        self._name = name
        self._wake = wake
        self.requests = Requests(step, self._answered)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"weir-async-{name}", daemon=True)
        self._asked: deque[tuple[Any, Any, bytes] | None] = deque()
        """What the loop is to be told; `None` = flush."""
        self._telling = False
        """The loop will look into `_asked`."""
        self._answers: deque[RequestResult] = deque()
        self._woken = False
        """The task thread will look into `_answers`."""
        self._over = False
        self._broken: BaseException | None = None
        """See `answers`."""

    def open(self) -> None:
        self._thread.start()
        _raise(self._in_loop(self.requests.open()).result())

    def ask(self, token: Any, value: Any, encoded: bytes) -> None:
        self._tell((token, value, encoded))

    def flush(self) -> None:
        self._tell(None)

    def answers(self) -> deque[RequestResult]:
        if self._broken is not None:
            raise RuntimeError(
                f"a task that the function of step {self._name!r} began beside its requests has raised "
                f"{type(self._broken).__name__}"
            ) from self._broken
        self._woken = False
        return self._answers

    def close(self) -> None:
        if self._over:
            return
        self._over = True
        if not self._thread.is_alive():
            self._loop.close()
            return
        try:
            _raise(self._in_loop(self.requests.close()).result(_CLOSE_SECONDS))
        except NotDone as error:
            raise TimeoutError(
                f"the event loop of step {self._name!r} did not end within {_CLOSE_SECONDS:g} s: its function blocks "
                "the loop (await what takes time), or ignores that its requests were cancelled"
            ) from error
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)

    def _in_loop(self, coroutine: Coroutine[Any, Any, None]) -> Future[BaseException | None]:
        return asyncio.run_coroutine_threadsafe(_raised(coroutine), self._loop)

    def _tell(self, what: tuple[Any, Any, bytes] | None) -> None:
        self._asked.append(what)
        if not self._telling:
            self._telling = True
            self._loop.call_soon_threadsafe(self._look)

    # -- in the loop's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._go_on()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _go_on(self) -> None:
        """Until it is stopped, also after what would end the loop: requests are cancelled in it, and the function is
        closed."""
        while True:
            try:
                self._loop.run_forever()
                return
            except BaseException as error:
                self._broken = error
                self._wake()

    def _look(self) -> None:
        self._telling = False
        requests, asked = self.requests, self._asked
        while asked:
            one = asked.popleft()
            if one is None:
                requests.flush()
            else:
                requests.add(*one)

    def _answered(self, answer: RequestResult) -> None:
        self._answers.append(answer)
        if not self._woken:
            self._woken = True
            self._wake()


async def _raised(coroutine: Coroutine[Any, Any, None]) -> BaseException | None:
    """What it raises. A `SystemExit` that left it would leave the loop, too, and whoever waits would wait for ever."""
    try:
        await coroutine
    except BaseException as error:
        return error
    return None


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error
