"""A subtask's process: what runs in one Spark partition, from the first connection to the last."""

from __future__ import annotations

import logging
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from checkpoint import failpoints, owners
from checkpoint.claims import Claim
from checkpoint.committables import Committable
from checkpoint.gate import GateOptions, SourceGate
from checkpoint.handles import FileHandle
from checkpoint.key_groups import range_of
from checkpoint.metadata import OperatorSnapshot
from checkpoint.naming import CheckpointRef, private_path, subtask_name
from checkpoint.probe import Probe, answer_probe
from checkpoint.staging import SharedStaging
from checkpoint.state import HeapBackend, HeapSnapshot, read_snapshot
from checkpoint.storage import CheckpointStorage
from pipeline.graph import Plan, PlannedEdge, StepKind, Vertex
from pipeline.operators import KeyedOperator
from pipeline.partitioners import Distribution
from pipeline.runtime.auth import authenticate_client
from pipeline.runtime.chain import Chain
from pipeline.runtime.context import Context
from pipeline.runtime.control import Control
from pipeline.runtime.deployment import Deployment, JobSpec
from pipeline.runtime.frames import ChannelId
from pipeline.runtime.mailbox import Mailbox
from pipeline.runtime.network import Network
from pipeline.runtime.operator_task import OperatorTask
from pipeline.runtime.packing import unpack_plan
from pipeline.runtime.record_writer import RecordWriter, downstream_subtasks
from pipeline.runtime.sink_driver import RestoredSink, SinkDriver
from pipeline.runtime.source_task import SourceTask
from pipeline.runtime.task import Cancelled, Task
from pipeline.runtime.task_metrics import TaskMetrics
from pipeline.runtime.versions import versions
from pipeline.runtime.wire import ControlConnection
from sinks.sink import Committer, CommitterContext, Lineage, WriterContext
from sources.source import SourceContext

_LOG = logging.getLogger(__name__)
_CONNECT_TIMEOUT = 20.0
_DEPLOY_TIMEOUT = 120.0
_SWITCH_INTERVAL = 0.001
"""Python's default of 5 ms would keep frames waiting for so long behind a busy task thread."""


def run_subtask(spec: JobSpec) -> None:
    """Called by Spark in every partition of the job's barrier stage. Reports to the driver how it ended; raises
    nothing for what is reported, since Spark could only repeat it less clearly."""
    from pyspark import BarrierTaskContext

    # The driver alone restarts: should Spark try this task again, the driver of an attempt that is over is gone.
    context = BarrierTaskContext.get()
    logging.basicConfig(level=os.environ.get("WEIR_LOG_LEVEL", "WARNING"))
    # Spark may use this process again, for somebody else's job.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        _run(spec, context)
    finally:
        sys.setswitchinterval(interval)
        failpoints.install(())


def _run(spec: JobSpec, context: Any) -> None:
    failpoints.install(spec.failpoints)
    connection = _connect(spec, context.partitionId())
    mailbox = Mailbox()
    metrics = TaskMetrics()
    control = Control(
        connection, mailbox, metrics, f"in partition {context.partitionId()} on host {socket.gethostname()}"
    )
    try:
        _check_versions(spec)
        if spec.probe is not None:
            storage = CheckpointStorage(spec.checkpoint_uri, spec.pipeline)
            answer_probe(storage, Probe.from_wire(spec.probe), str(context.partitionId()))
        network = Network(
            spec.secret,
            _own_host(connection),
            on_wake=mailbox.wake,
            on_error=mailbox.post_failure,
            on_announcement=lambda channel, barrier: None,
            buffers=spec.buffers,
        )
        network.start()
    except BaseException as error:
        control.failed(error, permanent=True)
        raise
    try:
        _say_hello(connection, context, network)
        deployment = _await_deployment(connection)
        control.start()
        _Subtask(spec, deployment, mailbox, metrics, control, network).run()
        control.closed()
    except BaseException as error:
        control.failed(error)
    finally:
        network.close(0)
        control.close()


