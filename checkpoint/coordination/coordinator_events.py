"""What the checkpoint coordinator is told and what it asks for (see `checkpoint.coordination.coordinator`).

Events go in, actions come out; neither carries behaviour. Times are seconds of one monotonic clock that the
caller passes to `CheckpointCoordinator.handle`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from checkpoint.checkpoint_kind import CheckpointKind


class FailureReason(StrEnum):
    """Why a checkpoint did not complete."""

    EXPIRED = "expired"
    DECLINED = "declined"
    ASYNC = "async"
    """The asynchronous part of a subtask's snapshot failed (storage, as a rule)."""
    FINALISE = "finalise"
    """`_metadata` could not be written."""
    SUBSUMED = "subsumed"
    CANCELLED = "cancelled"

    @property
    def tolerated(self) -> bool:
        """Whether this never counts against the tolerable failures."""
        return self in (FailureReason.SUBSUMED, FailureReason.CANCELLED)


# -- events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubtasksRunning:
    """Every subtask runs, and has read what was restored (in flight: `RestoredInput`)."""


@dataclass(frozen=True, slots=True)
class OutputBegan:
    """A sink has taken records that are visible once a checkpoint is complete. Of several, the first counts."""


@dataclass(frozen=True, slots=True)
class IdSeen:
    """A checkpoint id found somewhere (a sink's marker): ids given from now on are larger."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The subtask has taken its snapshot, and goes on; it is not written yet."""

    checkpoint_id: int
    subtask: int
    span: int | None = None
    """Records that a source has emitted since the barrier before; `None` for other subtasks."""
    busy: bool = False
    """It would have emitted more, if it had been let (`SourceGate.busy`)."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The subtask's snapshot is written."""

    checkpoint_id: int
    subtask: int


@dataclass(frozen=True, slots=True)
class Declined:
    checkpoint_id: int
    subtask: int
    message: str
    reason: FailureReason = FailureReason.DECLINED


@dataclass(frozen=True, slots=True)
class WaitsOutside:
    """A subtask waits for what lies outside of the job, such as brokers that are down; or does no longer."""

    subtask: int
    waits: bool


@dataclass(frozen=True, slots=True)
class Finalised:
    """`_metadata` of the checkpoint is durable."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class FinaliseFailed:
    checkpoint_id: int
    message: str


@dataclass(frozen=True, slots=True)
class DeletionDone:
    """A `DeleteCheckpoint` has ended, with an error or without (the error is the caller's to log)."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class CheckpointAsked:
    """A source near its span's limit asks for the next checkpoint. Ignored when a newer barrier was triggered."""

    last_barrier: int


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A user asks for a checkpoint or savepoint; `token` comes back in `TriggerCheckpoint`."""

    kind: CheckpointKind
    token: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A user asks for the job's end behind a last checkpoint (`FINAL`) or savepoint, which sinks commit; `token` comes
    back in `TriggerCheckpoint`. If it fails the job goes on."""

    kind: CheckpointKind
    token: str
    drain: bool = False
    """End all input first, so that event time ends and every timer fires."""


@dataclass(frozen=True, slots=True)
class AllInputEnded:
    """Every subtask has processed the end of all its input: take the final checkpoint as soon as allowed."""


@dataclass(frozen=True, slots=True)
class JobEnding:
    """No more triggers; everything in progress is cancelled."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed (see `CheckpointCoordinator.next_deadline`)."""


Event = (
    SubtasksRunning
    | OutputBegan
    | IdSeen
    | SnapshotTaken
    | Acknowledged
    | Declined
    | WaitsOutside
    | Finalised
    | FinaliseFailed
    | DeletionDone
    | CheckpointAsked
    | CheckpointRequested
    | StopRequested
    | AllInputEnded
    | JobEnding
    | Tick
)

# -- actions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Tell every source subtask to take barrier `checkpoint_id`."""

    checkpoint_id: int
    kind: CheckpointKind
    tokens: tuple[str, ...] = ()
    """Tokens of the user requests that this checkpoint answers."""
    stop: bool = False
    """Sources emit nothing behind its barrier, unless it fails."""


@dataclass(frozen=True, slots=True)
class BarrierPassed:
    """Tell these source subtasks that the barrier of this ordinary checkpoint has passed all that they reach."""

    checkpoint_id: int
    sources: tuple[int, ...]
    """Those that reach the same subtasks."""
    start_delay: float
    """Seconds from the trigger to the last snapshot."""
    mean_span: float
    """The mean span of these sources, in records."""
    busy_span: float
    """The mean span of those sources that are busy; 0 if no source is."""


@dataclass(frozen=True, slots=True)
class EndInput:
    """Tell every source to end, as if nothing more would ever come: the job is being drained."""


@dataclass(frozen=True, slots=True)
class FinaliseCheckpoint:
    """All subtasks have acknowledged: write `_metadata`, then report `Finalised` or `FinaliseFailed`."""

    checkpoint_id: int
    kind: CheckpointKind


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """Tell every subtask; sinks commit, unless it is a savepoint that isn't the last of the job."""

    checkpoint_id: int
    kind: CheckpointKind
    last: bool = False
    """Once it is committed the job has finished."""

    @property
    def commits(self) -> bool:
        return self.last or self.kind is not CheckpointKind.SAVEPOINT


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Tell every subtask that the checkpoint is given up, and delete what it wrote privately (never `shared/`).

    `_metadata` is deleted first, so that a crash on the way leaves no checkpoint that can be found and not restored.
    If nothing is `missing` and the reason isn't `FINALISE`, `_metadata` is still being written and may become durable:
    then nothing is deleted until its writer has reported, which `DeleteCheckpoint` answers.
    """

    checkpoint_id: int
    kind: CheckpointKind
    reason: FailureReason
    message: str
    missing: tuple[int, ...] = field(default=())
    """Subtasks that had not acknowledged. Empty: all had, see above."""


@dataclass(frozen=True, slots=True)
class RejectRequest:
    """A user request that can't be served; `message` says why."""

    token: str
    message: str


@dataclass(frozen=True, slots=True)
class DeleteCheckpoint:
    """A completed checkpoint beyond the retained number, or one whose `_metadata` writer ended after it was given up:
    delete it off the critical path, `_metadata` first, then `DeletionDone`."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class DiscardAcknowledgement:
    """A late or unknown acknowledgement: delete that subtask's private files, never anything in `shared/`."""

    checkpoint_id: int
    subtask: int


@dataclass(frozen=True, slots=True)
class FailJob:
    """More consecutive failures than tolerated."""

    message: str


Action = (
    TriggerCheckpoint
    | BarrierPassed
    | EndInput
    | FinaliseCheckpoint
    | NotifyComplete
    | NotifyAborted
    | RejectRequest
    | DeleteCheckpoint
    | DiscardAcknowledgement
    | FailJob
)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The coordinator's facts, sent to every subtask about once a second and with every notification.

    A source gate that has missed a notification is right again after this.
    """

    in_progress: tuple[tuple[int, CheckpointKind], ...]
    """Ids and kinds of the checkpoints triggered and not resolved, ascending."""
    span_scale: float
    """Factor on every source's span: halved by each expiry, doubled back by each completion, at most 1."""
    held_back: str | None
    """Why the next periodic checkpoint isn't triggered now, in words; `None` if it is only not due yet."""
    passed: tuple[tuple[int, float, float, float], ...] = ()
    """For a source subtask: of those in progress whose barriers have passed all that it reaches, what `BarrierPassed`
    says: id, start delay, mean span and that of busy sources."""
