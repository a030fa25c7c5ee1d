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
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from checkpoint.committables import Committable as Committable
from checkpoint.committables import CommittableName as CommittableName
from checkpoint.errors import PermanentFailure as PermanentFailure
from checkpoint.metrics import MetricSink
from checkpoint.storage.handles import FileHandle
from checkpoint.waiting import Waiting

if TYPE_CHECKING:
    # With a default, a plain `Sink` takes anything; Python 3.11 has no such variables at run time.
    from typing_extensions import TypeVar as TypeVarWithDefault

    T = TypeVarWithDefault("T", default=Any, contravariant=True)
else:
    T = TypeVar("T", contravariant=True)


class RecordContext(Protocol):
    """What a writer may ask about the record that it is given."""

    @property
    def key(self) -> Any:
        """The stream's key; `None` on a stream without."""

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since the epoch; `None` on a stream without timestamps."""

    @property
    def watermark(self) -> int | None:
        """What holds where the sink stands in the chain, milliseconds since the epoch; `None` before the first."""


@dataclass(slots=True)
class SinkBatch:
    """Records in the order they came, column-wise; lists of one length.

    Attributes:
        values: the records.
        timestamps: milliseconds since 1970; `None` where a record has none.
        keys: the stream's key (`None` on a stream without).
    """

    values: list[Any]
    timestamps: list[int | None]
    keys: list[Any]

    def __len__(self) -> int:
        return len(self.values)


class StagedFile(Protocol):
    """A file being written in the checkpoint storage."""

    def write(self, data: bytes | memoryview | Any) -> None:
        """Append bytes."""

    def close(self) -> FileHandle:
        """Make it durable. The handle has path, size and checksum."""

    def abort(self) -> None:
        """Drop it."""


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
    """What a writer knows of its job.

    Attributes:
        pipeline: its name.
        sink_id: the sink step's id in the pipeline.
        subtask: from 0 to `parallelism` - 1.
        parallelism: subtasks of the sink.
        staging: where files go that belong to checkpoints.
        metrics: where a writer counts.
        waiting: where a writer says what it waits for that lies outside of the job.
    """

    pipeline: str
    sink_id: str
    subtask: int
    parallelism: int
    staging: Staging
    metrics: MetricSink
    waiting: Waiting = field(default_factory=Waiting)


@dataclass(frozen=True, slots=True)
class Lineage:
    """A history of checkpoints: begun by a start without restore (or a rewind), kept by every restore.

    Attributes:
        id: its name, which no other has.
        parent: lineage and checkpoint that this one branched off, `None` for one that started from nothing.
    """

    id: str
    parent: tuple[str, int] | None = None


@dataclass(frozen=True)
class CommitterContext:
    """What a committer knows. There is one committer for each writer. After rescaling, a subtask may have several: the
    output of a writer that is no more is committed by one that is.

    Attributes:
        pipeline: its name.
        sink_id: the sink step's id in the pipeline.
        writer: index of the subtask that has written what is to be committed, at the parallelism it was written with.
        lineage: the history that the job's checkpoints belong to from now on.
        restored_checkpoint: id of the checkpoint restored; 0 at a start without restore.
        restored_state: what `Committer.snapshot` returned for this writer in that checkpoint; `None` if it had none.
        rewind: whether the user accepts output that is ahead of the checkpoint (`start(rewind=True)`).
        ignore_earlier_output: whether the user accepts earlier output under the same names (`start(restore="none")`).
        staging: where files lie that belong to checkpoints.
        metrics: where a committer counts.
        check_owner: raises `Fenced` when another driver has taken the job over. To be called before anything that
            fences or commits.
        fork: whether the checkpoint restored is another pipeline's. Its output and names must be left alone.
        waiting: where a committer says what it waits for that lies outside of the job, such as brokers that are down.
    """

    pipeline: str
    sink_id: str
    writer: int
    lineage: Lineage
    restored_checkpoint: int
    restored_state: Any
    rewind: bool
    ignore_earlier_output: bool
    staging: Staging
    metrics: MetricSink
    check_owner: Callable[[], None]
    fork: bool = False
    waiting: Waiting = field(default_factory=Waiting)


@dataclass(frozen=True)
class WriterRestore:
    """What a start would restore of one writer (see `CommitterContext`).

    Attributes:
        pipeline: its name.
        sink_id: the sink step's id in the pipeline.
        writer: index of the subtask that has written.
        lineage: the history that the job's checkpoints belong to from now on.
        checkpoint: id of the checkpoint restored; 0 at a start without restore.
        pending: what is not known to be committed.
        rewind: whether the user accepts output that is ahead of the checkpoint.
        fork: whether the checkpoint is another pipeline's.
        state: what `Committer.snapshot` returned for it; `None` if it had none, or another pipeline's.
    """

    pipeline: str
    sink_id: str
    writer: int
    lineage: Lineage
    checkpoint: int
    state: Any
    pending: Sequence[Committable]
    rewind: bool
    fork: bool


class SinkWriter(ABC):
    """Writes in one subtask. Only the task thread calls it.

    Implement `write` or `write_batch`. The runtime calls `write_batch` if there is one, with a few records at a time,
    else `write` for each record.
    """

    def write(self, value: Any, ctx: RecordContext) -> None:
        """Take one record.

        Raises:
            Exception: the record can't be delivered. The attempt fails, and no checkpoint covers the record.
        """
        raise NotImplementedError(f"{type(self).__name__} implements neither write nor write_batch")

    def write_batch(self, batch: SinkBatch) -> None:
        """Take several records at once (see `write`)."""
        raise NotImplementedError(f"{type(self).__name__} implements neither write nor write_batch")

    @abstractmethod
    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        """End the epoch: a barrier has come.

        Returns:
            What was written since the last barrier, as committables in order; may be empty. Each is a value of plain
            types, or a pair `(value, [FileHandle, ...])` if it refers to staged files.
        """

    def close(self) -> None:
        """Release everything. What is not in a committable must never become visible.

        Called once, also after a failure.
        """


class Committer(ABC):
    """Commits what one writer has prepared. One committing thread calls it, except for `snapshot`."""

    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        """Begin, before the subtask takes part in a checkpoint.

        Args:
            restored: the committables that the restored checkpoint holds and does not know to be committed, in order.

        Returns:
            Those of `restored` that still must be committed, in order. By default all of them, so that `commit` must
            be idempotent over restarts; a committer that can tell returns fewer.
        """
        return restored

    @abstractmethod
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        """Make all of them visible, in order. Durable on return. Must be idempotent.

        Args:
            checkpoint_id: the completed checkpoint whose epoch they belong to.
            committables: may be empty: every completed checkpoint is committed.

        Raises:
            PermanentFailure: no restart can help; the job ends.
            Exception: not, or perhaps not, committed. The attempt fails, and the restore commits again.
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
        """The largest checkpoint id that is known from output committed outside, such as from a marker. Checkpoints of
        this job get larger ids."""
        return 0

    def snapshot(self) -> Any:
        """What a restore of the checkpoint gives back as `restored_state`, of plain types.

        The task thread calls it at a barrier, perhaps while `commit` is running: return a value that is replaced whole,
        never changed in place.
        """
        return None

    def close(self) -> None:
        """Release everything."""


