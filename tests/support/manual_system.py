"""The runtime's `System` with a clock that stands still and executors that work when they are told to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from pipeline.runtime.system import System


class ManualExecutor:
    def __init__(self) -> None:
        self._work: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._work.append((future, lambda: function(*args)))
        return future

    def run(self, number: int | None = None) -> None:
        """Do the next pieces of work, or all."""
        while self._work and number != 0:
            number = None if number is None else number - 1
            future, work = self._work.popleft()
            future.set_result(work())

    def run_last(self) -> None:
        """Do what came last, as another thread of a pool might."""
        self._work.rotate(1)
        self.run(1)

    def __len__(self) -> int:
        """Pieces of work that wait."""
        return len(self._work)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            while self._work:
                self._work.popleft()[0].cancel()


class ManualSystem(System):
    def __init__(self) -> None:
        self.now = 1000.0
        """What the monotonic clock shows; the other one is a billion seconds ahead."""
        self.executors: dict[str, ManualExecutor] = {}
        """By name."""

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 1e9

    def executor(self, workers: int, name: str) -> Any:
        return self.executors.setdefault(name, ManualExecutor())

    def wait(self, futures: Iterable[Future[Any]], timeout: float) -> set[Future[Any]]:
        self.now += timeout
        return {one for one in futures if not one.done()}
