"""The subtasks of an attempt as the driver sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline.plan import Plan
from pipeline.runtime.driver.attempt_events import ProcessConnection
from pipeline.runtime.driver.start.placement import Slot
from pipeline.runtime.protocol import ToSubtask
from pipeline.runtime.wire import ConnectionLost


@dataclass(kw_only=True)
class Peer:
    """One subtask's process."""

    connection: ProcessConnection
    partition: int
    host: str
    pid: int
    address: tuple[str, int]
    """Where its peers reach it."""
    slot: Slot
    """What it found of local copies."""
    subtask: int = -1
    """Global number, once it is deployed."""
    running: bool = False
    waits: bool = False
    """For what lies outside of the job, by its last report."""
    ended: bool = False
    """All its input has ended."""
    quiet: bool = False
    """It processes nothing more, since the job has ended."""
    closed: bool = False
    """It has said its last word."""
    gone: bool = False
    """Its connection is closed, since its process has left the subtask or died."""


class Peers:
    """Finds subtasks and sends to them. Used by the attempt's thread only."""

    def __init__(self, plan: Plan, on_lost: Callable[[ProcessConnection, str], None]):
        """`on_lost`: sending to a connection failed, with the reason."""
        self._plan = plan
        self._on_lost = on_lost
        self._by_connection: dict[ProcessConnection, Peer] = {}
        self._by_subtask: dict[int, Peer] = {}

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._by_connection.values())

    def __len__(self) -> int:
        return len(self._by_connection)

    def add(self, peer: Peer) -> None:
        self._by_connection[peer.connection] = peer

    def get(self, connection: ProcessConnection) -> Peer | None:
        return self._by_connection.get(connection)

    def place(self, peer: Peer, subtask: int) -> None:
        """From now on the peer is this subtask."""
        peer.subtask = subtask
        self._by_subtask[subtask] = peer

    def name(self, peer: Peer) -> str:
        return self._plan.subtask_name(peer.subtask) if peer.subtask >= 0 else f"in partition {peer.partition}"

    def send_to(self, subtask: int, message: ToSubtask) -> None:
        self.send(self._by_subtask[subtask], message)

    def send(self, peer: Peer, message: ToSubtask) -> None:
        if peer.closed:
            return
        try:
            peer.connection.send(message)
        except ConnectionLost as error:
            self._on_lost(peer.connection, str(error))

    def send_to_sources(self, message: ToSubtask) -> None:
        for vertex in self._plan.vertices:
            if vertex.is_source:
                for subtask in vertex.subtasks:
                    self.send_to(subtask, message)

    def broadcast(self, message: ToSubtask) -> None:
        for peer in self:
            self.send(peer, message)
