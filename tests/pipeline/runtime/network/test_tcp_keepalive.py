"""A peer that is gone without a word."""

from __future__ import annotations

import errno
import select
import socket
import sys
from collections.abc import Iterator

import pytest
from deadlines import PATIENCE

from pipeline.runtime.network.tcp_keepalive import GONE_AFTER, fail_when_peer_is_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="TCP_USER_TIMEOUT is Linux's")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        other, _ = listener.accept()
        with other:
            yield one, other


def test_a_peer_that_takes_nothing_for_so_long_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    sock, _ = pair
    fail_when_peer_is_gone(sock, 0.5)
    sock.settimeout(PATIENCE)
    with pytest.raises(OSError, match="timed out") as raised:  # the kernel's, not Python's, which has no number
        sock.sendall(bytes(100 << 20))
    assert raised.value.errno == errno.ETIMEDOUT


def test_an_idle_peer_that_is_there_is_no_error(pair: tuple[socket.socket, socket.socket]) -> None:
    sock, peer = pair
    fail_when_peer_is_gone(sock, 0.05)
    # Longer than a silent peer gets.
    assert select.select([sock], [], [], 1.0)[0] == []
    peer.sendall(b"x")
    assert sock.recv(1) == b"x"


def test_an_idle_peer_is_asked_for_in_time(pair: tuple[socket.socket, socket.socket]) -> None:
    sock, _ = pair
    fail_when_peer_is_gone(sock)
    option = {name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}")) for name in NAMES}
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert option["KEEPIDLE"] + option["KEEPINTVL"] * option["KEEPCNT"] == GONE_AFTER
    assert option["USER_TIMEOUT"] == 1000 * GONE_AFTER


NAMES = ("KEEPIDLE", "KEEPINTVL", "KEEPCNT", "USER_TIMEOUT")
