"""A thread that looks around for a reader, whose task thread must not wait."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Lookout(ABC, Generic[T]):
    """Hands over what `_watch` finds. The thread begins with `_begin`, and ends with the process at the latest."""

    def __init__(self, name: str, interval: float) -> None:
        """
        Args:
            name: of the thread.
            interval: seconds between two looks.
        """
        self._interval = interval
        self._found: queue.SimpleQueue[Sequence[T]] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def found(self) -> list[T]:
        """What was found since the last call; never waits.

        Raises:
            Exception: what ended the thread.
        """
        if self._failure is not None:
            raise self._failure
        found: list[T] = []
        while not self._found.empty():
            found += self._found.get_nowait()
        return found

    def stop(self) -> None:
        """Ask the thread to end; what it is waiting for holds nobody up."""
        self._stop.set()

    def _begin(self) -> None:
        self._thread.start()

    def _await_next(self) -> bool:
        """In the thread: wait for the next look; false if there is to be none."""
        return not self._stop.wait(self._interval)

    @abstractmethod
    def _watch(self) -> None:
        """In the thread: put what is there into `_found`, again and again. What it raises `found` raises."""

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            self._failure = error
