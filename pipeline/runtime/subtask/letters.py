"""What the task thread finds in its mailbox."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.coordination.coordinator_events import CheckpointKind, Heartbeat
from checkpoint.elements import BarrierElement


@dataclass(frozen=True, slots=True)
class Trigger:
    """Source subtasks: take this barrier."""

    checkpoint_id: int
    kind: CheckpointKind
    at: float
    """`time.monotonic()` of its arrival here, from where on the checkpoint's age counts."""


@dataclass(frozen=True, slots=True)
class BarrierSeen:
    """A barrier has arrived on this input channel; it may be queued behind data."""

    channel: int
    element: BarrierElement


@dataclass(frozen=True, slots=True)
class Completed:
    checkpoint_id: int
    kind: CheckpointKind


@dataclass(frozen=True, slots=True)
class Aborted:
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class HeartbeatLetter:
    heartbeat: Heartbeat


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
    """Committing thread of a sink: its committers know what is out."""

    step: str
    highest_checkpoint: int
    restored_epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drained:
    """Source subtasks: what was restored in flight has drained through the job; emit what is new."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Another thread of the subtask failed."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Finish:
    """The final checkpoint is committed everywhere: leave."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The attempt is over: leave now."""


Letter = (
    Trigger
    | BarrierSeen
    | Completed
    | Aborted
    | HeartbeatLetter
    | ReleaseEpoch
    | ReleaseNew
    | CommittersOpened
    | Drained
    | Failure
    | Finish
    | Cancel
)
