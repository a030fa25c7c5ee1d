"""Control messages between driver and subtasks: msgpack, a length before each, never pickle."""

from __future__ import annotations

import errno
import select
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from checkpoint.codec import DecodingError, decode_opaquely, encode
from checkpoint.counted import counted

if TYPE_CHECKING:
    from pipeline.runtime.network.tls_socket import Socket

_LENGTH = struct.Struct("!I")
_LARGEST = 1 << 30
_SEND_TIMEOUT = 30.0
"""Seconds in which a part of a message must go out; all of it may take longer."""
_SIGN_OF_LIFE = _LENGTH.pack(0)

Message = dict[str, Any]


class ConnectionLost(ConnectionError):
    """The other side is gone."""


def shut_down(sock: Socket) -> None:
    """Wake a thread that is blocked in the socket's accept or recv, which closing it doesn't."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # gone already, or (of a listener, on some systems) not connected; accept ends all the same


class ControlConnection:
    """One authenticated connection. `send` is thread-safe; `receive` belongs to one thread."""

    def __init__(self, sock: Socket):
        self._socket = sock
        # For sends: a peer that takes nothing for so long is as good as gone. Receiving polls instead, since a
        # socket has one timeout for both.
        self.heard_at = time.monotonic()
        """When something came last, be it a part of a message."""
        sock.settimeout(_SEND_TIMEOUT)
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(sock, select.POLLOUT)
        self._sending = threading.Lock()
        self._buffer = bytearray()

    @property
    def local_host(self) -> str:
        """This side's address."""
        host: str = self._socket.getsockname()[0]
        return host

    def send(self, type: str, **fields: Any) -> None:
        """Send a message.

        Raises:
            ConnectionLost: the other side is gone, or takes nothing.
            EncodingError: a field can't travel.
            ValueError: the message is larger than the other side would take.
        """
        body = encode({"type": type, **fields})
        if len(body) > _LARGEST:
            raise ValueError(f"a control message {type!r} of {counted(len(body), 'byte')} is larger than {_LARGEST:,}")
        try:
            with self._sending:
                # Not `sendall`, whose timeout is for all of it: what goes on may take as long as it takes.
                rest = memoryview(_LENGTH.pack(len(body)) + body)
                while rest:
                    rest = rest[self._socket.send(rest) :]
        except OSError as error:
            raise ConnectionLost(f"sending {type!r} failed: {error}") from error

    def send_sign_of_life(self) -> None:
        """Show that this side is there; the other's `heard_at` changes, and nothing else. Doesn't block: where a
        message is on its way that is sign enough, and where the other side takes nothing no sign would reach it.

        Raises:
            ConnectionLost: the other side is gone.
        """
        if not self._sending.acquire(blocking=False):
            return
        try:
            # Where the system calls a socket writable there is room for more than these few bytes.
            if self._writable.poll(0):
                self._socket.sendall(_SIGN_OF_LIFE)
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        finally:
            self._sending.release()

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message, or `None` if there is none within `timeout` seconds.

        Raises:
            ConnectionLost: the other side is gone, or sends what is no message.
        """
        while True:
            message = self._parse()
            if message is not None:
                return message
            try:
                if not self._readable.poll(None if timeout is None else 1000 * timeout):
                    return None
                data = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:  # of what is encrypted a part is there, which can't be read yet
                self.heard_at = time.monotonic()
                continue
            except OSError as error:
                gone = "its host answers nothing any more: " if error.errno == errno.ETIMEDOUT else ""
                raise ConnectionLost(f"{gone}{error}") from error
            if not data:
                raise ConnectionLost("the connection was closed")
            self.heard_at = time.monotonic()
            self._buffer += data

    def _parse(self) -> Message | None:
        while self._buffer.startswith(_SIGN_OF_LIFE):
            del self._buffer[: _LENGTH.size]
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > _LARGEST:
            raise ConnectionLost(f"a control message claims {counted(length, 'byte')}")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        try:
            message = decode_opaquely(body)  # a subtask learns the classes of the job from a message
        except DecodingError as error:
            raise ConnectionLost(f"what should be a control message can't be decoded: {error}") from error
        if not isinstance(message, dict) or "type" not in message:
            raise ConnectionLost("a control message without a type")
        return message

    def close(self) -> None:
        shut_down(self._socket)
        self._socket.close()
