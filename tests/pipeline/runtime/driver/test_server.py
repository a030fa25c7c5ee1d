"""The driver's server, over real connections: who is let in, what is told of them, and what they are told."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from wire_parts import wiretap

from pipeline.runtime import protocol
from pipeline.runtime.auth import AuthenticationError, authenticate_client
from pipeline.runtime.driver.attempt_events import AttemptEvent, Connected, Lost, Misunderstood, Received
from pipeline.runtime.driver.server import ControlServer
from pipeline.runtime.encryption import Encryption
from pipeline.runtime.liveness import LIMITS
from pipeline.runtime.message_connection import MessageConnection
from pipeline.runtime.network.tls_socket import Socket
from pipeline.runtime.protocol import TO_SUBTASK, Job
from pipeline.runtime.versions import versions
from pipeline.runtime.wire import ConnectionLost, ControlConnection

SECRET = b"sixteen bytes or more"
JOB = Job(versions=versions(), first_attempt=True, limits=LIMITS, spec=b"spec")


@pytest.fixture
def inbox() -> queue.SimpleQueue[AttemptEvent]:
    return queue.SimpleQueue()


@pytest.fixture
def server(inbox: queue.SimpleQueue[AttemptEvent]) -> Iterator[ControlServer]:
    server = ControlServer("127.0.0.1", SECRET, replace(LIMITS, pace=0.05), inbox.put)
    server.start(JOB)
    yield server
    server.close()


def control(server: ControlServer, secret: bytes = SECRET, name: str = "in partition 3") -> ControlConnection:
    """A subtask's end of a new connection."""
    sock = socket.create_connection(server.address)
    try:
        authenticate_client(sock, secret, name, PATIENCE)
    except AuthenticationError:
        sock.close()
        raise
    return ControlConnection(sock)


def test_who_knows_the_secret_is_told_the_job_and_heard(
    server: ControlServer, inbox: queue.SimpleQueue[AttemptEvent]
) -> None:
    end: MessageConnection[Any, Any] = MessageConnection(control(server), TO_SUBTASK)
    assert end.receive(PATIENCE) == JOB
    connected = inbox.get(timeout=PATIENCE)
    assert isinstance(connected, Connected)
    assert connected.name == "in partition 3"
    end.send(protocol.CheckpointAsked(7))
    assert inbox.get(timeout=PATIENCE) == Received(connected.connection, protocol.CheckpointAsked(7))
    connected.connection.send(protocol.EndInput())
    assert end.receive(PATIENCE) == protocol.EndInput()
    end.close()
    lost = inbox.get(timeout=PATIENCE)
    assert isinstance(lost, Lost)
    assert lost.connection is connected.connection


def test_who_does_not_know_the_secret_is_no_news(server: ControlServer, inbox: queue.SimpleQueue[AttemptEvent]) -> None:
    with pytest.raises(AuthenticationError):
        control(server, b"another one of sixteen bytes")
    end = control(server, name="the next one")
    connected = inbox.get(timeout=PATIENCE)
    assert isinstance(connected, Connected)
    assert connected.name == "the next one"
    end.close()


@pytest.mark.parametrize("encrypts", [True, False])
def test_what_is_said_can_be_read_on_the_way_unless_it_is_encrypted(
    inbox: queue.SimpleQueue[AttemptEvent], encrypts: bool
) -> None:
    encryption = Encryption(SECRET) if encrypts else None
    server = ControlServer("127.0.0.1", SECRET, replace(LIMITS, pace=0.05), inbox.put, encryption)
    server.start(replace(JOB, spec=b"a password" * 100_000))
    with wiretap(server.address) as tap:
        sock: Socket = socket.create_connection(tap.address)
        if encryption is not None:
            assert isinstance(sock, socket.socket)
            sock = encryption.client(sock)
        authenticate_client(sock, SECRET, "in partition 3", PATIENCE)
        end: MessageConnection[Any, Any] = MessageConnection(ControlConnection(sock), TO_SUBTASK)
        job = end.receive(PATIENCE)
        assert isinstance(job, Job)
        assert job.spec == b"a password" * 100_000
        before = end.heard_at
        eventually(lambda: end.receive(0.01) is None and end.heard_at > before)
        assert isinstance(inbox.get(timeout=PATIENCE), Connected)
        for number in range(200):
            end.send(protocol.CheckpointAsked(number))
        asked = [inbox.get(timeout=PATIENCE) for _ in range(200)]
        assert [one.message for one in asked if isinstance(one, Received)] == [
            protocol.CheckpointAsked(number) for number in range(200)
        ]
        assert (b"a password" in tap.seen, b"in partition 3" in tap.seen) == (not encrypts, not encrypts)
        end.close()
        assert isinstance(inbox.get(timeout=PATIENCE), Lost)
    server.close()


def test_signs_of_life_come_without_anything_being_said(server: ControlServer) -> None:
    end = control(server)
    assert end.receive(PATIENCE) is not None  # the job
    before = end.heard_at
    eventually(lambda: end.receive(0.01) is None and end.heard_at > before)
    end.close()


def test_who_says_what_nobody_understands_is_let_go(
    server: ControlServer, inbox: queue.SimpleQueue[AttemptEvent]
) -> None:
    end = control(server)
    assert end.receive(PATIENCE) is not None  # the job
    end.send("of_a_later_version")
    connected, misunderstood = inbox.get(timeout=PATIENCE), inbox.get(timeout=PATIENCE)
    assert isinstance(connected, Connected)
    assert isinstance(misunderstood, Misunderstood)
    assert misunderstood.connection is connected.connection
    assert "of_a_later_version" in misunderstood.error
    with pytest.raises(ConnectionLost):
        end.receive(PATIENCE)
    end.close()


def test_once_it_listens_no_more_those_there_are_stay(
    server: ControlServer, inbox: queue.SimpleQueue[AttemptEvent]
) -> None:
    end: MessageConnection[Any, Any] = MessageConnection(control(server), TO_SUBTASK)
    assert isinstance(inbox.get(timeout=PATIENCE), Connected)
    address = server.address
    server.stop_listening()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    end.send(protocol.CheckpointAsked(1))
    assert isinstance(inbox.get(timeout=PATIENCE), Received)
    server.close()
    assert end.receive(PATIENCE) == JOB
    with pytest.raises(ConnectionLost):
        end.receive(PATIENCE)
    end.close()
