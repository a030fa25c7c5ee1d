"""The subtasks of an attempt as the driver sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.graph import Plan
from pipeline.runtime.driver.placement import Slot
from pipeline.runtime.wire import ConnectionLost, ControlConnection


@dataclass
class Peer:
    """One subtask's process."""

    connection: ControlConnection
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

    def __init__(self, plan: Plan, on_lost: Callable[[ControlConnection, str], None]):
        """`on_lost`: sending to a connection failed, with the reason."""
        self._plan = plan
        self._on_lost = on_lost
        self._by_connection: dict[ControlConnection, Peer] = {}
        self._by_subtask: dict[int, Peer] = {}

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._by_connection.values())

    def __len__(self) -> int:
        return len(self._by_connection)

    def add(self, peer: Peer) -> None:
        self._by_connection[peer.connection] = peer

    def get(self, connection: ControlConnection) -> Peer | None:
        return self._by_connection.get(connection)

    def place(self, peer: Peer, subtask: int) -> None:
        """From now on the peer is this subtask."""
        peer.subtask = subtask
        self._by_subtask[subtask] = peer

    def name(self, peer: Peer) -> str:
        return self._plan.subtask_name(peer.subtask) if peer.subtask >= 0 else f"in partition {peer.partition}"

    def send_to(self, subtask: int, type: str, **fields: Any) -> None:
        self.send(self._by_subtask[subtask], type, **fields)

    def send(self, peer: Peer, type: str, **fields: Any) -> None:
        if peer.closed:
            return
        try:
            peer.connection.send(type, **fields)
        except ConnectionLost as error:
            self._on_lost(peer.connection, str(error))

    def broadcast(self, type: str, **fields: Any) -> None:
        for peer in self:
            self.send(peer, type, **fields)
