"""The event loop's thread: opening, closing, and what a function does that it should not."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from deadlines import PATIENCE, eventually

from checkpoint.codec import encode
from pipeline import AsyncFunction
from pipeline.async_calls.loop import LoopThread
from pipeline.async_calls.options import async_step


def loop_of(function: Any, **options: Any) -> LoopThread:
    given = {
        "capacity": 100,
        "ordered": True,
        "timeout": None,
        "retries": 0,
        "backoff": 0 if options.get("retries") else None,
        "retry_on": None,
        "batch_size": None,
        "batch_wait": 0 if options.get("batch_size") else None,
        **options,
    }
    return LoopThread("ask", async_step(function, **given), lambda: None)


def answers(loop: LoopThread, values: list[Any]) -> list[Any]:
    """The results in the order in which they came; an error as its class."""
    for value in values:
        loop.ask(value, value, encode(value))
    found: list[Any] = []

    def all_there() -> bool:
        came = loop.answers()
        while came:
            answer = came.popleft()
            found.append(answer.value if answer.error is None else type(answer.error))
        return len(found) == len(values)

    eventually(all_there)
    return found


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "weir-async-ask"]


async def twice(value: int) -> int:
    return 2 * value


def test_it_asks_and_ends() -> None:
    loop = loop_of(twice)
    loop.open()
    assert answers(loop, [1, 2, 3]) == [2, 4, 6]
    loop.close()
    loop.close()
    assert threads() == []


def test_one_that_was_never_opened_is_closed() -> None:
    loop_of(twice).close()


def test_closing_cancels_requests_and_what_the_function_began_beside_them() -> None:
    cancelled: list[str] = []

    async def long(name: str) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    class Function(AsyncFunction):
        async def open(self) -> None:
            self.beside = asyncio.create_task(long("beside"))

        async def __call__(self, value: str) -> None:
            asked.set()
            await long(value)

        async def close(self) -> None:
            assert cancelled == ["request"]

    asked = threading.Event()
    loop = loop_of(Function())
    loop.open()
    loop.ask(1, "request", encode("request"))
    assert asked.wait(PATIENCE)
    loop.close()
    assert cancelled == ["request", "beside"]
    assert threads() == []


def test_what_open_and_close_raise_comes_to_the_caller_and_leaves_no_thread() -> None:
    class Function(AsyncFunction):
        async def open(self) -> None:
            raise OSError("no session")

        async def close(self) -> None:
            raise OSError("not closed")

    loop = loop_of(Function())
    with pytest.raises(OSError, match="no session"):
        loop.open()
    with pytest.raises(OSError, match="not closed"):
        loop.close()
    eventually(lambda: threads() == [])


def exits(value: int) -> None:
    sys.exit(value)


def cancels(value: int) -> None:
    raise asyncio.CancelledError


def fails(value: int) -> None:
    raise LookupError(value)


@pytest.mark.parametrize(
    ("does", "error"), [(exits, SystemExit), (cancels, asyncio.CancelledError), (fails, LookupError)]
)
def test_whatever_a_request_raises_is_its_answer(does: Callable[[int], None], error: type[BaseException]) -> None:
    async def odd_ones(value: int) -> int:
        if value % 2:
            does(value)
        return value

    loop = loop_of(odd_ones)
    loop.open()
    assert answers(loop, [0, 1, 2]) == [0, error, 2]
    assert answers(loop, [4]) == [4]
    loop.close()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_ends_a_process_comes_out_of_open_and_close_as_anything_else(error: BaseException) -> None:
    class Function(AsyncFunction):
        async def open(self) -> None:
            raise error

        async def close(self) -> None:
            raise error

    loop = loop_of(Function())
    for call in (loop.open, loop.close):
        with pytest.raises(type(error)):
            call()
    eventually(lambda: threads() == [])


def test_a_task_beside_the_requests_that_exits_is_told_and_the_loop_can_be_closed() -> None:
    closed = threading.Event()

    async def leaves() -> None:
        sys.exit(3)

    class Function(AsyncFunction):
        async def __call__(self, value: int) -> int:
            beside = asyncio.create_task(leaves())
            await asyncio.wait([beside])
            await asyncio.sleep(3600)
            return value

        async def close(self) -> None:
            closed.set()

    woken = threading.Event()
    loop = loop_of(Function())
    loop._wake = woken.set
    loop.open()
    loop.ask(1, 1, encode(1))
    assert woken.wait(PATIENCE)
    with pytest.raises(RuntimeError, match="of step 'ask' began beside its requests has raised SystemExit") as caught:
        loop.answers()
    assert isinstance(caught.value.__cause__, SystemExit)
    loop.close()
    assert closed.is_set()
    assert threads() == []
