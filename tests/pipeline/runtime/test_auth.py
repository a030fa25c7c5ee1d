"""Both sides show that they know the job's secret before anything else is read."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.runtime.auth import (
    AuthenticationError,
    ClientHandshake,
    ServerHandshake,
    authenticate_client,
    authenticate_server,
    new_secret,
)

SECRET = new_secret()


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_both_sides_of_a_job_accept_each_other_and_nothing_more_is_read(pair):
    client, server = pair
    server.settimeout(3.0)
    with ThreadPoolExecutor(1) as pool:
        role = pool.submit(authenticate_server, server, SECRET, 10)
        authenticate_client(client, SECRET, "control 3", 10)
        client.sendall(b"first message")
        assert role.result() == "control 3"
    assert server.recv(100) == b"first message"
    assert server.gettimeout() == 3.0


def handshake(client, server):
    """Run both sides against each other."""
    to_server, to_client = client.begin(), server.begin()
    while to_server or to_client:
        to_client, to_server = (
            (server.receive(to_server) if to_server else b""),
            (client.receive(to_client) if to_client else b""),
        )


def test_a_client_refuses_a_server_with_another_secret():
    with pytest.raises(AuthenticationError, match="another job"):
        handshake(ClientHandshake(SECRET, "data 1"), ServerHandshake(new_secret()))


def test_a_server_refuses_a_client_that_proves_nothing():
    server = ServerHandshake(SECRET)
    server.receive(ClientHandshake(SECRET, "data 1").begin())
    with pytest.raises(AuthenticationError, match="doesn't know"):
        server.receive(bytes(32))
    assert server.role == ""


def test_the_servers_own_proof_sent_back_proves_nothing():
    server = ServerHandshake(SECRET)
    answer = server.receive(ClientHandshake(SECRET, "data 1").begin())
    with pytest.raises(AuthenticationError):
        server.receive(answer[32:])


def test_a_recorded_conversation_can_not_be_replayed():
    client, server = ClientHandshake(SECRET, "data 1"), ServerHandshake(SECRET)
    hello = client.begin()
    proof = client.receive(server.receive(hello))
    another = ServerHandshake(SECRET)
    another.receive(hello)
    with pytest.raises(AuthenticationError):
        another.receive(proof)


def test_a_role_can_not_be_changed_on_the_way():
    client, server = ClientHandshake(SECRET, "data 1"), ServerHandshake(SECRET)
    answer = server.receive(client.begin().replace(b"data 1", b"data 2"))
    with pytest.raises(AuthenticationError):
        client.receive(answer)


def test_another_protocol_is_noticed_at_its_first_byte():
    with pytest.raises(AuthenticationError, match="another protocol"):
        ServerHandshake(SECRET).receive(b"GET / HTTP/1.1")


def test_messages_may_arrive_byte_by_byte():
    client, server = ClientHandshake(SECRET, "data 1"), ServerHandshake(SECRET)

    def deliver(data, side):
        return b"".join(side.receive(data[i : i + 1]) for i in range(len(data)))

    assert deliver(deliver(deliver(client.begin(), server), client), server)
    assert server.role == "data 1"
    assert server.wanted == 0


def test_a_peer_that_trickles_is_dropped_at_the_deadline_of_the_whole_handshake(pair):
    slow, server = pair
    stop = threading.Event()
    hello = ClientHandshake(SECRET, "data 1").begin()

    def trickle():
        for byte in hello[:60]:
            if stop.wait(0.02):
                return
            slow.sendall(bytes([byte]))

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        with pytest.raises(AuthenticationError, match=r"within 0\.2 s"):
            authenticate_server(server, SECRET, 0.2)
    finally:
        stop.set()
        thread.join()


def test_a_peer_that_hangs_up_is_an_authentication_error(pair):
    client, server = pair
    client.close()
    with pytest.raises(AuthenticationError):
        authenticate_server(server, SECRET, 10)


def test_a_secret_that_can_be_guessed_is_refused():
    with pytest.raises(ValueError, match="at least 16 bytes"):
        ClientHandshake(b"", "data 1")


@pytest.mark.parametrize("role", ["", "x" * 33, "a\0b"])
def test_a_role_that_does_not_fit_is_refused(role):
    with pytest.raises(ValueError, match="role"):
        ClientHandshake(SECRET, role)
