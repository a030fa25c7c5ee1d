"""One subtask of a pipeline in a harness: a task without threads, network and driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import copied
from checkpoint.elements import ChannelName, Data, EndOfInput, IdleStatus, InOrder, RestoreBarrier, Watermark
from checkpoint.in_flight.replay import RestoreBarrierCounter
from checkpoint.in_flight.restored_input import RestoredInput
from checkpoint.key_groups import range_of
from checkpoint.state import make_backend
from checkpoint.storage.metadata import SubtaskSnapshot
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import PipelineError
from pipeline.event_time_inputs import TimedInputs
from pipeline.graph import StepKind
from pipeline.operators import KeyedOperator
from pipeline.partitioners import Distribution
from pipeline.plan import PlannedStep, Vertex
from pipeline.runtime import protocol
from pipeline.runtime.restored_in_flight import load_in_flight
from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.context import contexts_of
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.event_time.input import READER
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.record_writer import RecordWriter
from pipeline.runtime.subtask.snapshot_files import SnapshotFiles
from pipeline.runtime.subtask.task_checkpoints import InFlightSequence, TaskCheckpoints
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
from pipeline.testing.pipeline_harness.channel import MemoryChannel, SteppingMailbox
from pipeline.testing.pipeline_harness.harness_context import HarnessContext, RestoredPart
from pipeline.testing.pipeline_harness.stubs import Inline, Kept, lateness_of, log_of, with_own_code

_ATTEMPT = 1


class HarnessSubtask:
    """Takes one step at a time: a record, a timer, a watermark. `choices` has what it could do next."""

    def __init__(self, world: HarnessContext, vertex: Vertex, index: int, restored: RestoredPart | None) -> None:
        self._world = world
        self._vertex = with_own_code(vertex, world.code)
        self._index = index
        self.name = vertex.subtask_name(vertex.first_subtask + index)
        plan, most, clock = world.plan, world.max_parallelism, world.clock
        self._record = RecordInProgress()
        self._mailbox = SteppingMailbox()
        self._backend, self._metrics = None, TaskMetrics(clock)
        if isinstance(vertex.head.payload, KeyedOperator):
            state_backend = vertex.head.state_backend or world.state_backend
            groups = range_of(index, vertex.parallelism, most)
            self._backend = make_backend(groups, most, world.log_folder is not None, state_backend)
        self.writers = [
            RecordWriter(edge, cast(Any, [self._channel(one) for one in names]), names, self._record, self._mailbox)
            for edge, names in output_channels(plan, vertex, index)
        ]
        inputs = list(input_channels(plan, vertex, index))
        self._names = [name for _, name in inputs]
        self.inputs = [self._channel(name) for name in self._names]
        self._broadcast = [
            number for number, (edge, _) in enumerate(inputs) if edge.partitioner.distribution is Distribution.BROADCAST
        ]
        self.chain = Chain(
            self._vertex,
            self._record,
            contexts_of(vertex, self._record, index),
            cast(Any, {step.id: Kept(outputs) for step, outputs in self._sinks()}),
            self._outputs(),
            self._backend,
            clock,
        )
        if restored is not None:
            restore_chain(self.chain, self._backend, restored.restore, restored.storage, allow_unclaimed=False)
        files = () if restored is None else restored.restore.keyed_state.get(vertex.head.id, ())
        self._log = log_of(self._backend, files, world.log_folder, self.name, self._metrics)
        self._restored = RestoredInput(() if restored is None else self._in_flight(restored))
        self.event_time = EventTime(
            chain=self.chain,
            backend=self._backend,
            writers=self.writers,
            mailbox=self._mailbox,
            channels=None if vertex.is_source else self._names,
            splits=self._splits,
            left_out=TimedInputs(plan).left_out(vertex),
            clock=clock,
            wall_clock=clock,
            period=0.0,
        )
        if restored is not None:
            same = restored.same_topology
            restore_event_time(self.event_time, restored.restore, plan, vertex, index, most, same)
        self._entries = entries_into(self.chain, plan, self._vertex, world.shapes)
        self._batch = BatchInProgress(self._record, self._mailbox, self._backend)
        self._restore_barriers = RestoreBarrierCounter(self._names)
        self._open_channels = set(self._names)
        self._restoring = True
        self._replay = restored is not None and restored.replay
        self.replayed = not self._replay
        """All that was in flight in the restored snapshot has gone through here."""
        self._told_to_end = self._input_ending = False
        self.input_ended = False
        self._snapshot: SubtaskSnapshot | None = None

    def open(self) -> None:
        with self._blamed():
            self.chain.open()
            self.event_time.open()

    def close(self) -> None:
        with self._blamed():
            self.chain.close()
        if self._log is not None:
            self._log.close()
        if self._backend is not None:
            self._backend.close()

    # -- what comes in ------------------------------------------------------------------------------------------

    def read(self, value: Any, timestamp: int | None, partition: int, context: Any) -> None:
        """A source has read a record."""
        with self._blamed():
            record = self._record
            record.leave()
            record.timestamp = timestamp
            record.row, record.source_rows, record.source_splits = 0, [context], [partition]
            try:
                self.chain.push(copied(value))
                self._leave_records()
            finally:
                record.leave()
                record.source_rows = None
            self.event_time.on_clock(self._world.clock())

    def reach(self, timestamp: int) -> None:
        """The splits of a source have come so far that the watermark is at `timestamp`."""
        generated = [domain for domain in self.chain.time.generated if domain.generator is not None]
        for domain in generated:
            generator = domain.generator
            assert generator is not None
            for id in (self._splits() or ()) if domain.by_split else [None]:
                split = generator.split(id)
                generator.touch(split)
                if domain.idle:
                    domain.wake()
                split.largest = max(split.largest, timestamp + 1 + lateness_of(self._vertex, domain.step))
        if generated:
            self.event_time.on_clock(self._world.clock())
        else:
            self.event_time.on_watermark(READER, timestamp)

    def end(self) -> None:
        """A source has ended."""
        self._told_to_end = True

    def seconds_to_next(self, now: float) -> float:
        """How long it takes, by the clock, until something happens by itself."""
        return self.event_time.seconds_to_next(now)

    @property
    def requests_in_flight(self) -> int:
        """Records that an async step has asked for and not emitted."""
        return 0

    def on_clock(self) -> None:
        with self._blamed():
            self.event_time.on_clock(self._world.clock())

    # -- one step at a time -------------------------------------------------------------------------------------

    def choices(self) -> list[Callable[[], None]]:
        """What can be done next, in the order of a task."""
        if self._batch:
            return [self._process_batch]
        if self._time_due:
            return [self._fire]
        if self._restoring:
            return [self._take_restored]
        if self._input_ending:
            return [] if self.input_ended else [self._end_output]
        if self._told_to_end and self.replayed:
            return [self._begin_end]
        return [partial(self._take, number) for number, channel in enumerate(self.inputs) if channel.queue]

    def step(self, choice: Callable[[], None], steps: int | None) -> None:
        """Do one of `choices`.

        Args:
            steps: how many records or timers at most; `None` = all that belong to it.
        """
        self._mailbox.steps = steps
        try:
            with self._blamed():
                choice()
        finally:
            self._mailbox.steps = None

    def _take(self, number: int) -> None:
        """The next element of an input channel; see `OperatorTask`."""
        name, element = self._names[number], self.inputs[number].queue.popleft()
        match element:
            case Data():
                entry = self._entries[name.edge]
                self._batch.take(element, number, entry.format, entry.push)
                self._process_batch()
            case Watermark() | IdleStatus() | RestoreBarrier() | EndOfInput():
                self._take_control(name, element)
            case _:
                raise AssertionError(f"a {type(element).__name__} in a channel of a harness")

    def _take_control(self, channel: ChannelName, element: InOrder, restored: bool = False) -> None:
        match element:
            case Watermark(timestamp):
                self.event_time.on_watermark(channel, timestamp, restored)
            case IdleStatus(idle):
                self.event_time.on_idle(channel, idle, restored)
            case RestoreBarrier():
                if self._restore_barriers.delivered(channel):
                    self._forward_restore_barrier()
            case EndOfInput():
                self._open_channels.discard(channel)
                self.event_time.on_end(channel)
                if not self._open_channels:
                    self._begin_end()

    def _take_restored(self) -> None:
        """The next element of what was in flight; see `Task`."""
        taken = self._restored.take()
        if taken is None:
            self._restoring = False
            self._end_restored()
            return
        channel, element = taken
        entry = self._entries[channel.edge]
        match element:
            case Data():
                self._batch.take(element, channel, entry.format, entry.push, entry.inside)
                self._process_batch()
            case Watermark() | IdleStatus():
                if entry.at_head:
                    self._take_control(channel, element, restored=True)

    def _end_restored(self) -> None:
        self.event_time.end_restored()
        if self._restore_barriers.restored_used_up():
            self._forward_restore_barrier()

    @property
    def _time_due(self) -> bool:
        if not self.event_time.due:
            return False
        first = self._restored.first
        return first is None or self._entries[first.edge].at_head

    def _process_batch(self) -> None:
        self._batch.process()
        self._leave_records()

    def _fire(self) -> None:
        self.event_time.fire()
        self._leave_records()

    def _forward_restore_barrier(self) -> None:
        if self._replay:
            self._replay, self.replayed = False, True
            for writer in self.writers:
                writer.broadcast(RestoreBarrier())
            self.event_time.resend()

    def _begin_end(self) -> None:
        self._input_ending = True
        self.event_time.end_of_input()

    def _end_output(self) -> None:
        self.input_ended = True
        self._leave_records()
        for writer in self.writers:
            writer.broadcast(EndOfInput())

    def _leave_records(self) -> None:
        self.chain.flush()

    # -- checkpoints --------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Before a snapshot: a batch in progress is put back, and broadcast channels are read to their ends, since
        nothing may be in flight there."""
        self._put_batch_back()
        with self._blamed():
            for number in self._broadcast:
                while self.inputs[number].queue:
                    self._take(number)

    def snapshot(self, checkpoint_id: int, storage: CheckpointStorage) -> SubtaskSnapshot:
        """State, with what is queued on the input channels."""
        self._snapshot = None
        checkpoints = self._checkpoints(storage)
        barrier = Barrier(checkpoint_id, CheckpointKind.CHECKPOINT, 0.0, 0.0, None)
        with self._blamed():
            checkpoints.take(barrier, True, 0.0, self._names, {}, {})
            for name, channel in zip(self._names, self.inputs, strict=True):
                checkpoints.input_captured(name, checkpoint_id, channel.in_flight())
        assert self._snapshot is not None
        return self._snapshot

    def _checkpoints(self, storage: CheckpointStorage) -> TaskCheckpoints:
        head, shapes = self._vertex.head.id, self._world.shapes
        return TaskCheckpoints(
            self.chain,
            self.event_time,
            self._index,
            self.writers,
            {},
            self._backend,
            self._log,
            self._before_all(),
            self,
            SnapshotFiles(storage, _ATTEMPT, head, self._index, lambda edge: shapes[edge].format, "none", None),
            Inline(),
            self._metrics,
            self._world.clock,
        )

    def _before_all(self) -> InFlightSequence:
        """What is in flight in front of all that is in the channels."""
        return self._restored

    def report(self, message: protocol.ToDriver) -> None:
        """What the checkpoint tells the driver."""
        match message:
            case protocol.Acknowledged(_, snapshot, _):
                self._snapshot = snapshot
            case protocol.Declined(_, reason):
                raise PipelineError(f"{self.name}: the snapshot can't be taken: {reason}")

    def _put_batch_back(self) -> None:
        if self._batch:
            origin = self._batch.origin
            if isinstance(origin, int):
                self.inputs[origin].queue.appendleft(self._batch.release())
            else:
                self._restored.put_back(origin, self._batch.release())

    # -- parts --------------------------------------------------------------------------------------------------

    def _channel(self, name: ChannelName) -> MemoryChannel:
        return self._world.channels.setdefault(name, MemoryChannel(name))

    def _splits(self) -> Sequence[int] | None:
        if not self._vertex.is_source:
            return None
        return range(self._index, self._world.partitions[self._vertex.head.id], self._vertex.parallelism)

    def _sinks(self) -> Iterator[tuple[PlannedStep, list[Any]]]:
        for step in self._vertex.steps:
            if step.kind is StepKind.SINK:
                yield step, self._world.outputs.setdefault(step.id, [])

    def _outputs(self) -> dict[tuple[str, str | None], list[Callable[[Any], None]]]:
        """The channels; and what nobody reads is kept."""
        outputs = emitters(self._vertex, self._index, self.writers, self._world.max_parallelism)
        chained = {(step.chained_to, step.tag) for step in self._vertex.steps}
        for step in self._vertex.steps:
            main = (step.id, None)
            if step.kind is not StepKind.SINK and main not in outputs and main not in chained:
                outputs[main] = [Kept(self._world.outputs.setdefault(step.id, [])).push]
        return outputs

    def _in_flight(self, restored: RestoredPart) -> list[Any]:
        w = self._world
        with whole("what was in flight"):
            return load_in_flight(
                restored.restore.in_flight, restored.storage, w.plan, self._vertex, self._index, w.max_parallelism
            )

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Notes at an exception in which step and subtask it was raised."""
        try:
            yield
        except BaseException as error:
            if not any(note.startswith("in step ") for note in getattr(error, "__notes__", ())):
                error.add_note(f"in step {self.chain.step_of(error) or self.chain.head!r}, subtask {self.name}")
            raise
