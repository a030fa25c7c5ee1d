"""Making authenticated connections out of accepted sockets and of addresses, without ever waiting for one of them.

Driven by the network thread's selector. A peer that is wrong, slow or sends garbage is dropped with a log line; the
others don't notice.
"""

from __future__ import annotations

import errno
import logging
import os
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pipeline.runtime.auth import AuthenticationError, ClientHandshake, Handshake, ServerHandshake, refusal
from pipeline.runtime.network.tls_socket import Socket, TlsSocket

if TYPE_CHECKING:
    from pipeline.runtime.encryption import Encryption

_log = logging.getLogger(f"weir.{__name__}")

_MAX_PENDING: Final = 256
"""Accepted connections that may be in a handshake at once; beyond it the oldest is dropped (and tries again)."""
_FIRST_DELAY: Final = 0.05
_MAX_DELAY: Final = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A resolved address."""

    family: int
    sockaddr: Any

    @classmethod
    def resolve(cls, host: str, port: int) -> Endpoint:
        """Raises `OSError` when the name is unknown. Blocks on the resolver, so not for the network thread."""
        family, _, _, _, sockaddr = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return cls(family, sockaddr)


@dataclass(eq=False, slots=True)
class _Dial:
    """A peer to be connected to."""

    peer: int
    endpoint: Endpoint
    patience: float
    """Seconds in which it must be reached; how long it takes to answer then is not for this side to judge."""
    give_up_at: float
    delay: float = _FIRST_DELAY
    retry_at: float | None = None
    """`None` while an attempt is under way."""


@dataclass(eq=False, slots=True)
class _Attempt:
    """A socket on its way to an authenticated connection."""

    sock: Socket
    address: str
    handshake: Handshake
    deadline: float
    dial: _Dial | None = None
    connecting: bool = False
    securing: int = 0
    """The event that the handshake of TLS waits for."""
    unsent: bytes = b""
    interest: int = field(default=0)


class Establisher:
    """Accepts and dials. All methods and callbacks run on the network thread; sockets handed over are authenticated,
    non-blocking and not registered with the selector."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        secret: bytes,
        role: Callable[[], str],
        on_accepted: Callable[[Socket, str, str], None],
        on_dialled: Callable[[int, Socket], None],
        on_failed: Callable[[ConnectionError], None],
        handshake_timeout: float,
        encryption: Encryption | None = None,
    ) -> None:
        """`on_accepted(socket, client's role, its address)`, `on_dialled(peer, socket)`, `on_failed(error)`: a
        peer, which it names, couldn't be reached before its deadline, or isn't of this job. `encryption`: of all
        connections."""
        self._selector = selector
        self._secret = secret
        self._role = role
        self._on_accepted = on_accepted
        self._on_dialled = on_dialled
        self._on_failed = on_failed
        self._timeout = handshake_timeout
        self._encryption = encryption
        self._attempts: dict[_Attempt, None] = {}
        self._dials: dict[int, _Dial] = {}

    def accept(self, listener: socket.socket) -> None:
        """A connection waits at the listener."""
        try:
            sock, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # gone again
            return
        accepted = [attempt for attempt in self._attempts if attempt.dial is None]
        if len(accepted) >= _MAX_PENDING:
            self._fail(accepted[0], AuthenticationError("too many connections are being authenticated"))
        deadline = time.monotonic() + self._timeout
        attempt = _Attempt(sock, f"{address[0]}:{address[1]}", ServerHandshake(self._secret), deadline)
        if self._encryption is not None:
            try:
                attempt.sock = self._encryption.server(sock)
            except OSError:  # gone again
                return
            attempt.securing = selectors.EVENT_READ
        self._add(attempt)

    def dial(self, peer: int, endpoint: Endpoint, timeout: float) -> None:
        """Connect to a peer, again and again until it could not be reached for `timeout` seconds."""
        dial = self._dials[peer] = _Dial(peer, endpoint, timeout, time.monotonic() + timeout)
        self._try(dial)

    @property
    def dialling(self) -> set[int]:
        """Peers that are not connected yet."""
        return set(self._dials)

    def next_deadline(self) -> float | None:
        """Monotonic time at which `on_time` has to be called."""
        times = [attempt.deadline for attempt in self._attempts]
        times += [dial.retry_at for dial in self._dials.values() if dial.retry_at is not None]
        return min(times, default=None)

    def on_time(self) -> None:
        now = time.monotonic()
        for attempt in [attempt for attempt in self._attempts if attempt.deadline <= now]:
            self._fail(attempt, AuthenticationError(f"no authenticated connection within {self._timeout:g} s"))
        for dial in [d for d in self._dials.values() if d.retry_at is not None and d.retry_at <= now]:
            self._try(dial)

    def close(self) -> None:
        for attempt in list(self._attempts):
            self._remove(attempt)
            attempt.sock.close()
        self._dials.clear()

    # -- one attempt ------------------------------------------------------------------------------------------

    def _try(self, dial: _Dial) -> None:
        dial.retry_at = None
        sock = socket.socket(dial.endpoint.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        address = f"{dial.endpoint.sockaddr[0]}:{dial.endpoint.sockaddr[1]}"
        deadline = time.monotonic() + self._timeout
        attempt = _Attempt(sock, address, ClientHandshake(self._secret, self._role()), deadline, dial, connecting=True)
        code = sock.connect_ex(dial.endpoint.sockaddr)
        self._add(attempt)
        if code not in (0, errno.EINPROGRESS):
            self._fail(attempt, OSError(code, os.strerror(code)))

    def _add(self, attempt: _Attempt) -> None:
        attempt.sock.setblocking(False)
        self._attempts[attempt] = None
        attempt.interest = selectors.EVENT_WRITE if attempt.connecting else selectors.EVENT_READ
        self._selector.register(attempt.sock, attempt.interest, lambda mask: self._on_ready(attempt, mask))

    def _remove(self, attempt: _Attempt) -> None:
        del self._attempts[attempt]
        self._selector.unregister(attempt.sock)

    def _on_ready(self, attempt: _Attempt, mask: int) -> None:
        if attempt not in self._attempts:  # dropped by an earlier event of this round
            return
        try:
            self._advance(attempt, mask)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self._fail(attempt, ConnectionResetError("the peer closed the connection during the authentication"))
            return
        except ssl.SSLError as error:
            self._fail(attempt, refusal(error))
            return
        except OSError as error:
            self._fail(attempt, error)
            return
        handshake = attempt.handshake
        if not handshake.wanted and not attempt.unsent:
            self._remove(attempt)
            if attempt.dial is None:
                self._on_accepted(attempt.sock, handshake.role, attempt.address)
            else:
                del self._dials[attempt.dial.peer]
                self._on_dialled(attempt.dial.peer, attempt.sock)
            return
        interest = attempt.securing or (
            (selectors.EVENT_READ if handshake.wanted else 0) | (selectors.EVENT_WRITE if attempt.unsent else 0)
        )
        if interest != attempt.interest:
            attempt.interest = interest
            self._selector.modify(attempt.sock, interest, self._selector.get_key(attempt.sock).data)

    def _advance(self, attempt: _Attempt, mask: int) -> None:
        handshake = attempt.handshake
        if attempt.connecting:
            self._connected(attempt)
        elif attempt.securing:
            self._secure(attempt)
        elif mask & selectors.EVENT_READ and handshake.wanted:
            try:
                data = attempt.sock.recv(handshake.wanted)
            except BlockingIOError:
                return
            if not data:
                raise ConnectionResetError("the peer closed the connection during the authentication")
            attempt.unsent += handshake.receive(data)
        if attempt.unsent:
            try:
                attempt.unsent = attempt.unsent[attempt.sock.send(attempt.unsent) :]
            except BlockingIOError:
                return

    def _connected(self, attempt: _Attempt) -> None:
        assert isinstance(attempt.sock, socket.socket)
        if code := attempt.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))
        attempt.connecting = False
        if self._encryption is None:
            attempt.unsent = attempt.handshake.begin()
        else:
            attempt.sock = self._encryption.client(attempt.sock)
            self._secure(attempt)

    def _secure(self, attempt: _Attempt) -> None:
        assert isinstance(attempt.sock, TlsSocket)
        attempt.securing = attempt.sock.advance_handshake()
        if not attempt.securing:
            attempt.unsent = attempt.handshake.begin()

    def _fail(self, attempt: _Attempt, error: OSError) -> None:
        self._remove(attempt)
        attempt.sock.close()
        dial = attempt.dial
        if dial is None:
            _log.warning("dropped a connection from %s: %s", attempt.address, error)
            return
        now = time.monotonic()
        if not attempt.connecting and now >= attempt.deadline:
            # Its host is there, and the process is busy (code in it may hold Python's lock); the driver watches it.
            dial.give_up_at = now + dial.patience
        # a peer that is slow or not there yet may come; one that can't prove itself never will
        if (isinstance(error, AuthenticationError) and now < attempt.deadline) or now + dial.delay > dial.give_up_at:
            del self._dials[dial.peer]
            failure = ConnectionError(f"can't connect to subtask {dial.peer} at {attempt.address}: {error}")
            failure.__cause__ = error
            self._on_failed(failure)
            return
        _log.info("subtask %d at %s: %s; trying again", dial.peer, attempt.address, error)
        dial.retry_at = now + dial.delay
        dial.delay = min(2 * dial.delay, _MAX_DELAY)
