"""What driver and subtasks say to each other: a class for each kind of message.

`pipeline.runtime.message_connection` says how they travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar, get_args

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination import coordinator_events
from checkpoint.gate import gate_events
from checkpoint.storage.local_copies import Copy
from checkpoint.storage.metadata import SubtaskSnapshot
from pipeline.runtime.deployment import Deployment
from pipeline.runtime.liveness import Limits
from pipeline.runtime.point_query import Found, PointQuery

M = TypeVar("M")


# -- from the driver to a subtask -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The first thing that the driver says."""

    versions: Mapping[str, str]
    """The driver's (`pipeline.runtime.versions`)."""
    first_attempt: bool
    """See `JobSpec`."""
    limits: Limits
    spec: bytes = field(repr=False)
    """A pickled `JobSpec`."""


@dataclass(frozen=True, slots=True)
class Deploy:
    """All processes are up: this is your place."""

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class BarrierOptions:
    """What a source has to know of a barrier beside id and kind."""

    target: str | None = None
    """Where a savepoint goes: see `checkpoint.barriers.events.Barrier`."""
    stop: bool = False
    """Emit nothing behind it, unless the checkpoint is aborted."""
    unaligned: bool = False
    """It overtakes what is in flight from the start, whatever the checkpoints' options say, unless records may come
    twice anyway."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Source subtasks: take this barrier."""

    checkpoint_id: int
    kind: CheckpointKind
    options: BarrierOptions = BarrierOptions()


@dataclass(frozen=True, slots=True)
class BarrierPassed:
    """Source subtasks: a barrier has passed all that this source reaches."""

    event: gate_events.BarrierPassed


@dataclass(frozen=True, slots=True)
class EndInput:
    """Source subtasks: end, as if nothing more would come."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint is complete."""

    checkpoint_id: int
    kind: CheckpointKind
    commits: bool
    """Sinks commit it."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """A checkpoint will not complete."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The coordinator's facts. The first one says that all subtasks run."""

    facts: coordinator_events.Heartbeat
    options: Mapping[int, BarrierOptions] = field(default_factory=dict)
    """Options of the checkpoints in progress that have some, by id."""


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
class ReplayEnded:
    """Source subtasks: what was restored in flight has gone through the job; emit what is new."""


@dataclass(frozen=True, slots=True)
class Query:
    """Look up the state of a key; `QueryAnswered` is the answer."""

    number: int
    """Of the query, among all of the job."""
    query: PointQuery


@dataclass(frozen=True, slots=True)
class Quiesce:
    """The job's last checkpoint is committed everywhere: process nothing more, and expect peers to leave."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Everybody is quiet: leave."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The attempt is over: leave now."""

    job_over: bool = False
    """There will be no other attempt."""


# -- from a subtask to the driver -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A process is ready for a subtask."""

    versions: Mapping[str, str]
    """The process' (`pipeline.runtime.versions`)."""
    partition: int
    """Spark's number for it."""
    host: str
    pid: int
    address: tuple[str, int]
    """Where its peers reach it."""
    folder: str = ""
    """Where its local copies are: processes with the same one find the same. Empty without local recovery."""
    copies: tuple[Copy, ...] = ()
    """What it found there."""


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    """What the task does from now on, reading on from its name ("is in open() of 'model'"); `None`: it runs."""

    phase: str | None


@dataclass(frozen=True, slots=True)
class Running:
    """The subtask is set up, with its state restored."""

    highest_checkpoint: int = 0
    """Largest checkpoint id that its sinks know of; 0 for none."""
    restored_epochs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Restored epochs that are not committed yet, by sink."""


@dataclass(frozen=True, slots=True)
class OutputBegan:
    """A sink has taken its first record, which is visible once a checkpoint is complete."""


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The subtask has taken its snapshot, and goes on; it is not written yet."""

    checkpoint_id: int
    span: int | None = None
    """See `coordinator_events.SnapshotTaken`."""
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The subtask's snapshot is written."""

    checkpoint_id: int
    snapshot: SubtaskSnapshot
    statistics: Mapping[str, Any]
    """By name, for the checkpoint's history."""


@dataclass(frozen=True, slots=True)
class Declined:
    """There will be no snapshot for this checkpoint."""

    checkpoint_id: int
    message: str
    asynchronous: bool
    """It was taken, and could not be written."""


@dataclass(frozen=True, slots=True)
class CheckpointAsked:
    """A source's gate asks for a checkpoint before the next one is due."""

    last_barrier: int
    """Id of the newest barrier that the source knows of."""


@dataclass(frozen=True, slots=True)
class InputEnded:
    """All input of the subtask has ended and is processed."""


@dataclass(frozen=True, slots=True)
class RestoreBarrierArrived:
    """A subtask without outputs: the restore barrier has come through on all inputs, and what was restored here is
    processed."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """The subtask processes nothing more (the answer to `Quiesce`)."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A sink has committed a checkpoint's output."""

    step: str
    checkpoint_id: int
    records: bool
    """Whether there was any."""


@dataclass(frozen=True, slots=True)
class RestoredEpochCommitted:
    """A sink has committed a restored epoch (the answer to `ReleaseEpoch`)."""

    step: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """The subtask's metrics."""

    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueryAnswered:
    """The answer to `Query`."""

    number: int
    found: Found


class FailureKind(StrEnum):
    """What the driver makes of a subtask's failure."""

    ERROR = "error"
    PERMANENT = "permanent"
    """No restart can help."""
    DAMAGED = "damaged"
    """A file of the restored checkpoint can't be used."""
    PEER = "peer"
    """It has lost another subtask, whose failure is the cause."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The subtask has failed, and says nothing more."""

    kind: FailureKind
    message: str
    traceback: str
    """Empty if it would say nothing."""
    where: str
    """Names the process, for as long as it has no subtask's name."""
    step: str | None
    """That the error came from, if there are several."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The subtask is closed, and says nothing more."""

    metrics: Mapping[str, Any]


# -- all of them ------------------------------------------------------------------------------------------------------

ToSubtask = (
    Job
    | Deploy
    | Trigger
    | BarrierPassed
    | EndInput
    | Completed
    | Aborted
    | Heartbeat
    | ReleaseEpoch
    | ReleaseNew
    | ReplayEnded
    | Query
    | Quiesce
    | Finish
    | Cancel
)
Report = (
    PhaseEntered
    | Running
    | OutputBegan
    | SnapshotTaken
    | Acknowledged
    | Declined
    | CheckpointAsked
    | InputEnded
    | RestoreBarrierArrived
    | Quiet
    | Committed
    | RestoredEpochCommitted
    | Metrics
    | QueryAnswered
    | Closed
)
"""What a subtask says that has been deployed."""
ToDriver = Hello | Failed | Report


class Direction(Generic[M]):
    """The messages that one side receives, by name."""

    def __init__(self, messages: Any):
        """`messages`: a union of classes."""
        self.classes: Mapping[str, type[M]] = {cls.__name__: cls for cls in get_args(messages)}


TO_SUBTASK: Final[Direction[ToSubtask]] = Direction(ToSubtask)
TO_DRIVER: Final[Direction[ToDriver]] = Direction(ToDriver)
