"""A TLS connection with the methods of a socket that Weir uses.

Two things differ from `ssl.SSLSocket`. What would block raises `BlockingIOError`, as a plain socket does. And the end
of the stream is that of TCP, in one direction at a time: the protocols inside know by themselves whether all has come.
"""

from __future__ import annotations

import select
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

RECORD_BYTES: Final = 1 << 14
"""The most that TLS encrypts in one piece."""


class TlsSocket:
    """One thread may send while another one receives, by `send` and `recv`; all other methods belong to one thread.

    OpenSSL never reads beyond one record. So nothing is left in it that a selector doesn't know of, as long as what is
    received into has room for a whole record.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_side: bool) -> None:
        """Takes over a connected socket, with its timeout.

        Raises:
            OSError: it isn't connected any more; it is closed then.
        """
        self._timeout = sock.gettimeout()
        sock.setblocking(False)
        self._tls = context.wrap_socket(sock, server_side, do_handshake_on_connect=False)
        self._lock = threading.Lock()
        """OpenSSL's state of a connection is for one thread at a time."""

    # -- as of a socket, unchanged --------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._tls.fileno()

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._tls.setsockopt(level, option, value)

    def getsockname(self) -> tuple[str, int]:
        host, port = self._tls.getsockname()[:2]
        return host, port

    def gettimeout(self) -> float | None:
        return self._timeout

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def setblocking(self, blocking: bool) -> None:
        self._timeout = None if blocking else 0.0

    def shutdown(self, how: int) -> None:
        # `SSLSocket.shutdown` would also forget the keys, and the other direction may still be used.
        socket.socket.shutdown(self._tls, how)

    def close(self) -> None:
        with self._lock:
            self._tls.close()

    # -- the handshake -----------------------------------------------------------------------------------------

    def advance_handshake(self) -> int:
        """Go on with the handshake of TLS, as far as that is possible without waiting. `send` and `recv` do so, too;
        this tells what it waits for.

        Returns:
            An event of `selectors`; 0 once the handshake is complete.

        Raises:
            ssl.SSLError: the peer speaks no TLS that fits, or has another certificate.
            OSError: the connection broke.
        """
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE
        return 0

    # -- with the timeout, if there is one ------------------------------------------------------------------------

    def send(self, data: Buffer) -> int:
        """What would have blocked must be tried again with the same bytes first, more may follow them."""
        return self._patiently(lambda: self._tls.send(data), self._timeout)

    def sendall(self, data: Buffer) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self.send(rest) :]

    def recv(self, most: int, flags: int = 0) -> bytes:
        """`flags`: `MSG_DONTWAIT` or none."""
        return self._patiently(lambda: self._tls.recv(most), 0.0 if flags & socket.MSG_DONTWAIT else self._timeout)

    def _patiently(self, operation: Callable[[], T], timeout: float | None) -> T:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                with self._lock:
                    return operation()
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            if timeout == 0.0:
                raise BlockingIOError
            self._await(event, deadline)

    def _await(self, event: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self._tls, event)
        if not poll.poll(None if deadline is None else 1000 * max(0.0, deadline - time.monotonic())):
            raise TimeoutError("timed out")

    # -- never waiting --------------------------------------------------------------------------------------------

    def sendmsg(self, buffers: Iterable[memoryview]) -> int:
        """What is not sent must be given again, as the beginning of the next call's."""
        sent = 0
        try:
            for record in _records(buffers):
                sent += self._tls.send(record)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not sent:
                raise BlockingIOError from None
        return sent

    def recv_into(self, buffer: memoryview) -> int:
        return self.recvmsg_into([buffer])[0]

    def recvmsg_into(self, buffers: Iterable[memoryview]) -> tuple[int]:
        """`buffers` must have room for a record."""
        received = of_record = 0
        try:
            for buffer in buffers:
                while len(buffer):
                    n = self._tls.recv_into(buffer)
                    received += n
                    of_record += n
                    if n < len(buffer):  # the end of a record, or of the stream
                        if of_record < RECORD_BYTES:
                            return (received,)  # more is unlikely to be there
                        of_record = 0
                    buffer = buffer[n:]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not received:
                raise BlockingIOError from None
        return (received,)


Socket = socket.socket | TlsSocket
"""A connection, encrypted or not."""


def _records(buffers: Iterable[memoryview]) -> Iterator[Buffer]:
    """The buffers' bytes, cut and joined to what is encrypted in one piece. Those that begin with the same bytes have
    records of the same beginning, so that a record that would have blocked is tried again as OpenSSL wants it."""
    gathered = bytearray()
    for buffer in buffers:
        while len(buffer):
            room = RECORD_BYTES - len(gathered)
            if not gathered and len(buffer) >= room:
                yield buffer[:room]  # without a copy
            else:
                gathered += buffer[:room]
                if len(gathered) == RECORD_BYTES:
                    yield gathered
                    gathered = bytearray()
            buffer = buffer[room:]
    if gathered:
        yield gathered
