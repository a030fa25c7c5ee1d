"""What the parts of one process wait for: brokers that are down, a registry, storage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Waiting:
    """What is waited for, since when. Thread-safe.

    Whoever begins to wait says so and says when it is over. The driver shows it in `weir status` and in
    `handle.metrics()["waits"]`, and logs when it begins and when it ends.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}

    def begin(self, what: str, since: float | None = None) -> None:
        """Changes nothing if that is being waited for already.

        Args:
            what: reads on from "waits for", and names whose wait it is: "the brokers at host:9092 (source 'in')". The
                same words from several subtasks are one wait.
            since: in seconds of the clock (`time.monotonic`); `None` = now.
        """
        with self._lock:
            self._since.setdefault(what, self._clock() if since is None else since)

    def end(self, what: str) -> None:
        """Fine if that was not waited for."""
        with self._lock:
            self._since.pop(what, None)

    def __bool__(self) -> bool:
        """Whether anything is waited for. Cheap."""
        return bool(self._since)

    def report(self) -> list[tuple[str, float]]:
        """What is waited for, and for how many seconds."""
        with self._lock:
            now = self._clock()
            return [(what, max(0.0, now - since)) for what, since in self._since.items()]
