"""What a source gate is told and what it asks for (see `checkpoint.gate.source_gate`)."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator_events import Heartbeat

# -- events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emitted:
    """The source has emitted so much since the last event."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BarrierTaken:
    """The source has put barrier `checkpoint_id` behind what it emitted."""

    checkpoint_id: int
    kind: CheckpointKind
    held_up: bool = False
    """It had to wait for room in its output queues since the barrier before."""


@dataclass(frozen=True, slots=True)
class BarrierPassed:
    """Every subtask that this source reaches has taken its snapshot: what lay in front of the barrier is processed, or,
    if the barrier overtook it, part of the checkpoint. Storage may still be busy with it."""

    checkpoint_id: int
    start_delay: float
    """Seconds from the trigger until then."""
    mean_span: float
    """Records that the source subtasks which reach the same have each emitted since the barrier before, on average."""
    busy_span: float
    """The same of those that would have emitted more (`SourceGate.busy`); 0 if none would."""


@dataclass(frozen=True, slots=True)
class CheckpointResolved:
    """Completed, failed, expired, declined or subsumed: the barrier is no longer in progress."""

    checkpoint_id: int
    completed: bool


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class ReadingBegins:
    """Every subtask runs, so the source may fetch from now on. Barriers may have been taken before."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed (see `SourceGate.next_deadline`)."""


Event = Emitted | BarrierTaken | BarrierPassed | CheckpointResolved | HeartbeatReceived | ReadingBegins | Tick

# -- actions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CloseGate:
    """Stop fetching; `reason` is kept and shown."""

    reason: str


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Fetch again."""


@dataclass(frozen=True, slots=True)
class AskForCheckpoint:
    """Tell the coordinator (`CheckpointAsked`) that this source's span is nearly used up."""

    last_barrier: int


@dataclass(frozen=True, slots=True)
class TakeBarrier:
    """The trigger for this checkpoint was lost: take its barrier now (then report `BarrierTaken`)."""

    checkpoint_id: int
    kind: CheckpointKind


Action = CloseGate | OpenGate | AskForCheckpoint | TakeBarrier
