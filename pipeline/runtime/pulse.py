"""The pulse: signs of life on control connections, in a thread that nothing else holds up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from pipeline.runtime.wire import ConnectionLost, ControlConnection


class Pulse:
    """Sends a sign of life on each connection once in a pace, from `start` to `stop`."""

    def __init__(self, connections: Callable[[], Iterable[ControlConnection]], pace: float):
        """
        Args:
            connections: those there are; asked each time, in the pulse's thread.
            pace: seconds between two signs.
        """
        self._connections = connections
        self._pace = pace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weir-pulse", daemon=True)

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
