"""What travels in channels, lies in their queues, and is captured there as channel state."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import pyarrow as pa

from checkpoint.barriers.events import Barrier

Payload: TypeAlias = bytes | bytearray | memoryview | pa.Buffer


class EdgeName(NamedTuple):
    """Names an edge of the job graph over restarts and rescaling: what was in flight on it belongs to it."""

    upstream: str
    """Step id."""
    downstream: str
    """Step id."""
    port: str
    """Tells edges between the same two steps apart, such as the two inputs of a connected operator."""

    @property
    def input(self) -> int:
        """0: the main input of the downstream step; 1: its connected one."""
        return int(self.port.startswith("1."))


class ChannelName(NamedTuple):
    """A channel of the attempt that took a checkpoint; subtasks are counted from 0 within their step."""

    edge: EdgeName
    upstream: int
    downstream: int


@dataclass(slots=True)
class Data:
    """A batch of records."""

    payload: Payload
    """A frame in the format of the edge (see `checkpoint.edge_format`)."""
    size: int
    """Bytes of the payload; what flow control counts."""
    rows: int
    """Rows in the payload."""
    start: int = 0
    """Rows before this one are processed already: the batch was put back when a barrier fell into it."""
    unpacked: Any = field(default=None, compare=False, repr=False)
    """The rows as the task thread has decoded them, if it has."""

    @property
    def rest(self) -> int:
        """Rows that are still to be processed."""
        return self.rows - self.start

    def from_row(self, start: int) -> Data:
        """What is left of the batch from row `start` of the payload on."""
        return replace(self, start=start)


@dataclass(frozen=True, slots=True)
class Watermark:
    timestamp: int
    """Milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class IdleStatus:
    idle: bool


@dataclass(frozen=True, slots=True)
class BarrierElement:
    """A checkpoint barrier in a channel."""

    barrier: Barrier
    """Its age is that of the moment `at`."""
    at: float = field(default_factory=time.monotonic, compare=False)
    """`time.monotonic()` of this process when the age was right: when it was made, received or polled."""

    def aged(self, now: float) -> Barrier:
        """The barrier with its age brought up to `now`, so that time spent in queues counts."""
        return replace(self.barrier, age=self.barrier.age + max(0.0, now - self.at))


@dataclass(frozen=True, slots=True)
class CancelMarker:
    """In place of the barrier: the checkpoint was given up upstream."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """No more data on this channel. Barriers may still follow (final checkpoint).

    Never captured: after a restore, whoever had ended ends again and says so again.
    """


@dataclass(frozen=True, slots=True)
class RestoreBarrier:
    """After a restore with a replay: nothing restored comes behind it on this channel.

    Counted; it blocks no channel and is never captured, since whoever restores a checkpoint taken during a replay
    replays again.
    """


Element = Data | Watermark | IdleStatus | BarrierElement | CancelMarker | EndOfInput | RestoreBarrier

InOrder: TypeAlias = Watermark | IdleStatus | EndOfInput | RestoreBarrier
"""What is no data, and never overtakes any."""

InFlight: TypeAlias = Data | Watermark | IdleStatus
"""What is channel state when a barrier overtakes it."""


def is_in_flight(element: Element) -> TypeGuard[InFlight]:
    kind = type(element)
    return kind is Data or kind is Watermark or kind is IdleStatus
