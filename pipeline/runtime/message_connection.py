"""A control connection whose messages are those of `pipeline.runtime.protocol`.

On the wire a message is a dict with its class' name as `type`, and its fields. Whoever receives what its version
doesn't understand raises `ProtocolError`, which names the message and, if there is one, the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pipeline.runtime.protocol import Direction, Hello, Job
from pipeline.runtime.typed_values import TypeMismatch, from_value, to_value
from pipeline.runtime.versions import versions
from pipeline.runtime.wire import ControlConnection

Sent = TypeVar("Sent")
Got = TypeVar("Got")


class ProtocolError(ValueError):
    """A message that this version doesn't understand."""


def to_wire(message: Any) -> dict[str, Any]:
    """A message as a dict that `checkpoint.codec` carries."""
    return {"type": type(message).__name__, **to_value(message)}


def from_wire(wire: Mapping[str, Any], direction: Direction[Got], sender: Mapping[str, str] | None = None) -> Got:
    """The message that `to_wire` has written.

    Args:
        direction: which messages may come.
        sender: versions of the other side, if it has told them. The messages that tell them need none.

    Raises:
        ProtocolError: there is no such message, or one of its fields is missing, unknown or of another type.
    """
    name, fields = wire["type"], {key: value for key, value in wire.items() if key != "type"}
    told = fields.get("versions", sender)
    if name not in direction.classes:
        raise ProtocolError(f"the message {name!r} is unknown{_of_versions(told)}")
    try:
        return from_value(direction.classes[name], fields)
    except TypeMismatch as error:
        raise ProtocolError(f"the message {name!r} can't be read: {error}{_of_versions(told)}") from error


def _of_versions(sender: Any) -> str:
    mine = _in_words(versions())
    if not isinstance(sender, Mapping):
        return f" (this side has {mine}; the other one has not told what it has)"
    return f" (this side has {mine}, the other one {_in_words(sender)})"


def _in_words(versions: Mapping[str, Any]) -> str:
    return " and ".join(f"{name} {version}" for name, version in versions.items())


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
