"""The subtasks of an attempt are found by connection and by number, and are sent to as long as they listen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pipeline.runtime.driver.peers import Peer, Peers
from pipeline.runtime.protocol import Aborted
from pipeline.runtime.wire import ConnectionLost


class Connection:
    def __init__(self, lost: bool = False) -> None:
        self._lost = lost
        self.got: list[Any] = []

    def send(self, message: Any) -> None:
        if self._lost:
            raise ConnectionLost("broken pipe")
        self.got.append(message)


class Attempt:
    """Subtasks 0 and 1 read a source, 2 is behind them."""

    def __init__(self, *lost: int) -> None:
        self.lost: list[tuple[Any, str]] = []
        plan: Any = SimpleNamespace(
            subtask_name=lambda subtask: f"subtask {subtask}",
            vertices=[
                SimpleNamespace(is_source=True, subtasks=range(2)),
                SimpleNamespace(is_source=False, subtasks=range(2, 3)),
            ],
        )
        self.peers = Peers(plan, lambda connection, reason: self.lost.append((connection, reason)))
        self.connections = [Connection(lost=number in lost) for number in range(3)]
        self.all = [self._peer(partition) for partition in range(3)]

    def _peer(self, partition: int) -> Peer:
        connection: Any = self.connections[partition]
        slot: Any = None
        peer = Peer(connection=connection, partition=partition, host="h", pid=1, address=("h", 1), slot=slot)
        self.peers.add(peer)
        return peer

    def place(self) -> None:
        """The partitions' numbers are those of the subtasks, backwards."""
        for peer in self.all:
            self.peers.place(peer, 2 - peer.partition)

    def got(self) -> list[int]:
        """Messages by partition."""
        return [len(one.got) for one in self.connections]


MESSAGE = Aborted(7)


def test_a_process_has_the_name_of_its_partition_until_it_is_a_subtask() -> None:
    attempt = Attempt()
    assert [attempt.peers.name(peer) for peer in attempt.peers] == [f"in partition {i}" for i in range(3)]
    attempt.place()
    assert [attempt.peers.name(peer) for peer in attempt.all] == ["subtask 2", "subtask 1", "subtask 0"]
    assert len(attempt.peers) == 3
    connection: Any = attempt.connections[1]
    stranger: Any = Connection()
    assert attempt.peers.get(connection) is attempt.all[1]
    assert attempt.peers.get(stranger) is None


def test_messages_go_to_one_to_sources_or_to_all() -> None:
    attempt = Attempt()
    attempt.place()
    attempt.peers.send_to(2, MESSAGE)
    assert attempt.got() == [1, 0, 0]
    attempt.peers.send_to_sources(MESSAGE)
    assert attempt.got() == [1, 1, 1]
    attempt.peers.broadcast(MESSAGE)
    assert attempt.got() == [2, 2, 2]
    assert attempt.connections[0].got == [MESSAGE, MESSAGE]


def test_whoever_has_said_its_last_word_is_told_nothing_and_who_is_lost_is_told_of() -> None:
    attempt = Attempt(1)
    attempt.place()
    attempt.all[0].closed = True
    attempt.peers.broadcast(MESSAGE)
    assert attempt.got() == [0, 0, 1]
    assert attempt.lost == [(attempt.connections[1], "broken pipe")]
