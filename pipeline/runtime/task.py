"""The task thread of a subtask: its mailbox loop, and how it takes part in checkpoints.

`SourceTask` and `OperatorTask` add where records come from.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from checkpoint import failpoints
from checkpoint.barrier_events import Barrier
from checkpoint.codec import EncodingError, encode
from checkpoint.handles import FileHandle
from checkpoint.metadata import OperatorSnapshot, SubtaskSnapshot
from checkpoint.state import HeapBackend, HeapSnapshot
from checkpoint.state.groups import private_copy
from pipeline.runtime import letters
from pipeline.runtime.chain import Chain
from pipeline.runtime.context import Context
from pipeline.runtime.frames import BarrierElement, CancelMarker, EndOfInput
from pipeline.runtime.mailbox import Mailbox
from pipeline.runtime.record_writer import RecordWriter
from pipeline.runtime.sink_driver import SinkDriver
from pipeline.runtime.task_metrics import TaskMetrics

_LOG = logging.getLogger(__name__)
_GAUGE_PERIOD = 0.25
_IDLE_WAIT = 0.2
"""Upper bound of a wait; whatever happens wakes the task thread before."""


class Coordinator(Protocol):
    """How a task talks to the driver. Thread-safe; never blocks for long."""

    def running(self, highest_checkpoint: int, restored_epochs: dict[str, list[int]]) -> None: ...

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, statistics: dict[str, Any]) -> None: ...

    def decline(self, checkpoint_id: int, message: str, asynchronous: bool) -> None: ...

    def ask_for_checkpoint(self, last_barrier: int) -> None: ...

    def input_ended(self) -> None: ...

    def failed(self, error: BaseException) -> None: ...


class SnapshotFiles(Protocol):
    """Where a subtask's state goes."""

    def write_keyed_state(self, checkpoint_id: int, step: str, snapshot: HeapSnapshot) -> list[FileHandle]: ...

    def spill(self, checkpoint_id: int, step: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        """`snapshot` with its state in a file, if it is too large for the acknowledgement."""


class Cancelled(Exception):
    """The driver ended the attempt."""


class Task(ABC):
    """One subtask. Everything here runs in the task thread, but for `_finish_snapshot`."""

    def __init__(
        self,
        name: str,
        chain: Chain,
        context: Context,
        writers: Sequence[RecordWriter],
        sinks: dict[str, SinkDriver],
        backend: HeapBackend | None,
        mailbox: Mailbox,
        coordinator: Coordinator,
        files: SnapshotFiles,
        snapshots: Executor,
        metrics: TaskMetrics,
        linger: float,
    ):
        self.name = name
        self.chain = chain
        self.context = context
        self.writers = writers
        self.sinks = sinks
        self.backend = backend
        self.mailbox = mailbox
        self.coordinator = coordinator
        self.files = files
        self.metrics = metrics
        self._snapshots = snapshots
        self._linger = linger
        self._next_flush = 0.0
        self._next_gauges = 0.0
        self._finished = False
        self._opened: dict[str, letters.CommittersOpened] = {}
        self._input_ended = False

    def run(self) -> None:
        """Open, process until told to finish, close.

        Raises:
            Cancelled: the driver ended the attempt.
            Exception: user code or a part of the runtime failed.
        """
        self.metrics.in_flight = self._in_flight_bytes
        try:
            self.chain.open()
            for sink in self.sinks.values():
                sink.start()
            self._open()
            if not self.sinks:
                self.coordinator.running(0, {})
            while not self._finished:
                self._look_around()
                if not self._finished:
                    self._step()
            self._set_gauges()
        except BaseException as error:
            # Closing may take its time (a commit under way), and recovery needn't wait for it.
            self.coordinator.failed(error)
            try:
                self._close()
            except Exception:
                _LOG.exception("%s: closing after a failure failed, too", self.name)
            raise
        self._close()

    # -- for the two kinds of task ------------------------------------------------------------------------------

    def _open(self) -> None:
        """Make ready whatever brings records."""

    @abstractmethod
    def _step(self) -> None:
        """Do some work, or wait for it, until the mailbox interrupts."""

    @abstractmethod
    def _handle(self, letter: letters.Letter) -> None:
        """A letter that only this kind of task understands."""

    @abstractmethod
    def _head_state(self, checkpoint_id: int) -> dict[str, Any]:
        """State of what brings records, for the head step's snapshot."""

    def _on_clock(self, now: float) -> None:
        """Time has passed."""

    def _set_gauges(self) -> None:
        """Report what is not counted on the way."""
        metrics, writers = self.metrics, self.writers
        metrics.bytes_out = sum(writer.sent_bytes for writer in writers)
        metrics.records_out = sum(writer.records for writer in writers) + sum(s.records for s in self.sinks.values())

    def _in_flight_bytes(self) -> int:
        """Bytes queued; from any thread."""
        return sum(writer.queued_bytes for writer in self.writers)

    def _on_resolved(self, checkpoint_id: int, completed: bool) -> None:
        """A checkpoint completed or was aborted."""

    def _close_input(self) -> None:
        """Release what brings records."""

    def _snapshot_statistics(self) -> dict[str, Any]:
        return {}

    # -- mailbox ------------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        mailbox = self.mailbox
        mailbox.interrupt = False
        while mailbox.letters and not self._finished:
            self._read(mailbox.letters.popleft())
        self.metrics.looked_at = now = time.monotonic()
        if now >= self._next_flush:
            for writer in self.writers:
                writer.flush()
            self._next_flush = now + self._linger
        self._on_clock(now)
        if now >= self._next_gauges:
            self._next_gauges = now + _GAUGE_PERIOD
            self._set_gauges()

    def _read(self, letter: letters.Letter) -> None:
        match letter:
            case letters.Cancel():
                raise Cancelled("cancelled")
            case letters.Failure(error):
                raise error
            case letters.Finish():
                self._finished = True
            case letters.Completed(checkpoint_id):
                self.chain.notify(checkpoint_id, completed=True)
                self._on_resolved(checkpoint_id, completed=True)
                for sink in self.sinks.values():
                    sink.complete(checkpoint_id)
            case letters.Aborted(checkpoint_id):
                self.chain.notify(checkpoint_id, completed=False)
                self._on_resolved(checkpoint_id, completed=False)
            case letters.ReleaseEpoch(step, epoch):
                self.sinks[step].release_epoch(epoch)
            case letters.ReleaseNew(step):
                self.sinks[step].release_new()
            case letters.CommittersOpened(step):
                self._opened[step] = letter
                if len(self._opened) == len(self.sinks):
                    highest = max(one.highest_checkpoint for one in self._opened.values())
                    self.coordinator.running(
                        highest, {id: list(one.restored_epochs) for id, one in self._opened.items()}
                    )
            case _:
                self._handle(letter)

    # -- output -------------------------------------------------------------------------------------------------

    def _may_process(self) -> bool:
        """Whether the next record may be taken: there is room for what it emits."""
        for writer in self.writers:
            if not writer.has_room:
                return False
        return all(sink.accepts_records for sink in self.sinks.values())

    def _wait_for_room(self) -> None:
        started = time.monotonic()
        self.mailbox.wait(_IDLE_WAIT)
        self.metrics.backpressured_s += time.monotonic() - started

    def _wait_for_work(self, timeout: float = _IDLE_WAIT) -> None:
        started = time.monotonic()
        unsent = any(writer.unsent for writer in self.writers)
        if unsent:
            timeout = min(timeout, max(0.0, self._next_flush - started))
        self.mailbox.wait(timeout)
        self.metrics.idle_s += time.monotonic() - started

    def _leave_records(self) -> None:
        """The record loop is left: nothing may stay in hand."""
        for sink in self.sinks.values():
            sink.write_slice()

    def _end_input(self) -> None:
        """Everything there ever was is processed: say so downstream and to the driver, and go on with checkpoints."""
        if not self._input_ended:
            self._input_ended = True
            self._leave_records()
            for writer in self.writers:
                writer.broadcast(EndOfInput())
            self.coordinator.input_ended()

    # -- checkpoints --------------------------------------------------------------------------------------------

    def _take_snapshot(self, barrier: Barrier, alignment: float) -> None:
        """The synchronous part: send the barrier on, freeze state, cut the sinks' epochs. The rest goes beside."""
        started = time.monotonic()
        checkpoint_id = barrier.checkpoint_id
        self._leave_records()
        for writer in self.writers:
            writer.broadcast(BarrierElement(barrier))
        head = self.chain.head
        # Copies, since user code goes on changing what it returned while that is written beside it.
        states: dict[str, dict[str, Any]] = {
            id: {"operator": private_copy(s)} for id, s in self.chain.snapshot(checkpoint_id).items()
        }
        head_state = self._head_state(checkpoint_id)
        if head_state:
            states.setdefault(head, {}).update(private_copy(head_state))
        files: dict[str, list[FileHandle]] = {}
        for id, sink in self.sinks.items():
            state, of_sink = sink.snapshot(checkpoint_id)
            states.setdefault(id, {})["sink"] = state
            files[id] = of_sink
        frozen = self.backend.freeze() if self.backend is not None else None
        statistics = {
            "alignment": alignment,
            "start_delay": barrier.age,
            "sync": time.monotonic() - started,
            **self._snapshot_statistics(),
        }
        self.metrics.writing.add(checkpoint_id)
        self._snapshots.submit(self._finish_snapshot, checkpoint_id, head, states, files, frozen, statistics)

    def _finish_snapshot(
        self,
        checkpoint_id: int,
        head: str,
        states: dict[str, dict[str, Any]],
        files: dict[str, list[FileHandle]],
        frozen: HeapSnapshot | None,
        statistics: dict[str, Any],
    ) -> None:
        """The asynchronous part, in a thread of the pool: write keyed state, then acknowledge."""
        started = time.monotonic()
        try:
            failpoints.hit("snapshot.async_write", subtask=self.context.subtask)
            keyed: dict[str, list[FileHandle]] = {}
            if frozen is not None:
                keyed[head] = self.files.write_keyed_state(checkpoint_id, head, frozen)
            operators = {}
            for id in {*states, *keyed}:
                own = OperatorSnapshot(
                    state=states.get(id, {}), files=tuple(files.get(id, ())), keyed_state=tuple(keyed.get(id, ()))
                )
                operators[id] = self._spilled(checkpoint_id, id, own)
            snapshot = SubtaskSnapshot(operators)
            statistics["async"] = time.monotonic() - started
            statistics["size"] = sum(file.size for file in snapshot.all_files())
            self.coordinator.acknowledge(checkpoint_id, snapshot, statistics)
            failpoints.hit("subtask.after_acknowledge", subtask=self.context.subtask)
        except Exception as error:
            # The checkpoint fails and counts; whether the job goes on is the coordinator's to say.
            self.coordinator.decline(checkpoint_id, f"{type(error).__name__}: {error}", asynchronous=True)
        finally:
            self.metrics.writing.discard(checkpoint_id)
            if frozen is not None:
                frozen.release()

    def _spilled(self, checkpoint_id: int, id: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        try:
            return self.files.spill(checkpoint_id, id, snapshot)
        except TypeError as error:
            raise TypeError(
                f"what step {id!r} returned from snapshot (a sink: from prepare_commit) can't be kept in a checkpoint: "
                f"{_explained(snapshot.state, error)}"
            ) from error

    def _give_up(self, checkpoint_id: int, message: str) -> None:
        self.coordinator.decline(checkpoint_id, message, asynchronous=False)
        for writer in self.writers:
            writer.broadcast(CancelMarker(checkpoint_id))

    # -- end ----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        errors: list[BaseException] = []
        for close in (self._close_input, self.chain.close, *(sink.close for sink in self.sinks.values())):
            try:
                close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _explained(state: Mapping[str, Any], error: TypeError) -> str:
    """Says where in the state the value is that can't be packed, if the codec of records can tell."""
    try:
        encode(dict(state))
    except EncodingError as better:
        return str(better)
    return str(error)
