"""What the parts of one process wait for: brokers that are down, a registry, storage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum


class WaitKind(StrEnum):
    """What kind of thing is waited for. Metrics have it as a label, and a diagnosis says by it what to do."""

    BROKERS = "brokers"
    """Kafka brokers that don't answer."""
    CREDENTIALS = "credentials"
    """Brokers that refuse the user, the password or the certificate."""
    SLOTS = "slots"
    PROCESSES = "processes"
    """That Spark has not brought up."""
    SUBTASK = "subtask"
    """One that takes long, as in an `open`."""
    EVENT_TIME = "event_time"
    REQUESTS = "requests"
    """Of `map_async`."""
    RATE = "rate"
    """That `limit_rate` allows."""
    OTHER = "other"


class Waiting:
    """What is waited for, since when. Thread-safe.

    Whoever begins to wait says so and says when it is over. The driver shows it in `weir status` and in
    `handle.metrics()["waits"]`, and logs when it begins and when it ends.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[str, tuple[float, WaitKind]] = {}

    def begin(self, what: str, since: float | None = None, kind: WaitKind = WaitKind.OTHER) -> None:
        """Changes nothing if that is being waited for already.

        Args:
            what: reads on from "waits for", and names whose wait it is: "the brokers at host:9092 (source 'in')". The
                same words from several subtasks are one wait.
            since: in seconds of the clock (`time.monotonic`); `None` = now.
        """
        with self._lock:
            self._since.setdefault(what, (self._clock() if since is None else since, kind))

    def end(self, what: str) -> None:
        """Fine if that was not waited for."""
        with self._lock:
            self._since.pop(what, None)

    def __bool__(self) -> bool:
        """Whether anything is waited for. Cheap."""
        return bool(self._since)

    def report(self) -> list[tuple[str, float, str]]:
        """What is waited for, for how many seconds, and the kind of it, in the form of messages to the driver."""
        with self._lock:
            now = self._clock()
            return [(what, max(0.0, now - since), kind.value) for what, (since, kind) in self._since.items()]
