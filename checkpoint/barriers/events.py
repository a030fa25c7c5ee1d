"""What a subtask's barrier handler is told and what it asks for (see `checkpoint.barriers.handler`)."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.checkpoint_kind import CheckpointKind


@dataclass(frozen=True, slots=True)
class Barrier:
    """A checkpoint barrier as it travels in a channel."""

    checkpoint_id: int
    kind: CheckpointKind = CheckpointKind.CHECKPOINT
    alignment_timeout: float | None = None
    """Seconds until an aligned checkpoint turns unaligned; `None` = aligned always, 0 = unaligned from the start."""
    age: float = 0.0
    """Seconds since the trigger, accumulated from monotonic durations of each host, so clock skew changes nothing."""
    target: str | None = None
    """URI of the folder that a savepoint is written to; `None` for other checkpoints."""

    @property
    def unaligned(self) -> bool:
        """Whether it overtakes data: from the start, or since it was turned on its way."""
        return self.alignment_timeout == 0.0


# -- events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """The barrier was the next element of this (unblocked) channel, and is taken from it."""

    channel: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class BarrierAnnounced:
    """The network thread saw the barrier arrive; it may still be queued behind data of its channel."""

    channel: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class CancelArrived:
    """An upstream subtask gave the checkpoint up and sends this marker instead of its barrier."""

    channel: int
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class EndOfInputArrived:
    """The channel has no more data. Barriers may still follow (final checkpoint)."""

    channel: int


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """The coordinator gave the checkpoint up."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed (see `BarrierHandler.next_deadline`)."""


Event = BarrierArrived | BarrierAnnounced | CancelArrived | EndOfInputArrived | CheckpointAborted | Tick

# -- actions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockChannel:
    """Take nothing from this channel until `UnblockChannel`."""

    channel: int


@dataclass(frozen=True, slots=True)
class UnblockChannel:
    channel: int


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Snapshot now and send the barrier to every output: behind what is queued, or in front of it if `unaligned`."""

    barrier: Barrier
    """To forward: its age is brought up to now."""
    unaligned: bool
    alignment_seconds: float
    """From the first barrier to this moment."""


@dataclass(frozen=True, slots=True)
class CaptureChannel:
    """Record what is queued on and still arrives at the channel, up to the checkpoint's barrier, as channel state of
    the checkpoint (see `checkpoint.in_flight.input_queue`). Comes right behind `TakeSnapshot`."""

    checkpoint_id: int
    channel: int


@dataclass(frozen=True, slots=True)
class HoldInput:
    """Take only from channels that are not blocked, whatever room there is downstream, and nothing restored, until
    `ReleaseInput`: the broadcast channels are read up to their barriers."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class ReleaseInput:
    """Go on as usual."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class ForwardCancel:
    """The checkpoint is given up: tell the coordinator (decline) and send a cancel marker to every output."""

    checkpoint_id: int
    message: str


Action = BlockChannel | UnblockChannel | TakeSnapshot | CaptureChannel | HoldInput | ReleaseInput | ForwardCancel
