"""The frames that carry elements (`checkpoint.elements`) between subtasks.

A frame is a header of fixed length and a payload. Payloads of data are Arrow IPC record batches and stay untouched
here; the small payloads of all other kinds are msgpack.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

import ormsgpack

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.counted import counted
from checkpoint.elements import (
    BarrierElement,
    CancelMarker,
    Data,
    Element,
    EndOfInput,
    IdleStatus,
    Payload,
    RestoreBarrier,
    Watermark,
)

MAX_FRAME_BYTES: Final = 1 << 30
_MAX_CONTROL_BYTES: Final = 1 << 16


class FrameError(ConnectionError):
    """An authenticated peer sent what the protocol doesn't allow: both sides can't be of the same version."""


class Kind(IntEnum):
    """Kinds of frames. Those up to `RESTORE` carry elements; the rest is between the network threads."""

    DATA = 1
    WATERMARK = 2
    IDLE = 3
    BARRIER = 4
    CANCEL = 5
    END = 6
    RESTORE = 7
    OPEN = 8
    """Sender → receiver: names the channel that the frames with this channel number belong to."""
    BACKLOG = 9
    """Sender → receiver: the next frame is so large that only an empty receiver may admit it."""
    CREDIT = 10
    """Receiver → sender."""


class ChannelId(NamedTuple):
    """A channel joins one upstream and one downstream subtask on one edge of the graph."""

    edge: int
    upstream: int
    """Subtask index, global over all tasks."""
    downstream: int
    """Subtask index, global over all tasks."""


@dataclass(frozen=True, slots=True)
class Credit:
    """What the receiver of a channel allows its sender. All counters are cumulative over the life of the channel,
    so a message that is late or merged with the next one loses nothing."""

    limit_bytes: int
    """A data frame may be sent if the bytes sent, itself included, stay within this."""
    consumed_frames: int
    """Data frames that the receiver has taken from its queue. A sender that has sent no more than these faces an
    empty receiver, and may send one frame of any size."""
    budget_bytes: int
    """The receiver's budget for this channel."""
    frame_bytes: int
    """Size at which a batch should be sent."""


# -- frames ---------------------------------------------------------------------------------------------------

_HEADER: Final = struct.Struct("<BxHIIQ")
HEADER_BYTES: Final = _HEADER.size


class Header(NamedTuple):
    kind: int
    channel: int
    """Number that the sender gave the channel on this connection."""
    rows: int
    length: int
    """Bytes of the payload."""
    sequence: int
    """Elements sent on this channel before this one (0 for frames that carry no element)."""


def read_header(buffer: memoryview, offset: int) -> Header:
    """Parse the header at `offset`.

    Raises:
        FrameError: it is no frame of this protocol.
    """
    header = Header(*_HEADER.unpack_from(buffer, offset))
    if not Kind.DATA <= header.kind <= Kind.CREDIT:
        raise FrameError(f"unknown kind of frame: {header.kind}")
    if header.length > (MAX_FRAME_BYTES if header.kind == Kind.DATA else _MAX_CONTROL_BYTES):
        raise FrameError(f"a frame of kind {Kind(header.kind).name} claims {counted(header.length, 'byte')}")
    return header


def encode_element(element: Element, channel: int, sequence: int, now: float) -> tuple[bytes, Payload | None]:
    """The frame of an element: its header, with the payload of small elements, and the payload of data apart."""
    if isinstance(element, Data):
        return _HEADER.pack(Kind.DATA, channel, element.rows, element.size, sequence), element.payload
    body: Any
    if isinstance(element, Watermark):
        kind, body = Kind.WATERMARK, element.timestamp
    elif isinstance(element, IdleStatus):
        kind, body = Kind.IDLE, element.idle
    elif isinstance(element, BarrierElement):
        barrier = element.aged(now)
        kind = Kind.BARRIER
        body = (barrier.checkpoint_id, barrier.kind.value, barrier.alignment_timeout, barrier.age, barrier.target)
    elif isinstance(element, CancelMarker):
        kind, body = Kind.CANCEL, element.checkpoint_id
    elif isinstance(element, RestoreBarrier):
        kind, body = Kind.RESTORE, None
    else:
        kind, body = Kind.END, None
    return _small(kind, channel, sequence, body), None


def decode_element(header: Header, body: bytes | memoryview, now: float) -> Element:
    """The element of a received frame.

    Raises:
        FrameError: the payload isn't one of this kind.
    """
    if header.kind == Kind.DATA:
        return Data(body, header.length, header.rows)
    value = _value(header, body)
    try:
        match header.kind:
            case Kind.WATERMARK:
                return Watermark(_int(value))
            case Kind.IDLE:
                return IdleStatus(bool(value))
            case Kind.BARRIER:
                checkpoint_id, kind, timeout, age, target = value
                if target is not None and not isinstance(target, str):
                    raise TypeError(f"not a URI: {target!r}")
                barrier = Barrier(_int(checkpoint_id), CheckpointKind(kind), timeout, float(age), target)
                return BarrierElement(barrier, at=now)
            case Kind.CANCEL:
                return CancelMarker(_int(value))
            case Kind.END:
                return EndOfInput()
            case Kind.RESTORE:
                return RestoreBarrier()
    except (TypeError, ValueError) as error:
        raise _malformed(header) from error
    raise FrameError(f"a frame of kind {Kind(header.kind).name} carries no element")


def encode_open(channel: int, channel_id: ChannelId) -> bytes:
    return _small(Kind.OPEN, channel, 0, tuple(channel_id))


def decode_open(header: Header, body: bytes | memoryview) -> ChannelId:
    try:
        edge, upstream, downstream = _value(header, body)
        return ChannelId(_int(edge), _int(upstream), _int(downstream))
    except (TypeError, ValueError) as error:
        raise _malformed(header) from error


def encode_backlog(channel: int) -> bytes:
    return _small(Kind.BACKLOG, channel, 0, None)


def encode_credit(channel: int, credit: Credit) -> bytes:
    body = (credit.limit_bytes, credit.consumed_frames, credit.budget_bytes, credit.frame_bytes)
    return _small(Kind.CREDIT, channel, 0, body)


def decode_credit(header: Header, body: bytes | memoryview) -> Credit:
    try:
        limit_bytes, consumed_frames, budget_bytes, frame_bytes = _value(header, body)
        return Credit(_int(limit_bytes), _int(consumed_frames), _int(budget_bytes), _int(frame_bytes))
    except (TypeError, ValueError) as error:
        raise _malformed(header) from error


def _small(kind: Kind, channel: int, sequence: int, value: Any) -> bytes:
    body = ormsgpack.packb(value)
    return _HEADER.pack(kind, channel, 0, len(body), sequence) + body


def _value(header: Header, body: bytes | memoryview) -> Any:
    try:
        return ormsgpack.unpackb(body)
    except ValueError as error:
        raise _malformed(header) from error


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"not a whole number: {value!r}")
    return value


def _malformed(header: Header) -> FrameError:
    return FrameError(f"malformed frame of kind {Kind(header.kind).name}")
