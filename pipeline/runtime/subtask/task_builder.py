"""Builds a subtask's task from its deployment: state, channels, chain, checkpoints."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from checkpoint import failpoints
from checkpoint.barriers.handler import BarrierHandler
from checkpoint.barriers.tracker import BarrierTracker
from checkpoint.codec import revived
from checkpoint.edge_format import EdgeFormat
from checkpoint.elements import ChannelName, EdgeName, InFlight
from checkpoint.gate.gate_options import GateOptions
from checkpoint.gate.source_gate import SourceGate
from checkpoint.in_flight.restored_input import RestoredInput
from checkpoint.key_groups import range_of
from checkpoint.state import KeyedBackend, make_backend
from checkpoint.state.changelog.snapshot import LoggedState
from checkpoint.storage.inline_files import inline_limit
from checkpoint.storage.local_copies import LocalCopies, StorageWithCopies
from checkpoint.storage.naming import subtask_name
from checkpoint.storage.ownership import Ownership
from checkpoint.storage.storage import CheckpointStorage
from pipeline import logs
from pipeline.event_time_inputs import TimedInputs
from pipeline.graph import StepKind
from pipeline.operators import KeyedOperator
from pipeline.partitioners import Distribution
from pipeline.plan import Plan, Vertex
from pipeline.runtime.deployment import Deployment, JobSpec
from pipeline.runtime.network.frames import ChannelId
from pipeline.runtime.network.network import Network
from pipeline.runtime.packing import unpack_plan
from pipeline.runtime.restored_in_flight import load_in_flight
from pipeline.runtime.subtask.async_task import AsyncTask
from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.context import contexts_of
from pipeline.runtime.subtask.driver_link import DriverLink
from pipeline.runtime.subtask.event_time.domains import reads_by_split
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.operator_task import OperatorTask
from pipeline.runtime.subtask.point_queries import PointQueries
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.record_writer import RecordWriter
from pipeline.runtime.subtask.sink_builder import SinkBuilder
from pipeline.runtime.subtask.snapshot_files import SnapshotFiles
from pipeline.runtime.subtask.source_task import SourceTask
from pipeline.runtime.subtask.state_log import open_log
from pipeline.runtime.subtask.steps.async_calls import InFrontOf
from pipeline.runtime.subtask.task import Task
from pipeline.runtime.subtask.task_checkpoints import TaskCheckpoints
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.subtask.wiring import (
    emitters,
    entries_into,
    input_channels,
    output_channels,
    restore_chain,
    restore_event_time,
    whole,
)
from pipeline.runtime.system import SYSTEM, System
from pipeline.runtime.topology_changes import edge_shapes
from sources.source import SourceContext, SourceReader

_RESTORED_LOCAL = "restoredLocalBytes"


def _not_counted(size: int) -> None:
    """What merges read is not restored."""


class TaskBuilder:
    """Builds the task from its deployment and runs it."""

    def __init__(
        self,
        spec: JobSpec,
        deployment: Deployment,
        mailbox: Mailbox,
        metrics: TaskMetrics,
        link: DriverLink,
        network: Network,
        copies: LocalCopies | None,
        system: System = SYSTEM,
    ):
        self._spec = spec
        self._deployment = deployment
        self._mailbox = mailbox
        self._metrics = metrics
        self._system = system
        self._link = link
        self._network = network
        self._plan: Plan = unpack_plan(spec.plan)
        self._vertex: Vertex = self._plan.vertex_of(deployment.subtask)
        self._index = deployment.subtask - self._vertex.first_subtask
        self._storage = CheckpointStorage(spec.checkpoint_uri, spec.pipeline)
        self._copies = copies
        self._snapshot_storage = self._storage
        """The same folder, and with `copies` what is written to it and read from it there."""
        if copies is not None:
            self._snapshot_storage = StorageWithCopies(self._storage, copies, partial(metrics.count, _RESTORED_LOCAL))
        restored = CheckpointStorage(*deployment.restored_from)
        self._restored_storage = self._snapshot_storage if restored.same_folder(self._storage) else restored
        """Where what is restored lies: the job's own folder, a savepoint's or another job's."""
        self._ownership = Ownership.from_wire(spec.ownership)
        self._shapes = edge_shapes(self._plan)
        self._sinks = SinkBuilder(
            spec=spec,
            deployment=deployment,
            parallelism=self._vertex.parallelism,
            index=self._index,
            storage=self._storage,
            restored_storage=self._restored_storage,
            ownership=self._ownership,
            mailbox=mailbox,
            metrics=metrics,
            link=link,
            system=system,
        )

    def run(self) -> None:
        """Build the task and run it to its end."""
        logs.is_subtask(logs.WorkerSubtask(self._spec.pipeline, self._vertex.name, self._index, self._spec.attempt))
        backend = self._backend()
        try:
            self._run(backend)
        finally:
            if backend is not None:
                backend.close()

    def _run(self, backend: KeyedBackend | None) -> None:
        spec, vertex = self._spec, self._vertex
        self._link.entered("is restoring state" if self._deployment.restored_checkpoint else "is being set up")
        record = RecordInProgress()
        contexts = contexts_of(vertex, record, self._index)
        writers = self._writers(record)
        channels = self._inputs()
        self._network.connect(self._deployment.peers, self._deployment.subtask)
        sinks = {
            step.id: self._sinks.build(step.id, step.payload, contexts[step.id], record)
            for step in vertex.steps
            if step.kind is StepKind.SINK
        }
        outputs = emitters(vertex, self._index, writers, spec.max_parallelism)
        chain = Chain(
            vertex, record, contexts, sinks, outputs, backend, self._system.monotonic, self._mailbox.tick, self._metrics
        )
        self._restore(chain, backend)
        restored = RestoredInput(self._in_flight())
        reader = self._reader() if vertex.is_source else None
        event_time = self._event_time(chain, backend, writers, channels, reader)
        with ExitStack() as ends:
            snapshots = ends.enter_context(self._system.executor(2, "weir-snapshot"))
            log = self._log(backend, ends)
            files = SnapshotFiles(
                self._snapshot_storage,
                self._ownership.attempt,
                vertex.head.id,
                self._index,
                self._format_of,
                spec.checkpoints.compression,
                self._copies,
                inline_limit(spec.checkpoints.inline_bytes, self._plan.subtasks),
            )
            checkpoints = TaskCheckpoints(
                chain,
                event_time,
                self._index,
                writers,
                sinks,
                backend,
                log,
                restored if chain.calls is None else InFrontOf(chain.calls, restored, self._format_of),
                self._link,
                files,
                snapshots,
                self._metrics,
                self._system.monotonic,
            )
            common = {
                "name": vertex.subtask_name(self._deployment.subtask),
                "chain": chain,
                "writers": writers,
                "sinks": sinks,
                "checkpoints": checkpoints,
                "event_time": event_time,
                "batch": BatchInProgress(record, self._mailbox, backend),
                "restored": restored,
                "entries": entries_into(chain, self._plan, vertex, self._shapes),
                "replay": self._deployment.replay,
                "queries": PointQueries(backend, self._link.report, self._system.monotonic),
                "mailbox": self._mailbox,
                "driver": self._link,
                "metrics": self._metrics,
                "linger": spec.buffers.linger_s,
                "clock": self._system.monotonic,
                "pacers": chain.pacers,
            }
            task: Task
            if reader is not None:
                task = SourceTask(
                    reader=reader,
                    make_gate=self._source_gate,
                    config=spec.checkpoints,
                    **common,
                )
            else:
                kind = OperatorTask if chain.calls is None else AsyncTask
                task = kind(
                    inputs=self._network.inputs,
                    channels=channels,
                    barriers=self._barriers(channels),
                    show_keys=spec.show_keys,
                    **common,
                )
            task.run()

    # -- parts --------------------------------------------------------------------------------------------------

    def _backend(self) -> KeyedBackend | None:
        if not isinstance(self._vertex.head.payload, KeyedOperator):
            return None
        groups = range_of(self._index, self._vertex.parallelism, self._spec.max_parallelism)
        checkpoints = self._spec.checkpoints
        state_backend = self._vertex.head.state_backend or checkpoints.state_backend
        return make_backend(groups, self._spec.max_parallelism, checkpoints.incremental, state_backend)

    def _log(self, backend: KeyedBackend | None, ends: ExitStack) -> LoggedState | None:
        """`ends`: of what belongs to it."""
        if backend is None or not self._spec.checkpoints.incremental:
            return None
        head = self._vertex.head.id
        log = open_log(
            backend,
            self._deployment.restore.keyed_state.get(head, []),
            self._restored_storage is self._snapshot_storage,
            self._log_storage(),
            self._ownership.attempt,
            subtask_name(head, self._index),
            self._spec.checkpoints.compression,
            ends.enter_context(self._system.executor(1, "weir-merge")),
            self._metrics,
            self._system.condition,
        )
        ends.callback(log.close)
        return log

    def _log_storage(self) -> CheckpointStorage:
        if self._copies is None:
            return self._storage
        return StorageWithCopies(self._storage, self._copies, _not_counted, of_log=True)

    def _writers(self, record: RecordInProgress) -> list[RecordWriter]:
        writers = []
        for edge, names in output_channels(self._plan, self._vertex, self._index):
            first = self._plan.vertices[edge.downstream].first_subtask
            overtakes = edge.partitioner.distribution is not Distribution.BROADCAST
            channels = [
                self._network.add_output(
                    ChannelId(edge.index, self._deployment.subtask, first + name.downstream), overtakes
                )
                for name in names
            ]
            writers.append(RecordWriter(edge, channels, names, record, self._mailbox))
        return writers

    def _inputs(self) -> list[ChannelName]:
        """Add the input channels to the network; their names, in the order of `InputChannels.channels`."""
        names = []
        for edge, name in input_channels(self._plan, self._vertex, self._index):
            upstream = self._plan.vertices[edge.upstream].first_subtask + name.upstream
            self._network.add_input(ChannelId(edge.index, upstream, self._deployment.subtask))
            names.append(name)
        return names

    def _event_time(
        self,
        chain: Chain,
        backend: KeyedBackend | None,
        writers: list[RecordWriter],
        channels: list[ChannelName],
        reader: SourceReader | None,
    ) -> EventTime:
        event_time = EventTime(
            chain=chain,
            backend=backend,
            writers=writers,
            mailbox=self._mailbox,
            channels=channels if reader is None else None,
            splits=reader.splits if reader is not None else lambda: None,
            waiting=reader.waiting_splits if reader is not None else tuple,
            left_out=TimedInputs(self._plan).left_out(self._vertex),
            clock=self._system.monotonic,
            wall_clock=self._system.time,
        )
        if self._deployment.restored_checkpoint:
            restore_event_time(
                event_time,
                self._deployment.restore,
                self._plan,
                self._vertex,
                self._index,
                self._spec.max_parallelism,
                self._deployment.same_topology,
            )
        return event_time

    def _format_of(self, edge: EdgeName) -> EdgeFormat:
        return self._shapes[edge].format

    def _in_flight(self) -> list[tuple[ChannelName, InFlight]]:
        """What was in flight in the restored checkpoint and comes here."""
        restored = self._deployment.restore.in_flight
        if restored.files:
            failpoints.hit("restore.in_flight", subtask=self._index)
        self._metrics.count("restoredBytes", sum(handle.size for _, handle in restored.files))
        with whole("what was in flight"):
            return load_in_flight(
                restored, self._restored_storage, self._plan, self._vertex, self._index, self._spec.max_parallelism
            )

    def _barriers(self, channels: list[ChannelName]) -> BarrierHandler | BarrierTracker:
        now = self._system.monotonic()
        if self._spec.checkpoints.mode == "at_least_once":
            return BarrierTracker(len(channels), now)
        broadcast = {
            edge.name
            for edge in self._plan.inputs_of(self._vertex.index)
            if edge.partitioner.distribution is Distribution.BROADCAST
        }
        return BarrierHandler(len(channels), now, [i for i, name in enumerate(channels) if name.edge in broadcast])

    def _restore(self, chain: Chain, backend: KeyedBackend | None) -> None:
        deployment = self._deployment
        files = deployment.restore.keyed_state.get(chain.head, [])
        self._metrics.count("restoredBytes", sum(listed.file.size for listed in files))
        restore_chain(chain, backend, deployment.restore, self._restored_storage, deployment.allow_unclaimed)

    def _reader(self) -> SourceReader:
        step = self._vertex.head
        reader: SourceReader = step.payload.create_reader(
            SourceContext(
                self._spec.pipeline,
                step.id,
                self._index,
                self._vertex.parallelism,
                self._metrics,
                revived(self._deployment.restore.sources.get(step.id)),
                track_splits=reads_by_split(self._vertex),
                waiting=self._metrics.waiting,
            )
        )
        return reader

    def _source_gate(self, now: float) -> SourceGate:
        source = self._vertex.head.payload
        options = GateOptions(
            self._spec.checkpoints,
            max_span_records=source.max_span_records,
            max_span_bytes=source.max_span_bytes,
            window=source.span_window,
            enabled=source.active_backpressure,
        )
        return SourceGate(options, now, self._deployment.restored_checkpoint)
