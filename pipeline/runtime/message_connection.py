"""A control connection whose messages are those of `pipeline.runtime.protocol`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from pipeline.runtime.protocol import Direction, Hello, Job, from_wire, to_wire
from pipeline.runtime.wire import ControlConnection

Sent = TypeVar("Sent")
Got = TypeVar("Got")


class MessageConnection(Generic[Sent, Got]):
    """`send` is thread-safe; `receive` belongs to one thread."""

    def __init__(self, connection: ControlConnection, receives: Direction[Got]):
        self._connection = connection
        self._receives = receives
        self._sender: Mapping[str, str] | None = None
        """The other side's versions, once it has told them."""

    @property
    def heard_at(self) -> float:
        """When something came last, be it a part of a message."""
        return self._connection.heard_at

    @property
    def local_host(self) -> str:
        """This side's address."""
        return self._connection.local_host

    def send(self, message: Sent) -> None:
        """
        Raises:
            ConnectionLost: the other side is gone, or takes nothing.
            EncodingError: a field can't travel.
            ValueError: the message is larger than the other side would take.
        """
        self._connection.send(**to_wire(message))

    def send_sign_of_life(self) -> None:
        """See `ControlConnection.send_sign_of_life`."""
        self._connection.send_sign_of_life()

    def receive(self, timeout: float | None = None) -> Got | None:
        """The next message, or `None` if there is none within `timeout` seconds.

        Raises:
            ConnectionLost: the other side is gone, or sends what is no message.
            ProtocolError: this version doesn't understand the message.
        """
        wire = self._connection.receive(timeout)
        if wire is None:
            return None
        message = from_wire(wire, self._receives, self._sender)
        if isinstance(message, Hello | Job):
            self._sender = message.versions
        return message

    def close(self) -> None:
        self._connection.close()
