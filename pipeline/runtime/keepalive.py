"""Keeps control connections alive: signs of life on them, in a thread that nothing else holds up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from pipeline.runtime.system import SYSTEM, System
from pipeline.runtime.wire import ConnectionLost


class KeptAlive(Protocol):
    """One end of a connection whose other side waits for signs of life."""

    def send_sign_of_life(self) -> None:
        """
        Raises:
            ConnectionLost: the other side is gone.
        """


class KeepAlive:
    """Sends a sign of life on each connection once in a pace, from `start` to `stop`."""

    def __init__(self, connections: Callable[[], Iterable[KeptAlive]], pace: float, system: System = SYSTEM):
        """
        Args:
            connections: those there are; asked each time, in the thread that sends.
            pace: seconds between two signs.
        """
        self._connections = connections
        self._pace = pace
        self._stop = system.event()
        self._thread = system.thread(self._run, "weir-keepalive")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._pace):
            for connection in self._connections():
                try:
                    connection.send_sign_of_life()
                except ConnectionLost:
                    pass  # whoever reads from it learns of it, too
