"""What the task thread finds in its mailbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checkpoint.coordination.coordinator_events import Heartbeat
from checkpoint.elements import BarrierElement
from checkpoint.gate import gate_events
from checkpoint.kinds import CheckpointKind


@dataclass(frozen=True, slots=True)
class BarrierOptions:
    """What a source has to know of a barrier beside id and kind."""

    target: str | None = None
    """Of a savepoint: see `checkpoint.barriers.events.Barrier`."""
    stop: bool = False
    """Emit nothing behind it, unless the checkpoint is aborted."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Source subtasks: take this barrier."""

    checkpoint_id: int
    kind: CheckpointKind
    at: float
    """`time.monotonic()` of its arrival here, from where on the checkpoint's age counts."""
    options: BarrierOptions


@dataclass(frozen=True, slots=True)
class BarrierPassed:
    """For source subtasks."""

    event: gate_events.BarrierPassed


@dataclass(frozen=True, slots=True)
class EndInput:
    """Source subtasks: end, as if nothing more would come."""


@dataclass(frozen=True, slots=True)
class BarrierSeen:
    """A barrier has arrived on this input channel; it may be queued behind data."""

    channel: int
    element: BarrierElement


@dataclass(frozen=True, slots=True)
class Completed:
    checkpoint_id: int
    kind: CheckpointKind
    commits: bool
    """Sinks commit it."""


@dataclass(frozen=True, slots=True)
class Aborted:
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class HeartbeatMail:
    heartbeat: Heartbeat
    options: Mapping[int, BarrierOptions]
    """Of the checkpoints in progress that aren't ordinary ones, by id."""


@dataclass(frozen=True, slots=True)
class ReleaseEpoch:
    """Sinks: commit this restored epoch."""

    step: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ReleaseNew:
    """Sinks: every restored epoch is committed everywhere; commit what completes."""

    step: str


@dataclass(frozen=True, slots=True)
class CommittersOpened:
    """Committing thread of a sink: its committers know what is committed."""

    step: str
    highest_checkpoint: int
    restored_epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """Source subtasks: what was restored in flight has gone through the job; emit what is new."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Another thread of the subtask failed."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Quiesce:
    """The job's last checkpoint is committed everywhere: process nothing more, and expect peers to leave."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Everybody is quiet: leave."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The attempt is over: leave now."""


Mail = (
    Trigger
    | BarrierPassed
    | EndInput
    | BarrierSeen
    | Completed
    | Aborted
    | HeartbeatMail
    | ReleaseEpoch
    | ReleaseNew
    | CommittersOpened
    | Replayed
    | Failure
    | Quiesce
    | Finish
    | Cancel
)
