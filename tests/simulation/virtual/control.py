"""Virtual connections between a driver and its subtasks, and the server that they begin at."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from typing import Any

from checkpoint.codec import decode, encode
from pipeline.runtime import protocol
from pipeline.runtime.driver.attempt_events import Connected, Lost, Received
from pipeline.runtime.message_connection import from_wire, to_wire
from pipeline.runtime.wire import ConnectionLost
from virtual.scheduler import Process, Scheduler
from virtual.system import Queue

_LEAST_WAIT = 1.0
"""Seconds that a wait for a message takes at least if none comes; it is the pace at which a subtask's record loop looks
at the clock in any case."""


class ControlEnd:
    """One end of a connection. What is sent arrives in order, after a while; or some of it gets lost."""

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        name: str,
        receives: protocol.Direction[Any],
        lost: Callable[[Any], bool],
    ) -> None:
        """
        Args:
            process: whose end it is.
            lost: whether a message that is sent here gets lost.
        """
        self.heard_at = scheduler.now
        self.local_host = "127.0.0.1"
        self.other: ControlEnd
        self.on_message: Callable[[Any], None] | None = None
        """Takes messages as they come, in the driver."""
        self.on_lost: Callable[[str], None] = lambda reason: None
        self._process = process
        self._scheduler = scheduler
        self._name = name
        self._receives = receives
        self._lost = lost
        self._arrived = Queue(scheduler)
        self._travelling: deque[bytes | None] = deque()
        self._closed = False
        self._gone = False
        process.at_end.append(self.close)

    def send(self, message: Any) -> None:
        if self._closed or self._gone:
            raise ConnectionLost(f"sending {type(message).__name__} failed: the other side is gone")
        if self._lost(message):
            self._scheduler.log("lost", self._name, type(message).__name__)
        else:
            self._travel(encode(to_wire(message)))

    def send_sign_of_life(self) -> None:
        self.other.heard_at = self._scheduler.now

    def receive(self, timeout: float | None = None) -> Any:
        if self._gone:
            raise ConnectionLost("the connection was closed")
        try:
            body = self._arrived.get(timeout=None if timeout is None else max(timeout, _LEAST_WAIT))
        except queue.Empty:
            return None
        if body is None:
            self._gone = True
            raise ConnectionLost("the connection was closed")
        return from_wire(decode(body), self._receives)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._travel(None)

    def _travel(self, body: bytes | None) -> None:
        self._travelling.append(body)
        if len(self._travelling) == 1:
            self._schedule()

    def _schedule(self) -> None:
        pace = self._scheduler.pace_of(self._name)
        self._scheduler.after(2.0 * pace * self._scheduler.rng.random(), self._arrive)

    def _arrive(self) -> None:
        body = self._travelling.popleft()
        if self._travelling:
            self._schedule()
        self.other._take(body)

    def _take(self, body: bytes | None) -> None:
        if self._closed or not self._process.alive:
            return
        self.heard_at = self._scheduler.now
        if self.on_message is None:
            self._arrived.put(body)
        elif body is None:
            self._gone = True
            self.on_lost("the connection was closed")
        else:
            self.on_message(from_wire(decode(body), self._receives))


class ControlServer:
    """Where subtasks connect to (`pipeline.runtime.driver.attempt_services.Transport`)."""

    address = ("127.0.0.1", 1)

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        post: Callable[[Any], None],
        lost: Callable[[Any], bool],
        told: Callable[[Any], bool],
    ) -> None:
        """
        Args:
            lost: whether a message to a subtask gets lost.
            told: the same of one to the driver.
        """
        self._scheduler = scheduler
        self._process = process
        self._post = post
        self._lost = lost
        self._told = told
        self._listens = False
        self._ends: list[ControlEnd] = []
        self._job: Any = None

    def start(self, job: Any) -> None:
        self._job = job
        self._listens = True

    def connect(self, process: Process, partition: int) -> ControlEnd:
        """A subtask's process connects; its end, on which the job comes first.

        Raises:
            ConnectionLost: nobody listens.
        """
        if not self._listens or not self._process.alive:
            raise ConnectionLost("nobody listens")
        here = ControlEnd(self._scheduler, self._process, f"mail {process.name}", protocol.TO_DRIVER, self._lost)
        there = ControlEnd(self._scheduler, process, f"report {process.name}", protocol.TO_SUBTASK, self._told)
        here.other, there.other = there, here
        here.on_message = lambda message: self._post(Received(here, message))
        here.on_lost = lambda reason: self._post(Lost(here, reason))
        self._ends.append(here)
        here.send(self._job)
        self._post(Connected(here, f"in partition {partition}"))
        return there

    def stop_listening(self) -> None:
        self._listens = False

    def close(self) -> None:
        self._listens = False
        for end in self._ends:
            end.close()
