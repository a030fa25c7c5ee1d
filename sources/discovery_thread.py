"""A thread that looks for new splits, so that a reader's task thread doesn't wait for slow metadata or listings."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class DiscoveryThread(ABC, Generic[T]):
    """Hands over what `_discover` finds. A subclass starts the thread by `_begin`. It is a daemon: it ends with the
    process at the latest."""

    def __init__(self, name: str, interval: float) -> None:
        """
        Args:
            name: the thread's name.
            interval: seconds between two looks.
        """
        self._interval = interval
        self._found: queue.SimpleQueue[Sequence[T]] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def found(self) -> list[T]:
        """What was found since the last call. Never waits.

        Raises:
            Exception: the error that ended the thread.
        """
        if self._failure is not None:
            raise self._failure
        found: list[T] = []
        while not self._found.empty():
            found += self._found.get_nowait()
        return found

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._stop.set()

    def _begin(self) -> None:
        self._thread.start()

    def _await_next(self) -> bool:
        """In the thread: wait for the next look. Returns False if the thread is to end."""
        return not self._stop.wait(self._interval)

    @abstractmethod
    def _discover(self) -> None:
        """In the thread: look again and again, and put what is new into `_found`. `found` raises what this raises."""

    def _run(self) -> None:
        try:
            self._discover()
        except Exception as error:
            self._failure = error
