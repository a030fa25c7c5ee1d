"""The sink contract: writer → committables → committer.

A *writer* takes records during an epoch (the time between two barriers) and turns them into *committables* when the
barrier comes. Committables are part of the checkpoint. Once it is complete a *committer* makes them visible, and can
do so again after a crash at any instruction. Committables that are not known to be committed travel with every later
checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from checkpoint.committables import Committable as Committable
from checkpoint.committables import SegmentName as SegmentName
from checkpoint.errors import PermanentFailure as PermanentFailure
from checkpoint.metrics import MetricSink
from checkpoint.storage.handles import FileHandle
from checkpoint.waiting import Waiting


class RecordContext(Protocol):
    """What a writer may ask about the record in progress."""

    @property
    def key(self) -> Any: ...

    @property
    def timestamp(self) -> int | None: ...

    @property
    def watermark(self) -> int | None: ...


@dataclass(slots=True)
class SinkBatch:
    """Records in the order they came, column-wise; lists of one length."""

    values: list[Any]
    timestamps: list[int | None]
    """Milliseconds since the epoch."""
    keys: list[Any]
    """The stream's key (`None` on a stream without)."""

    def __len__(self) -> int:
        return len(self.values)


class StagedFile(Protocol):
    """A file being written in the checkpoint storage."""

    def write(self, data: bytes | memoryview | Any) -> None: ...

    def close(self) -> FileHandle:
        """Make it durable. The handle has path, size and checksum."""

    def abort(self) -> None: ...


class Staging(Protocol):
    """The checkpoint storage as sinks see it: files under `shared/`, named by the attempt, never overwritten."""

    def create(self, hint: str) -> StagedFile:
        """A new file; `hint` becomes part of its name."""

    def read(self, handle: FileHandle) -> bytes:
        """The content, verified.

        Raises:
            DamagedFile: its size or checksum differs; the message names the file.
        """


@dataclass(frozen=True)
class WriterContext:
    pipeline: str
    sink_id: str
    subtask: int
    parallelism: int
    staging: Staging
    metrics: MetricSink
    waiting: Waiting = field(default_factory=Waiting)
    """Where a writer says what it waits for that lies outside of the job."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """A history of checkpoints: begun by a start without restore (or a rewind), kept by every restore."""

    id: str
    parent: tuple[str, int] | None = None
    """Lineage and checkpoint that this one branched off, `None` for one that started from nothing."""


@dataclass(frozen=True)
class CommitterContext:
    """What a committer knows. There is one committer for each *writer*: the sink subtask index whose committables it
    commits, at the parallelism they were written with. After rescaling a subtask may host several writers."""

    pipeline: str
    sink_id: str
    writer: int
    lineage: Lineage
    restored_checkpoint: int
    """Id of the checkpoint restored; 0 at a start without restore."""
    restored_state: Any
    """What `Committer.snapshot` returned for this writer in that checkpoint; `None` if it had none."""
    rewind: bool
    """The user accepts output that is ahead of the checkpoint (`start(rewind=True)`)."""
    ignore_earlier_output: bool
    """`start(restore="none")`: earlier output under the same names is accepted."""
    staging: Staging
    metrics: MetricSink
    check_owner: Callable[[], None]
    """Raises `Fenced` when another driver has taken the job over. To be called before anything that
    fences or commits."""
    fork: bool = False
    """The checkpoint restored is another pipeline's, whose output and names this job must leave alone."""
    waiting: Waiting = field(default_factory=Waiting)
    """Where a committer says what it waits for that lies outside of the job, such as brokers that are down."""


@dataclass(frozen=True)
class WriterRestore:
    """What a start would restore of one writer (see `CommitterContext`)."""

    pipeline: str
    sink_id: str
    writer: int
    lineage: Lineage
    checkpoint: int
    state: Any
    """What `Committer.snapshot` returned for it; `None` if it had none, or another pipeline's."""
    pending: Sequence[Committable]
    rewind: bool
    fork: bool


