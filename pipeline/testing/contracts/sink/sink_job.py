"""A job around one sink, without Spark: attempts, epochs, checkpoints, crashes."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint.codec import decode
from checkpoint.commit_log import CommitLog, CommitOrder
from checkpoint.committables import Committable, CommittableName, SinkState
from checkpoint.storage.fencing import Fenced
from checkpoint.storage.file_io import StagedFile
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.staging import SharedStaging
from checkpoint.storage.storage import CheckpointStorage
from pipeline.testing.contracts.common import ContractBroken, NoMetrics, pickled_copy, wire
from sinks.sink import Committer, CommitterContext, Lineage, Sink, SinkBatch, SinkWriter, WriterContext

SINK_ID = "sink"
PLAIN = "committables-are-plain"


class Interrupted(RuntimeError):
    """What the suite raises in a commit."""


@dataclass
class Record:
    """A record and what a writer may ask about it."""

    value: Any
    key: Any = None
    timestamp: int | None = 1_700_000_000_000
    watermark: int | None = None


class Faults:
    """Makes the n-th call that a commit does of Weir's own fail."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.fenced = False

    def hit(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Interrupted("the suite lets this call fail")

    def check_owner(self) -> None:
        if self.fenced:
            raise Fenced("another driver owns the job (the suite says so)")
        self.hit()


class _Staging:
    def __init__(self, staging: SharedStaging, faults: Faults) -> None:
        self._staging = staging
        self._faults = faults

    def create(self, hint: str) -> StagedFile:
        return self._staging.create(hint)

    def read(self, handle: FileHandle) -> bytes:
        self._faults.hit()
        return self._staging.read(handle)


@dataclass(frozen=True)
class Checkpoint:
    id: int
    lineage: Lineage
    data: tuple[bytes, ...]
    """What each subtask held of the sink."""

    @property
    def state(self) -> SinkState:
        return SinkState.from_wire(*map(decode, self.data))


class SinkJob:
    """A pipeline with one sink, over all its attempts."""

    def __init__(self, sink: Sink, folder: Path, pipeline: str, attempts: int = 0) -> None:
        """
        Args:
            attempts: that there were before this process.
        """
        self.pickled, _ = pickled_copy(sink, "the sink")
        self.sink = sink
        self.pipeline = pipeline
        self.folder = folder
        self.lineage = Lineage("lineage-1")
        self._epochs = itertools.count(attempts + 1)
        self.next_id = 1
        """The next checkpoint's; larger than all before, in whatever attempt."""

    def start(
        self,
        parallelism: int = 1,
        restore: Checkpoint | None = None,
        *,
        rewind: bool = False,
        ignore_earlier_output: bool = False,
        lineage: Lineage | None = None,
        fork: bool = False,
    ) -> Attempt:
        if lineage is not None:
            self.lineage = lineage
        return Attempt(self, parallelism, restore, next(self._epochs), rewind, ignore_earlier_output, fork)


class Attempt:
    """Writers and committers as subtasks have them, driven one step after the other."""

    def __init__(
        self,
        job: SinkJob,
        parallelism: int,
        restore: Checkpoint | None,
        epoch: int,
        rewind: bool,
        ignore_earlier_output: bool,
        fork: bool,
    ) -> None:
        self.job = job
        self.parallelism = parallelism
        self.faults = Faults()
        sink: Sink = pickled_copy(job.sink, "the sink")[1]
        storage = CheckpointStorage(str(job.folder), job.pipeline)
        storage.prepare()
        self._staging = _Staging(SharedStaging(storage, epoch), self.faults)
        held = restore.state if restore is not None and not fork else SinkState()
        self.writers: list[SinkWriter] = []
        self.committers: list[dict[int, Committer]] = []
        self.logs: list[CommitLog] = []
        self.highest = 0
        for subtask in range(parallelism):
            self.writers.append(
                sink.create_writer(
                    WriterContext(job.pipeline, SINK_ID, subtask, parallelism, self._staging, NoMetrics())
                )
            )
            mine = held.of_writers(lambda writer, subtask=subtask: writer % parallelism == subtask)  # type: ignore[misc]
            committers: dict[int, Committer] = {}
            pending: dict[int, Sequence[Committable]] = {}
            for writer in sorted({subtask, *mine.writers}):
                committer = sink.create_committer(
                    CommitterContext(
                        pipeline=job.pipeline,
                        sink_id=SINK_ID,
                        writer=writer,
                        lineage=job.lineage,
                        restored_checkpoint=restore.id if restore else 0,
                        restored_state=mine.committers.get(writer),
                        rewind=rewind,
                        ignore_earlier_output=ignore_earlier_output,
                        staging=self._staging,
                        metrics=NoMetrics(),
                        check_owner=self.faults.check_owner,
                        fork=fork,
                    )
                )
                if committer is None:
                    continue
                committers[writer] = committer
                restored = mine.pending.get(writer, ())
                pending[writer] = list(committer.open(restored))
                self.highest = max(self.highest, committer.highest_checkpoint())
                unknown = [each.name for each in pending[writer] if each not in restored]
                if unknown:
                    raise ContractBroken(
                        "open-returns-what-is-left",
                        f"open() returned committables that were not among those restored: {unknown}",
                        "return those of `restored` that still must be committed, as they are, in order",
                    )
            self.committers.append(committers)
            self.logs.append(CommitLog(subtask, pending))
        job.next_id = max(job.next_id, self.highest + 1)

    @property
    def commits(self) -> bool:
        return bool(self.committers[0])

    def write(self, values: Sequence[Any], keys: Sequence[Any] | None = None) -> None:
        """Deal them to the writers, each writer's in order."""
        keys = list(keys) if keys is not None else [None] * len(values)
        for subtask, writer in enumerate(self.writers):
            rows = [Record(v, k) for v, k in zip(values, keys, strict=True)][subtask :: self.parallelism]
            if not rows:
                continue
            if type(writer).write_batch is not SinkWriter.write_batch:
                for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                    if half:
                        writer.write_batch(
                            SinkBatch([r.value for r in half], [r.timestamp for r in half], [r.key for r in half])
                        )
            else:
                for row in rows:
                    writer.write(row.value, row)

    def barrier(self) -> Checkpoint:
        """A barrier in every subtask: the checkpoint as it would be, once complete."""
        checkpoint_id, self.job.next_id = self.job.next_id, self.job.next_id + 1
        data = []
        for subtask, writer in enumerate(self.writers):
            committables = [
                Committable.of(CommittableName(checkpoint_id, index), one)
                for index, one in enumerate(writer.prepare_commit(checkpoint_id))
            ]
            if committables and not self.committers[subtask]:
                raise ContractBroken(
                    "committables-need-a-committer",
                    "prepare_commit returned committables, but create_committer returned None",
                    "return a Committer, or nothing from prepare_commit",
                )
            # A committer gets what a checkpoint would give it, never the objects that the writer made.
            copies = [Committable.from_wire(decode(wire(c.to_wire(), PLAIN, "a committable"))) for c in committables]
            self.logs[subtask].add(checkpoint_id, copies)
            states = {}
            for number, committer in self.committers[subtask].items():
                states[number] = committer.snapshot()
            held = SinkState(self.logs[subtask].snapshot(), states)
            data.append(wire(held.to_wire(), "committer-state-is-plain", "what Committer.snapshot returned"))
        return Checkpoint(checkpoint_id, self.job.lineage, tuple(data))

    def complete(self, checkpoint: Checkpoint) -> None:
        """The checkpoint is durable; nothing is committed yet."""
        for log in self.logs:
            log.complete(checkpoint.id)

    def orders(self) -> list[tuple[int, CommitOrder]]:
        """What is to be committed next, by subtask; restored epochs of all subtasks first, oldest first."""
        epochs = [epoch for log in self.logs for epoch in log.restored_epochs()]
        for log in self.logs:
            if epochs:
                log.release_restored(min(epochs))
            else:
                log.release_new()
        found = [(subtask, log.next_commit()) for subtask, log in enumerate(self.logs)]
        return [(subtask, order) for subtask, order in found if order is not None]

    def commit(self, subtask: int, order: CommitOrder, *, notify: bool = True) -> None:
        """
        Args:
            notify: False = the process dies before anybody knows.
        """
        committer = self.committers[subtask].get(order.writer)
        if committer is not None:
            committer.commit(order.checkpoint_id, order.committables)
        if notify:
            self.logs[subtask].committed(order)

    def commit_all(self) -> None:
        while orders := self.orders():
            for subtask, order in orders:
                self.commit(subtask, order)

    def checkpoint(self) -> Checkpoint:
        """Barrier, completion and commits."""
        checkpoint = self.barrier()
        self.complete(checkpoint)
        self.commit_all()
        return checkpoint

    def close(self) -> None:
        """The attempt ends, also after a failure."""
        for writer in self.writers:
            writer.close()
        for committers in self.committers:
            for committer in committers.values():
                committer.close()
        self._forget()

    def die(self) -> None:
        """The processes are gone: nothing is closed, connections break."""
        self._forget()

    def _forget(self) -> None:
        self.writers, self.committers, self.logs = [], [], []
        gc.collect(1)
