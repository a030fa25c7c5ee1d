"""Signs of life come once in a pace, on each connection that there is."""

from __future__ import annotations

import threading
from typing import Any

from pipeline.runtime.keepalive import KeepAlive
from pipeline.runtime.system import System
from pipeline.runtime.wire import ConnectionLost


class Stop(threading.Event):
    """Lets so many paces pass."""

    def __init__(self, paces: int) -> None:
        super().__init__()
        self.paces = paces
        self.waited: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        self.paces -= 1
        return self.is_set() or self.paces < 0


class OneThread(System):
    """Runs a thread's work when it is started."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def event(self) -> threading.Event:
        return self._stop

    def thread(self, target: Any, name: str) -> Any:
        class Now:
            def start(self) -> None:
                target()

        return Now()


class Connection:
    def __init__(self, lost: bool = False) -> None:
        self._lost = lost
        self.signs = 0

    def send_sign_of_life(self) -> None:
        self.signs += 1
        if self._lost:
            raise ConnectionLost("gone")


def test_each_connection_gets_a_sign_in_each_pace_though_another_is_lost() -> None:
    stop, connections = Stop(3), [Connection(lost=True), Connection()]
    KeepAlive(lambda: connections, 0.5, OneThread(stop)).start()
    assert [one.signs for one in connections] == [3, 3]
    assert stop.waited == [0.5] * 4


def test_after_it_was_stopped_no_sign_comes() -> None:
    stop, connection = Stop(3), Connection()
    alive = KeepAlive(lambda: [connection], 0.5, OneThread(stop))
    alive.stop()
    alive.start()
    assert connection.signs == 0