class SinkWriter(ABC):
    """Writes in one subtask; called by the task thread only. Implement `write` or `write_batch` (runtime calls
    `write_batch` if it is overridden, in slices bounded by time, else `write` for each record)."""

    def write(self, value: Any, ctx: RecordContext) -> None:
        """Take one record.

        Raises:
            Exception: the record can't be delivered; fails the attempt while the record is in progress.
        """
        raise NotImplementedError(f"{type(self).__name__} implements neither write nor write_batch")

    def write_batch(self, batch: SinkBatch) -> None:
        """Take several records at once (see `write`)."""
        raise NotImplementedError(f"{type(self).__name__} implements neither write nor write_batch")

    @abstractmethod
    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        """The barrier has come: what was written since the last one, as committables in order (may be empty).

        Each is a value of plain types, or a pair `(value, [FileHandle, ...])` if it refers to staged files.
        """

    def close(self) -> None:
        """Release everything; what is not in a committable is dropped. Called once, also after a failure."""


class Committer(ABC):
    """Commits for one writer; called by one committing thread only, except `snapshot`."""

    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        """Called before the subtask takes part in a checkpoint.

        Args:
            restored: committables of the restored checkpoint that it does not know to be committed, in order.

        Returns:
            Those of `restored` that still must be committed, in order. By default all of them, so that `commit` must
            be idempotent over restarts; a committer that can tell returns fewer.
        """
        return restored

    @abstractmethod
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        """Make them visible, all of them, in order; durable on return. Idempotent.

        Called also with an empty list. `checkpoint_id` is the completed checkpoint whose epoch they belong to.

        Raises:
            PermanentFailure: no restart can help; the job ends.
            Exception: not (or perhaps not) committed; fails the attempt, and the restore commits again.
        """

    @property
    def refresh_interval(self) -> float | None:
        """Seconds without a call of `commit` after which `refresh` is called; `None` for never."""
        return None

    def refresh(self) -> None:
        """Renew what would expire outside while nothing is committed. Called by the committing thread.

        Raises:
            Exception: as `commit`.
        """

    def highest_checkpoint(self) -> int:
        """The largest checkpoint id known from what is committed outside (a marker); ids given later are larger."""
        return 0

    def snapshot(self) -> Any:
        """What the next restore's `restored_state` shall be, of plain types. Called by the task thread at a barrier
        while `commit` may be running: return a value that is replaced whole, never changed in place."""
        return None

    def close(self) -> None:
        """Release everything."""


class Sink(ABC):
    """A sink's definition: serialisable, holds no clients or open files."""

    needs_checkpoints: bool = False
    """Whether an unbounded job without a checkpoint folder must be refused (nothing would ever be visible)."""

    def validate(self) -> None:
        """As `Source.validate`."""

    def validate_as(self, pipeline: str, sink_id: str, parallelism: int) -> None:
        """Called on the driver after `validate`: check what depends on the names that the sink gets. Changes nothing,
        and must not disturb a job that runs under the same names.

        Raises:
            Exception: the sink can't run; the message says what to do.
        """

    def exclusive_names(self, pipeline: str, sink_id: str) -> Sequence[str]:
        """What of the outside the sink has for itself, described so that a user knows it. Two sinks of a pipeline that
        describe the same are refused."""
        return ()

    @abstractmethod
    def create_writer(self, ctx: WriterContext) -> SinkWriter: ...

    def create_committer(self, ctx: CommitterContext) -> Committer | None:
        """`None` for sinks whose writers deliver on their own."""
        return None

    def check_restore(self, restore: WriterRestore) -> None:
        """Called on the driver before a start from a checkpoint that the user has named takes the job over, so that
        one that must be refused leaves everything as it is. Changes nothing; the committer checks again.

        Raises:
            PermanentFailure: the committer would refuse it.
        """

    def uncommitted(
        self, pipeline: str, sink_id: str, writer: int, state: Any, committables: Sequence[Committable]
    ) -> Sequence[Committable]:
        """Which of a checkpoint's committables are not committed, or may not be. Called on the driver; changes nothing.

        Args:
            state: what `Committer.snapshot` returned for this writer in that checkpoint; `None` if it had none.
        """
        return committables