def _connect(spec: JobSpec, partition: int) -> ControlConnection:
    sock = socket.create_connection(spec.driver, _CONNECT_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    authenticate_client(sock, spec.secret, f"subtask {partition}", _CONNECT_TIMEOUT)
    return ControlConnection(sock)


def _own_host(connection: ControlConnection) -> str:
    """The address that this host has towards the driver: the one its peers are most likely to reach, too."""
    return connection.local_host


def _check_versions(spec: JobSpec) -> None:
    mine = versions()
    for name, wanted in spec.versions.items():
        if mine[name] != wanted:
            raise RuntimeError(
                f"host {socket.gethostname()} has {name} {mine[name]} ({sys.executable}) and the driver {wanted}; "
                f"install the same {name} on all hosts, or point PYSPARK_PYTHON to it"
            )


def _say_hello(connection: ControlConnection, context: Any, network: Network) -> None:
    host, port = network.address
    connection.send(
        "hello",
        partition=context.partitionId(),
        host=socket.gethostname(),
        pid=os.getpid(),
        address=[host, port],
    )


def _await_deployment(connection: ControlConnection) -> Deployment:
    message = connection.receive(_DEPLOY_TIMEOUT)
    if message is None or message["type"] == "cancel":
        raise Cancelled("cancelled")
    return Deployment.from_wire(message["deployment"])


class _Subtask:
    """Builds the task from its deployment and runs it."""

    def __init__(
        self,
        spec: JobSpec,
        deployment: Deployment,
        mailbox: Mailbox,
        metrics: TaskMetrics,
        control: Control,
        network: Network,
    ):
        self._spec = spec
        self._deployment = deployment
        self._mailbox = mailbox
        self._metrics = metrics
        self._control = control
        self._network = network
        self._plan: Plan = unpack_plan(spec.plan)
        self._vertex: Vertex = self._plan.vertex_of(deployment.subtask)
        self._index = deployment.subtask - self._vertex.first_subtask
        self._storage = CheckpointStorage(spec.checkpoint_uri, spec.pipeline)
        self._claim = Claim.from_wire(spec.claim)

    def run(self) -> None:
        spec, vertex = self._spec, self._vertex
        context = Context(self._index, vertex.parallelism)
        backend = self._backend()
        writers = self._writers(context)
        inputs = [channel for edge in self._plan.inputs_of(vertex.index) for channel in self._channels_in(edge)]
        for channel in inputs:
            self._network.add_input(channel)
        self._network.connect(self._deployment.peers, self._deployment.subtask)
        sinks = {
            step.id: self._sink(step.id, step.payload, context) for step in vertex.steps if step.kind is StepKind.SINK
        }
        outputs: dict[tuple[str, str | None], list[Any]] = {}
        for writer in writers:
            emit = writer.emitter(self._index, vertex.parallelism, spec.max_parallelism)
            outputs.setdefault((writer.edge.upstream_step, writer.edge.tag), []).append(emit)
        chain = Chain(vertex, context, sinks, outputs, backend)
        self._restore_keyed_state(backend)
        for id, states in self._deployment.restore.operators.items():
            for state in states:
                chain.operators[id].restore(state)
        with ThreadPoolExecutor(2, thread_name_prefix="weir-snapshot") as snapshots:
            common = {
                "name": vertex.subtask_name(self._deployment.subtask),
                "chain": chain,
                "context": context,
                "writers": writers,
                "sinks": sinks,
                "backend": backend,
                "mailbox": self._mailbox,
                "coordinator": self._control,
                "files": self,
                "snapshots": snapshots,
                "metrics": self._metrics,
                "linger": spec.buffers.linger_s,
            }
            task: Task
            if vertex.is_source:
                task = SourceTask(reader=self._reader(), make_gate=self._source_gate, **common)
            else:
                keyed = {
                    edge.index
                    for edge in self._plan.inputs_of(vertex.index)
                    if edge.partitioner.distribution is Distribution.KEYED
                }
                task = OperatorTask(
                    gate=self._network.gate, keyed_channels=[channel.edge in keyed for channel in inputs], **common
                )
            task.run()
            self._network.close(5)

    # -- parts --------------------------------------------------------------------------------------------------

    def _backend(self) -> HeapBackend | None:
        if not isinstance(self._vertex.head.payload, KeyedOperator):
            return None
        groups = range_of(self._index, self._vertex.parallelism, self._spec.max_parallelism)
        return HeapBackend(groups, self._spec.max_parallelism)

    def _writers(self, context: Context) -> list[RecordWriter]:
        writers = []
        for edge in self._plan.outputs_of(self._vertex.index):
            downstream = self._plan.vertices[edge.downstream]
            targets = downstream_subtasks(edge, self._index, self._vertex.parallelism, downstream.parallelism)
            channels = [
                self._network.add_output(
                    ChannelId(edge.index, self._deployment.subtask, downstream.first_subtask + target)
                )
                for target in targets
            ]
            writers.append(RecordWriter(edge, channels, context, self._mailbox))
        return writers

    def _channels_in(self, edge: PlannedEdge) -> list[ChannelId]:
        upstream = self._plan.vertices[edge.upstream]
        return [
            ChannelId(edge.index, upstream.first_subtask + i, self._deployment.subtask)
            for i in range(upstream.parallelism)
            if self._index in downstream_subtasks(edge, i, upstream.parallelism, self._vertex.parallelism)
        ]

    def _restore_keyed_state(self, backend: HeapBackend | None) -> None:
        handles = self._deployment.restore.keyed_state.get(self._vertex.head.id, [])
        if backend is None:
            return
        groups = range_of(self._index, self._vertex.parallelism, self._spec.max_parallelism)
        for handle in handles:
            rows = read_snapshot(self._storage.read_file(handle), groups)
            backend.restore(rows, allow_unclaimed=self._deployment.allow_unclaimed)

    def _reader(self) -> Any:
        step = self._vertex.head
        return step.payload.create_reader(
            SourceContext(
                self._spec.pipeline,
                step.id,
                self._index,
                self._vertex.parallelism,
                self._metrics,
                self._deployment.restore.sources.get(step.id),
            )
        )

    def _source_gate(self, now: float) -> SourceGate:
        source = self._vertex.head.payload
        spec = self._spec
        options = GateOptions(
            interval=spec.interval,
            min_pause=spec.min_pause,
            max_concurrent=spec.max_concurrent,
            timeout=spec.timeout,
            max_span_records=source.max_span_records,
            max_span_bytes=source.max_span_bytes,
            enabled=source.active_backpressure,
        )
        return SourceGate(options, now, self._deployment.restored_checkpoint)

    def _sink(self, id: str, sink: Any, context: Context) -> SinkDriver:
        spec, deployment = self._spec, self._deployment
        staging = SharedStaging(self._storage, self._claim.epoch)
        wire = deployment.restore.sinks.get(id, {"pending": [], "committers": []})
        pending: dict[int, list[Committable]] = {}
        for owner, committables in wire["pending"]:
            pending.setdefault(owner, []).extend(Committable.from_wire(one) for one in committables)
        states: dict[int, Any] = dict(wire["committers"])
        lineage, parent = deployment.lineage

        def make_committer(owner: int) -> Committer | None:
            committer: Committer | None = sink.create_committer(
                CommitterContext(
                    spec.pipeline,
                    id,
                    owner,
                    Lineage(lineage, parent),
                    deployment.restored_checkpoint,
                    states.get(owner),
                    deployment.rewind,
                    deployment.ignore_earlier_output,
                    staging,
                    self._metrics,
                    lambda: owners.check(self._storage, self._claim),
                )
            )
            return committer

        writer = sink.create_writer(
            WriterContext(spec.pipeline, id, self._index, self._vertex.parallelism, staging, self._metrics)
        )
        return SinkDriver(
            id,
            self._index,
            writer,
            make_committer,
            RestoredSink(pending, states),
            context,
            self._mailbox,
            self._metrics,
            self._control.committed,
            self._control.restored_epoch_committed,
        )

    # -- SnapshotFiles ------------------------------------------------------------------------------------------

    def spill(self, checkpoint_id: int, step: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        """See `pipeline.runtime.task.SnapshotFiles`."""
        ref = CheckpointRef(checkpoint_id, self._claim.epoch)
        return self._storage.spill(snapshot, private_path(ref, subtask_name(step, self._index), "own", "msgpack"))

    def write_keyed_state(self, checkpoint_id: int, step: str, snapshot: HeapSnapshot) -> list[FileHandle]:
        """See `pipeline.runtime.task.SnapshotFiles`."""
        ref = CheckpointRef(checkpoint_id, self._claim.epoch)
        path = private_path(ref, subtask_name(step, self._index), "state")
        file = self._storage.create(path)
        try:
            snapshot.write(file.write, self._spec.compression)
            return [file.close()]
        except BaseException:
            file.abort()
            raise