class Sink(ABC, Generic[T]):
    """A sink's definition. The driver pickles it, so it holds no clients and no open files. It takes records of type T,
    for type checkers."""

    needs_checkpoints: bool = False
    """Whether output is only visible once a checkpoint is complete. Then an unbounded job without a checkpoint folder
    is refused."""

    def validate(self) -> None:
        """Called on the driver before the job starts: see whether the sink can run. Leaves this object as it is.

        Raises:
            Exception: it can't; the message says what to do.
        """

    def validate_as(self, pipeline: str, sink_id: str, parallelism: int) -> None:
        """Called on the driver after `validate`: check what depends on the names that the sink gets, such as
        permissions. Changes nothing, and must not disturb a job that runs under the same names.

        Raises:
            Exception: the sink can't run; the message says what to do.
        """

    def exclusive_names(self, pipeline: str, sink_id: str) -> Sequence[str]:
        """Names outside that no other sink may use, described so that a user knows them. Two sinks of a pipeline that
        describe the same are refused."""
        return ()

    @abstractmethod
    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        """Called once in each subtask."""

    def create_committer(self, ctx: CommitterContext) -> Committer | None:
        """Called for each writer whose output the subtask commits.

        Returns:
            `None` if the writers deliver on their own.
        """
        return None

    def check_restore(self, restore: WriterRestore) -> None:
        """See whether a checkpoint that the user has named can be restored. Called on the driver before the start takes
        the job over, so that a start that must be refused leaves everything as it is. Changes nothing; the committer
        checks again.

        Raises:
            PermanentFailure: the committer would refuse it.
        """

    def uncommitted(
        self, pipeline: str, sink_id: str, writer: int, state: Any, committables: Sequence[Committable]
    ) -> Sequence[Committable]:
        """Which of a checkpoint's committables are not committed, or may not be. Called on the driver. Changes nothing.

        Args:
            writer: who has prepared them.
            state: what `Committer.snapshot` returned for this writer in that checkpoint; `None` if it had none.
        """
        return committables
