"""Mutual authentication of connections: HMAC-SHA256 challenge and response with the job's secret.

Nothing that a peer sends is parsed before it has shown that it knows the secret; until then only messages of
fixed length are read:

    client → server   hello: magic, role, client nonce
    server → client   server nonce, proof of the server
    client → server   proof of the client
    server → client   accepted

Each proof covers both nonces and the role, and is labelled by its side, so it can be neither replayed nor reflected.
The handshakes are pure (bytes in, bytes out): the network thread drives them incrementally, the control connections
through the blocking helpers.
"""

from __future__ import annotations

import hmac
import secrets
import ssl
import time
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pipeline.runtime.network.tls_socket import Socket

_MAGIC: Final = b"weir/1\r\n"
_NONCE: Final = 32
_PROOF: Final = 32
_ROLE: Final = 32
_HELLO: Final = len(_MAGIC) + _ROLE + _NONCE
_ACCEPTED: Final = b"\x06"
_LEAST_SECRET: Final = 16


class AuthenticationError(ConnectionError):
    """The peer didn't show that it knows the job's secret."""


class Handshake(Protocol):
    """One side of a handshake. No bytes beyond `wanted` may be read from the connection while it lasts."""

    wanted: int
    """Bytes of the peer's message still to come; 0 once the handshake is complete."""
    role: str
    """The client's role; on the server, empty until the handshake is complete."""

    def begin(self) -> bytes:
        """What to send before anything is received."""

    def receive(self, data: bytes) -> bytes:
        """Take at most `wanted` bytes; returns what to send.

        Raises:
            AuthenticationError: drop the connection.
        """


def refusal(error: ssl.SSLError) -> AuthenticationError:
    """What an error of an encrypted connection says of the peer, before it is authenticated."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return AuthenticationError("the peer closed the connection during the authentication")
    if error.reason == "CERTIFICATE_VERIFY_FAILED":
        return AuthenticationError("the peer has another certificate: it belongs to another job")
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return AuthenticationError("the peer has no certificate: it doesn't know the job's secret")
    return AuthenticationError(
        f"the peer doesn't encrypt as this side does, or refuses its certificate ({error.reason})"
    )


def new_secret() -> bytes:
    """A secret for one job."""
    return secrets.token_bytes(32)


def _check_secret(secret: bytes) -> bytes:
    if len(secret) < _LEAST_SECRET:
        raise ValueError(f"the job's secret must have at least {_LEAST_SECRET} bytes, not {len(secret)}")
    return secret


def _proof(secret: bytes, side: bytes, hello: bytes, server_nonce: bytes) -> bytes:
    return hmac.digest(secret, side + hello + server_nonce, "sha256")


class ClientHandshake:
    """The side that connects. `role` says what for: at most 32 bytes of UTF-8."""

    def __init__(self, secret: bytes, role: str) -> None:
        name = role.encode()
        if not 0 < len(name) <= _ROLE or "\0" in role:
            raise ValueError(f"a role must have 1 to {_ROLE} bytes and no NUL, not {role!r}")
        self.role = role
        self.wanted = _NONCE + _PROOF
        self._secret = _check_secret(secret)
        self._hello = _MAGIC + name.ljust(_ROLE, b"\0") + secrets.token_bytes(_NONCE)
        self._received = b""
        self._proven = False

    def begin(self) -> bytes:
        return self._hello

    def receive(self, data: bytes) -> bytes:
        self._received += data
        self.wanted -= len(data)
        if self.wanted:
            return b""
        message, self._received = self._received, b""
        if self._proven:
            if message != _ACCEPTED:
                raise AuthenticationError("the peer broke off the authentication")
            return b""
        nonce, proof = message[:_NONCE], message[_NONCE:]
        if not hmac.compare_digest(proof, _proof(self._secret, b"server", self._hello, nonce)):
            raise AuthenticationError("the peer doesn't know the job's secret: it belongs to another job")
        self._proven = True
        self.wanted = len(_ACCEPTED)
        return _proof(self._secret, b"client", self._hello, nonce)


class ServerHandshake:
    """The side that is connected to."""

    def __init__(self, secret: bytes) -> None:
        self.role = ""
        self.wanted = _HELLO
        self._secret = _check_secret(secret)
        self._nonce = secrets.token_bytes(_NONCE)
        self._hello = b""
        self._received = b""

    def begin(self) -> bytes:
        return b""

    def receive(self, data: bytes) -> bytes:
        self._received += data
        self.wanted -= len(data)
        if not self._hello and not _MAGIC.startswith(self._received[: len(_MAGIC)]):
            raise AuthenticationError("the peer speaks another protocol")
        if self.wanted:
            return b""
        message, self._received = self._received, b""
        if not self._hello:
            self._hello = message
            self.wanted = _PROOF
            return self._nonce + _proof(self._secret, b"server", message, self._nonce)
        if not hmac.compare_digest(message, _proof(self._secret, b"client", self._hello, self._nonce)):
            raise AuthenticationError("the peer doesn't know the job's secret")
        self.role = self._hello[len(_MAGIC) : len(_MAGIC) + _ROLE].rstrip(b"\0").decode(errors="replace")
        return _ACCEPTED


def authenticate_client(sock: Socket, secret: bytes, role: str, timeout: float) -> None:
    """Authenticate on a connection that this side has opened; blocks for at most `timeout` seconds.

    Raises:
        AuthenticationError: the peer is not of this job, or took too long. The caller closes the socket.
    """
    _run(sock, ClientHandshake(secret, role), timeout)


def authenticate_server(sock: Socket, secret: bytes, timeout: float) -> str:
    """Authenticate the peer of an accepted connection; blocks for at most `timeout` seconds, so call it in a thread
    that others don't wait for.

    Returns:
        The client's role.

    Raises:
        AuthenticationError: the peer is not of this job, or took too long. The caller closes the socket.
    """
    handshake = ServerHandshake(secret)
    _run(sock, handshake, timeout)
    return handshake.role


def _run(sock: Socket, handshake: Handshake, timeout: float) -> None:
    before = sock.gettimeout()
    # one deadline for all of it: a peer that sends a byte now and then must not hold the caller
    deadline = time.monotonic() + timeout
    try:
        answer = handshake.begin()
        while True:
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            if answer:
                sock.sendall(answer)
            if not handshake.wanted:
                return
            if time.monotonic() >= deadline:
                raise TimeoutError
            data = sock.recv(handshake.wanted)
            if not data:
                raise AuthenticationError("the peer closed the connection during the authentication")
            answer = handshake.receive(data)
    except AuthenticationError:
        raise
    except ssl.SSLError as error:
        raise refusal(error) from error
    except TimeoutError:
        raise AuthenticationError(f"the peer didn't finish the authentication within {timeout:g} s") from None
    except OSError as error:
        raise AuthenticationError(f"the connection broke during the authentication: {error}") from error
    finally:
        sock.settimeout(before)
