"""Builds the sinks of a subtask: writer and committers, with what a restored checkpoint holds of their output."""

from __future__ import annotations

from checkpoint.codec import revived
from checkpoint.committables import SinkState
from checkpoint.storage import fencing, savepoints
from checkpoint.storage.naming import shared_path
from checkpoint.storage.ownership import Ownership
from checkpoint.storage.staging import SharedStaging
from checkpoint.storage.storage import CheckpointStorage
from pipeline.runtime import protocol
from pipeline.runtime.deployment import Deployment, JobSpec
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.driver_link import DriverLink
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.sink_driver import SinkDriver
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.system import System
from sinks.sink import Committer, CommitterContext, Lineage, Sink, WriterContext


class SinkBuilder:
    def __init__(
        self,
        *,
        spec: JobSpec,
        deployment: Deployment,
        parallelism: int,
        index: int,
        storage: CheckpointStorage,
        restored_storage: CheckpointStorage,
        ownership: Ownership,
        mailbox: Mailbox,
        metrics: TaskMetrics,
        link: DriverLink,
        system: System,
    ):
        """
        Args:
            parallelism: of the vertex.
            index: of the subtask in its vertex.
            storage: the job's folder.
            restored_storage: where what is restored lies.
        """
        self._spec = spec
        self._deployment = deployment
        self._parallelism = parallelism
        self._index = index
        self._storage = storage
        self._restored_storage = restored_storage
        self._ownership = ownership
        self._mailbox = mailbox
        self._metrics = metrics
        self._link = link
        self._system = system

    def build(self, id: str, sink: Sink, context: Context, record: RecordInProgress) -> SinkDriver:
        """The sink of one step.

        Args:
            id: of the step.
        """
        pipeline, metrics = self._spec.pipeline, self._metrics
        staging = SharedStaging(self._storage, self._ownership.attempt)
        restored = self._restored(id)
        writer = sink.create_writer(
            WriterContext(pipeline, id, self._index, self._parallelism, staging, metrics, metrics.waiting)
        )
        return SinkDriver(
            id,
            self._index,
            writer,
            lambda writer: self._committer(id, sink, writer, restored, staging),
            restored,
            context,
            record,
            self._mailbox,
            metrics,
            lambda step, id, waiting, records: self._link.report(protocol.Committed(step, id, records)),
            lambda step, epoch: self._link.report(protocol.RestoredEpochCommitted(step, epoch)),
            self._system,
            hides_output=sink.needs_checkpoints,
        )

    def _committer(
        self, id: str, sink: Sink, writer: int, restored: SinkState, staging: SharedStaging
    ) -> Committer | None:
        """For what that writer of the step has prepared."""
        deployment = self._deployment
        lineage, parent = deployment.lineage
        return sink.create_committer(
            CommitterContext(
                self._spec.pipeline,
                id,
                writer,
                Lineage(lineage, parent),
                deployment.restored_checkpoint,
                restored.committers.get(writer),
                deployment.rewind,
                deployment.ignore_earlier_output,
                staging,
                self._metrics,
                lambda: fencing.check(self._storage, self._ownership),
                deployment.fork,
                self._metrics.waiting,
            )
        )

    def _restored(self, id: str) -> SinkState:
        """A sink's state with its staged files in the job's own folder: every checkpoint refers to them until they are
        committed, and a savepoint may go away."""
        # The messages that brought it were read without the job's classes.
        held = SinkState.from_wire(revived(self._deployment.restore.sinks.get(id, SinkState()).to_wire()))
        source = self._restored_storage
        if source.same_folder(self._storage):
            return held
        target = f"{id}-restored"
        copies = {
            file: savepoints.copy_file(source, file, self._storage, shared_path(self._ownership.attempt, target))
            for file in held.files
        }
        return held.with_files(copies)
