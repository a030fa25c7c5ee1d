"""What is between two processes: a connection of two encrypted ends, and somebody who listens in."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from pipeline.runtime.encryption import Encryption
from pipeline.runtime.network.tls_socket import TlsSocket


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection; the one that has connected is the first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    return one, other


def encrypted_pair(secret: bytes) -> tuple[TlsSocket, TlsSocket]:
    """The same, not blocking and with its handshake over."""
    encryption = Encryption(secret)
    one, other = connected_pair()
    client, server = encryption.client(one), encryption.server(other)
    for end in (client, server):
        end.setblocking(False)
    while sum([client.advance_handshake(), server.advance_handshake()]):
        pass
    return client, server


class Wiretap:
    """Hands on to an address what comes, both ways, and keeps it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._seen = bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    @property
    def seen(self) -> bytes:
        with self._lock:
            return bytes(self._seen)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                one, _ = self._listener.accept()
                other = socket.create_connection(self._target)
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=self._hand_on, args=pair, daemon=True).start()

    def _hand_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):  # an end is gone, and so is the other one then
            while data := one.recv(1 << 16):
                with self._lock:
                    self._seen += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def wiretap(target: tuple[str, int]) -> Iterator[Wiretap]:
    tap = Wiretap(target)
    try:
        yield tap
    finally:
        tap.close()
