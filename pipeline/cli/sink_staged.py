"""What a stopped job's newest checkpoint holds of a Kafka sink, and committing it without some records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpoint.committables import Committable, CommittableName, SinkState
from checkpoint.metrics import Gauged
from checkpoint.storage import fencing
from checkpoint.storage.restore import RestorePoint, newest, sink_state
from checkpoint.storage.staging import SharedStaging
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import PipelineError
from pipeline.graph import StepKind
from pipeline.job import Pipeline
from pipeline.runtime.running_jobs import running_jobs
from sinks import CommitterContext, KafkaSink, Lineage
from sinks.kafka.committer import KafkaCommitter
from sinks.kafka.skip import StagedRecord, find_segment, skip, staged_records, to_commit


@dataclass(frozen=True)
class Staged:
    pipeline: str
    sink_id: str
    sink: KafkaSink
    storage: CheckpointStorage
    """The job's folder."""
    point: RestorePoint
    held: SinkState

    @property
    def checkpoint(self) -> int:
        return self.point.metadata.id

    @property
    def uri(self) -> str:
        """URI of the checkpoint."""
        return self.point.uri

    @property
    def writers(self) -> list[int]:
        return sorted(self.held.pending)

    def waiting(self, writer: int) -> Sequence[Committable]:
        """What a writer has prepared and is not committed, in order. Asks the brokers.

        Raises:
            PipelineError: there is no such writer.
        """
        if writer not in self.held.pending:
            there = ", ".join(map(str, self.writers)) or "none"
            raise PipelineError(f"{self.uri} holds no output of writer {writer}; writers with output: {there}")
        pending = self.held.pending[writer]
        return self.sink.uncommitted(self.pipeline, self.sink_id, writer, self.held.committers.get(writer), pending)

    def records(self, writer: int, name: CommittableName, rows: Collection[int]) -> list[StagedRecord]:
        """
        Raises:
            PipelineError, NotSkipped: there are no such records, or they are committed.
            DamagedFile: the segment can't be read.
        """
        return staged_records(find_segment(self.waiting(writer), name), self._staging(0), rows)

    def upto(self, writer: int, name: CommittableName) -> dict[tuple[int, int], list[Committable]]:
        """By epoch and writer: what is committed with a writer's segment. Asks the brokers.

        Raises:
            PipelineError: as `waiting`.
        """
        return to_commit({each: self.waiting(each) for each in {writer, *self.writers}}, writer, name)

    def skip(self, writer: int, name: CommittableName, rows: Collection[int], save: Path) -> int:
        """Take the job over, so that whoever else runs it is fenced, then do as `sinks.kafka.skip.skip`.

        Raises:
            StorageError: ownership can't be taken.
        """
        ownership = fencing.take_ownership(self.storage)
        fencing.record_nothing_given_up(self.storage, ownership)
        committers = {
            each: self._committer(each, ownership.attempt, lambda: fencing.check(self.storage, ownership))
            for each in sorted({writer, *(each for _, each in self.upto(writer, name))})
        }
        return skip(committers, self.held.pending, writer, name, rows, save, self._staging(ownership.attempt))

    def _staging(self, attempt: int) -> SharedStaging:
        return SharedStaging(self.point.storage, attempt)

    def _committer(self, writer: int, attempt: int, check_owner: Callable[[], None]) -> KafkaCommitter:
        metadata = self.point.metadata
        context = CommitterContext(
            pipeline=self.pipeline,
            sink_id=self.sink_id,
            writer=writer,
            lineage=Lineage(metadata.lineage, metadata.lineage_parent),
            restored_checkpoint=metadata.id,
            restored_state=self.held.committers.get(writer),
            rewind=False,
            ignore_earlier_output=False,
            staging=self._staging(attempt),
            metrics=_NoMetrics(),
            check_owner=check_owner,
        )
        committer = self.sink.create_committer(context)
        if not isinstance(committer, KafkaCommitter):
            raise TypeError(f"sink {self.sink_id!r} has another committer than a KafkaSink: {committer!r}")
        return committer


def find_staged(pipeline: Pipeline, sink_id: str) -> Staged:
    """
    Raises:
        PipelineError: the job runs here, it has no such sink, or nothing that could be committed.
        DamagedFile, StorageError: as `checkpoint.storage.restore`.
    """
    sinks = {
        step.id: step.payload
        for vertex in pipeline.plan().vertices
        for step in vertex.steps
        if step.kind is StepKind.SINK
    }
    sink = sinks.get(sink_id)
    if not isinstance(sink, KafkaSink) or sink.delivery != "exactly_once":
        there = ", ".join(
            id for id, one in sinks.items() if isinstance(one, KafkaSink) and one.delivery == "exactly_once"
        )
        raise PipelineError(
            f"pipeline {pipeline.name!r} has no sink {sink_id!r} that stages output for Kafka; there is: "
            f"{there or 'none'}"
        )
    for job in running_jobs():
        if job.name == pipeline.name:
            raise PipelineError(
                f"job {pipeline.name!r} runs here, in process {job.pid}: end it first, by `weir cancel "
                f"{pipeline.name}` if it can't stop"
            )
    if pipeline.checkpoints is None:
        raise PipelineError(f"pipeline {pipeline.name!r} has no checkpoints, so it has nothing staged that is left")
    storage = CheckpointStorage(pipeline.checkpoints.uri, pipeline.name)
    point = newest(storage, pipeline.checkpoints.on_damaged)
    if point is None:
        raise PipelineError(f"{storage.location} has no checkpoint")
    if not point.claimed_by(pipeline.name):
        raise PipelineError(
            f"output that {point.uri} holds is not that of job {pipeline.name!r} to commit: a start from there was "
            "told to leave it, or it is another pipeline's"
        )
    return Staged(pipeline.name, sink_id, sink, storage, point, sink_state(point.storage, point.metadata, sink_id))


class _NoMetrics:
    """Nobody looks at what the command counts."""

    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: Gauged) -> None: ...
