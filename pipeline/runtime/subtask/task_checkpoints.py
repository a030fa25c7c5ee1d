"""How a task takes part in checkpoints: snapshot, barriers onward, capture of what is in flight, acknowledgement."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol

from checkpoint import failpoints
from checkpoint.barriers.events import Barrier
from checkpoint.codec import EncodingError
from checkpoint.elements import BarrierElement, CancelMarker, ChannelName, InFlight
from checkpoint.in_flight.captured import CapturedState
from checkpoint.in_flight.output_queue import Captured
from checkpoint.in_flight.restored_input import InFlightEntry
from checkpoint.state import FrozenLists, KeyedBackend, KeyedSnapshot
from checkpoint.state.changelog.snapshot import LoggedState
from checkpoint.state.private_copy import private_copy
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.metadata import OperatorSnapshot, SubtaskSnapshot
from pipeline.runtime import error_text, protocol
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.pending_snapshot import PendingSnapshot
from pipeline.runtime.subtask.record_writer import RecordWriter
from pipeline.runtime.subtask.sink_driver import SinkDriver
from pipeline.runtime.subtask.task_metrics import TaskMetrics


class Reporter(Protocol):
    """How snapshots get to the driver. Thread-safe; never blocks for long."""

    def report(self, message: protocol.ToDriver) -> None: ...


class InFlightSequence(Protocol):
    """`RestoredInput`, or what else comes before all that is in the channels."""

    def rest(self) -> list[InFlightEntry]: ...


class StateFiles(Protocol):
    """Where a subtask's state goes: the job's folder, or the one that a savepoint's barrier names."""

    def write_keyed_state(self, barrier: Barrier, step: str, snapshot: KeyedSnapshot) -> list[StateFile]: ...

    def write_channel_state(self, barrier: Barrier, captured: CapturedState) -> FileHandle: ...

    def gather(self, barrier: Barrier, step: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        """`snapshot` with its own copies of files that others may refer to, if it is part of a savepoint."""

    def spill(self, barrier: Barrier, step: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        """`snapshot` with its state in a file, if it is too large for the acknowledgement."""

    def completed(self, checkpoint_id: int) -> None:
        """Local copies of older checkpoints are of no use any more."""

    def aborted(self, checkpoint_id: int) -> None:
        """Local copies of this checkpoint are of no use."""


class TaskCheckpoints:
    """Used by the task thread, but for what says otherwise.

    A checkpoint is acknowledged once its state is written, its barrier has left every output queue, and every channel
    that is being captured has delivered the barrier.
    """

    def __init__(
        self,
        chain: Chain,
        event_time: EventTime,
        subtask: int,
        writers: Sequence[RecordWriter],
        sinks: Mapping[str, SinkDriver],
        backend: KeyedBackend | None,
        log: LoggedState | None,
        restored: InFlightSequence,
        driver: Reporter,
        files: StateFiles,
        pool: Executor,
        metrics: TaskMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chain = chain
        self._event_time = event_time
        self._subtask = subtask
        self._writers = writers
        self._sinks = sinks
        self._backend = backend
        self._log = log
        self._restored = restored
        self._driver = driver
        self._files = files
        self._pool = pool
        self._metrics = metrics
        self._clock = clock
        self._pending: dict[int, PendingSnapshot] = {}
        self._due: dict[int, float] = {}
        """Aligned barriers that become unaligned in the output queues: checkpoint id → clock value."""
        for writer in writers:
            for channel, name in zip(writer.channels, writer.names, strict=True):
                channel.on_barrier_left = partial(self._barrier_left, name)

    def take(
        self,
        barrier: Barrier,
        unaligned: bool,
        alignment: float,
        capture: Sequence[ChannelName],
        head_state: Mapping[str, Any],
        statistics: Mapping[str, Any],
        busy: bool = False,
    ) -> None:
        """The synchronous part: send the barrier on, freeze state, cut the sinks' epochs. The rest goes beside.

        Nothing may be in progress.

        Args:
            barrier: to send on.
            unaligned: it overtakes what is queued for output, which becomes channel state.
            alignment: seconds from its first sight.
            capture: input channels that the caller captures next.
            head_state: parts of the head step's state that are the task's own.
            statistics: the task's own figures.
            busy: of a source, see `SourceGate.busy`.
        """
        started = self._clock()
        n = barrier.checkpoint_id
        names = [name for writer in self._writers for name in writer.names]
        figures = {"alignment": alignment, "start_delay": barrier.age, "unaligned": unaligned, **statistics}
        pending = PendingSnapshot(barrier, names, capture, self._restored.rest(), figures, self._hand_to_pool)
        self._pending[n] = pending
        self._metrics.pending[n] = pending.waiting
        self._send(barrier, unaligned)
        head = self._chain.head
        # Copies, since user code goes on changing what it returned while that is written beside it.
        states: dict[str, dict[str, Any]] = {
            id: {"operator": private_copy(state)} for id, state in self._chain.snapshot(n).items()
        }
        for id, broadcast in self._chain.broadcast_snapshot().items():
            states.setdefault(id, {})["broadcast"] = broadcast
        for id, contents in self._chain.broadcast_contents().items():
            states.setdefault(id, {})["broadcast_contents"] = contents
        lists = self._chain.freeze_lists()
        for id, watermarks in self._event_time.snapshot_watermarks().items():
            states.setdefault(id, {})["watermarks"] = watermarks
        states.setdefault(head, {}).update(private_copy(head_state), event_time=self._event_time.snapshot())
        files: dict[str, list[FileHandle]] = {}
        self._metrics.writing.add(n)  # sinks make durable what they have staged
        for id, sink in self._sinks.items():
            state, of_sink = sink.snapshot(n)
            states.setdefault(id, {})["sink"] = state
            files[id] = of_sink
        frozen: KeyedSnapshot | None = None
        if self._backend is not None:
            frozen = self._freeze(self._backend, barrier)
        figures["sync"] = self._clock() - started
        self._driver.report(protocol.SnapshotTaken(n, statistics.get("span_records"), busy))
        self._pool.submit(self._write_state, pending, head, states, lists, files, frozen)

    def give_up(self, checkpoint_id: int, message: str) -> None:
        """It can't be taken here: tell the coordinator, and those downstream."""
        self._driver.report(protocol.Declined(checkpoint_id, message, asynchronous=False))
        for writer in self._writers:
            writer.broadcast(CancelMarker(checkpoint_id))

    def completed(self, checkpoint_id: int) -> None:
        """An ordinary checkpoint is complete."""
        self._pool.submit(self._files.completed, checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        """The coordinator has given it up."""
        pending = self._pending.get(checkpoint_id)
        if pending is not None:
            pending.drop()
            self._forget(checkpoint_id)
        self._pool.submit(self._files.aborted, checkpoint_id)

    def input_captured(self, channel: ChannelName, checkpoint_id: int, elements: list[InFlight]) -> None:
        """The channel's barrier has arrived; from any thread."""
        pending = self._pending.get(checkpoint_id)
        if pending is not None:
            pending.input_captured(channel, elements)

    @property
    def next_deadline(self) -> float | None:
        """When `make_overdue_unaligned` has something to do, a clock value; `None`: never."""
        return min(self._due.values(), default=None)

    def make_overdue_unaligned(self, now: float) -> None:
        """Let barriers overtake that have waited in an output queue for longer than their alignment timeout."""
        due = [n for n, at in self._due.items() if now >= at]
        if due:
            for writer in self._writers:
                writer.make_unaligned(max(due), self._overtaken)
            self._due = {n: at for n, at in self._due.items() if n > max(due)}

    def close(self) -> None:
        """Acknowledge nothing any more."""
        for pending in list(self._pending.values()):
            pending.drop()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _freeze(self, backend: KeyedBackend, barrier: Barrier) -> KeyedSnapshot:
        # A savepoint has files of its own.
        if self._log is None or barrier.target is not None:
            return backend.freeze()
        return self._log.barrier(backend.freeze_changes())

    def _send(self, barrier: Barrier, unaligned: bool) -> None:
        element = BarrierElement(barrier, self._clock())
        if unaligned:
            for writer in self._writers:
                writer.overtake(element, self._overtaken)
            self._due.clear()  # it has made them all unaligned
            return
        for writer in self._writers:
            writer.broadcast(element)
        if barrier.alignment_timeout is not None:
            self._due[barrier.checkpoint_id] = element.at + barrier.alignment_timeout - barrier.age

    def _overtaken(self, channel: ChannelName, captured: Captured) -> None:
        for checkpoint_id, elements in captured.items():
            pending = self._pending.get(checkpoint_id)
            if pending is not None:
                pending.statistics["unaligned"] = True
                pending.output_captured(channel, elements)

    def _barrier_left(self, channel: ChannelName, checkpoint_id: int) -> None:
        """In the network thread."""
        pending = self._pending.get(checkpoint_id)
        if pending is not None:
            pending.barrier_left(channel)

    def _hand_to_pool(self, pending: PendingSnapshot) -> None:
        self._pool.submit(self._acknowledge, pending)

    def _forget(self, checkpoint_id: int) -> None:
        self._pending.pop(checkpoint_id, None)
        self._metrics.pending.pop(checkpoint_id, None)

    # -- in a thread of the pool ------------------------------------------------------------------------------------

    def _write_state(
        self,
        pending: PendingSnapshot,
        head: str,
        states: dict[str, dict[str, Any]],
        lists: Mapping[str, FrozenLists],
        files: dict[str, list[FileHandle]],
        frozen: KeyedSnapshot | None,
    ) -> None:
        started = self._clock()
        n = pending.checkpoint_id
        try:
            failpoints.hit("snapshot.async_write", subtask=self._subtask)
            keyed: dict[str, list[StateFile]] = {}
            if frozen is not None:
                keyed[head] = self._files.write_keyed_state(pending.barrier, head, frozen)
                pending.statistics["keyed_state"] = self._clock() - started
                pending.reused_bytes = frozen.reused_bytes
            for id, each in lists.items():
                states.setdefault(id, {}).update(each.stored())
            operators = {}
            for id in {*states, *keyed}:
                own = OperatorSnapshot(
                    state=states.get(id, {}), files=tuple(files.get(id, ())), keyed_state=tuple(keyed.get(id, ()))
                )
                operators[id] = self._spilled(pending.barrier, id, self._files.gather(pending.barrier, id, own))
            pending.statistics["async"] = self._clock() - started
            # This thread goes on, if it can: handing over to another one takes its time beside a busy task.
            pending.state_written(operators, partial(self._acknowledge, pending))
        except BaseException as error:  # a SystemExit of user code, too: nobody else would hear of it
            self._failed(pending, error)
        finally:
            self._metrics.writing.discard(n)
            if frozen is not None:
                frozen.release()

    def _acknowledge(self, pending: PendingSnapshot) -> None:
        """Everything is there."""
        started = self._clock()
        n, captured, statistics = pending.checkpoint_id, pending.captured, pending.statistics
        self._metrics.writing.add(n)
        try:
            channel_state: tuple[FileHandle, ...] = ()
            if captured:
                failpoints.hit("snapshot.channel_state", subtask=self._subtask)
                channel_state = (self._files.write_channel_state(pending.barrier, captured),)
            assert pending.operators is not None
            snapshot = SubtaskSnapshot(
                pending.operators,
                channel_state=channel_state,
                in_flight_rows=captured.rows(),
                in_flight_bytes=sum(captured.sizes().values()),
            )
            statistics["channel_state"] = self._clock() - started
            statistics["async"] += statistics["channel_state"]
            statistics["size"] = sum(file.size for file in snapshot.all_files())
            statistics["written"] = statistics["size"] - pending.reused_bytes
            statistics["in_flight_records"] = snapshot.in_flight_records
            statistics["in_flight_bytes"] = snapshot.in_flight_bytes
            self._driver.report(protocol.Acknowledged(n, snapshot, statistics))
            failpoints.hit("subtask.after_acknowledge", subtask=self._subtask)
        except BaseException as error:  # a SystemExit of user code, too: nobody else would hear of it
            self._failed(pending, error)
        finally:
            self._metrics.writing.discard(n)
            self._forget(n)

    def _failed(self, pending: PendingSnapshot, error: BaseException) -> None:
        """The checkpoint fails and counts; whether the job goes on is the coordinator's to say."""
        pending.drop()
        self._driver.report(protocol.Declined(pending.checkpoint_id, error_text.summary(error), asynchronous=True))

    def _spilled(self, barrier: Barrier, id: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        try:
            return self._files.spill(barrier, id, snapshot)
        except EncodingError as error:
            raise EncodingError(
                f"what step {id!r} returned from snapshot (a sink: from prepare_commit) can't be kept in a checkpoint: "
                f"{error}"
            ) from error
