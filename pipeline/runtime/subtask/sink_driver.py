"""A sink step in a subtask: its writer in the task thread, its committers in a thread of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from checkpoint import failpoints
from checkpoint.commit_log import CommitLog, CommitOrder
from checkpoint.committables import Committable, CommittableName, SinkState
from checkpoint.state.private_copy import private_copy
from checkpoint.storage.handles import FileHandle
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.mail import CommittersOpened, Failure
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.slices import SliceSize
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.system import SYSTEM, System
from sinks.sink import Committer, SinkBatch, SinkWriter

_LOG = logging.getLogger(f"weir.{__name__}")


class SinkDriver:
    """Hands records to the writer in slices, cuts epochs at barriers and runs the committers beside processing."""

    def __init__(
        self,
        step: str,
        own: int,
        writer: SinkWriter,
        make_committer: Callable[[int], Committer | None],
        restored: SinkState,
        context: Context,
        record: RecordInProgress,
        mailbox: Mailbox,
        metrics: TaskMetrics,
        on_committed: Callable[[str, int, int, bool], None],
        on_epoch_out: Callable[[str, int], None],
        system: System = SYSTEM,
        hides_output: bool = False,
    ):
        """
        Args:
            own: index of this subtask, the writer of what it prepares.
            make_committer: by writer; called in the committing thread.
            on_committed: (step, checkpoint id, epochs still waiting, whether anything went out) after each commit, in
                the committing thread.
            on_epoch_out: (step, epoch) once nothing restored of a released epoch is left here.
            hides_output: what it takes is visible only once a checkpoint is complete.
        """
        self.step = step
        self.writer = writer
        self.hides_output = hides_output
        self.records = 0
        """Records that the writer has taken."""
        self._own = own
        self._context = context
        self._mailbox = mailbox
        self._metrics = metrics
        self._make_committer = make_committer
        self._restored = restored
        self._on_committed = on_committed
        self._on_epoch_out = on_epoch_out
        self._released: int | None = None
        """Restored epoch that is released and not reported as out."""
        self._committers: dict[int, Committer] = {}
        self._written: dict[int, float] = {}
        """When writers have last committed or refreshed."""
        self._log: CommitLog | None = None
        self._change = system.condition()
        self._closing = False
        self._slice = SliceSize()
        self._values: list[Any] = []
        self._timestamps: list[int | None] = []
        self._keys: list[bytes | None] = []
        """Encoded."""
        batched = type(writer).write_batch is not SinkWriter.write_batch
        self.push: Callable[[Any], None] = self._batched(record) if batched else self._push_single
        self._thread = system.thread(self._commit_loop, f"weir-commit-{step}")

    # -- task thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to open the committers; `CommittersOpened` comes by mail."""
        self._thread.start()

    def _push_single(self, value: Any) -> None:
        self.writer.write(value, self._context)
        self.records += 1

    def _batched(self, record: RecordInProgress) -> Callable[[Any], None]:
        values, size, write = self._values, self._slice, self.write_slice
        add_value, add_timestamp, add_key = values.append, self._timestamps.append, self._keys.append

        def push(value: Any) -> None:
            add_value(value)
            add_timestamp(record.timestamp)
            add_key(record.key_bytes)
            if len(values) >= size.rows:
                write()

        return push

    def write_slice(self) -> None:
        """Hand over what is buffered. Called whenever the record loop is left, so nothing is held back."""
        if not self._values:
            return
        batch = SinkBatch(self._values.copy(), self._timestamps.copy(), self._context.keys_of(self._keys))
        for column in (self._values, self._timestamps, self._keys):
            column.clear()
        started = self._metrics.clock()
        self.writer.write_batch(batch)
        took = self._metrics.clock() - started
        self.records += len(batch)
        self._slice.took(len(batch), took)

    @property
    def accepts_records(self) -> bool:
        """False while two completed epochs wait to be committed: backpressure, not memory."""
        log = self._log
        return log is None or log.accepts_records

    def snapshot(self, checkpoint_id: int) -> tuple[dict[str, Any], list[FileHandle]]:
        """Cut the epoch: the sink's state for the checkpoint, and the files that it refers to."""
        self.write_slice()
        prepared = self.writer.prepare_commit(checkpoint_id)
        # Copies, since writers and committers may go on changing what they returned.
        committables = [
            Committable.of(CommittableName(checkpoint_id, index), private_copy(one))
            for index, one in enumerate(prepared)
        ]
        with self._change:
            assert self._log is not None, "a checkpoint was triggered before the committers were open"
            self._log.add(checkpoint_id, committables)
            pending = self._log.snapshot()
            states = {writer: private_copy(committer.snapshot()) for writer, committer in self._committers.items()}
        held = SinkState(pending, states)
        return held.to_wire(), held.files

    def complete(self, checkpoint_id: int) -> None:
        """The checkpoint is durable: commit its epoch."""
        with self._change:
            assert self._log is not None
            self._log.complete(checkpoint_id)
            self._metrics.gauge("pendingCommits", self._log.waiting)
            self._change.notify()
        if not self.accepts_records:
            self._mailbox.interrupt = True

    def release_epoch(self, epoch: int) -> None:
        with self._change:
            assert self._log is not None
            self._log.release_restored(epoch)
            self._released = epoch
            self._change.notify()
        self._report_epoch()

    def release_new(self) -> None:
        with self._change:
            assert self._log is not None
            self._log.release_new()
            self._change.notify()

    def close(self) -> None:
        """Close writer and committers; what is in no completed checkpoint is dropped."""
        with self._change:
            self._closing = True
            self._change.notify()
        try:
            self.writer.close()
        finally:
            if self._thread.is_alive():
                self._thread.join(10)
                if self._thread.is_alive():
                    _LOG.warning("the committer of sink %r is still busy after 10 s; leaving it behind", self.step)

    def _report_epoch(self) -> None:
        with self._change:
            assert self._log is not None
            epoch = self._released
            if epoch is None or not self._log.restored_done(epoch):
                return
            self._released = None
        self._on_epoch_out(self.step, epoch)

    # -- committing thread --------------------------------------------------------------------------------------

    def _commit_loop(self) -> None:
        try:
            self._open_committers()
            while True:
                order = self._next_order()
                if order is None:
                    break
                committer = self._committers.get(order.writer)
                if committer is not None:
                    committer.commit(order.checkpoint_id, order.committables)
                elif order.committables:
                    raise TypeError(
                        f"sink {self.step!r}: the writer's prepare_commit returned committables, but create_committer "
                        "made no committer for them; return a Committer, or nothing from prepare_commit"
                    )
                failpoints.hit("committer.before_notification", subtask=order.writer)
                with self._change:
                    assert self._log is not None
                    self._log.committed(order)
                    waiting = self._log.waiting
                    self._metrics.gauge("pendingCommits", waiting)
                self._written[order.writer] = self._metrics.clock()
                self._on_committed(self.step, order.checkpoint_id, waiting, bool(order.committables))
                self._report_epoch()
                self._mailbox.wake()
        except BaseException as error:
            self._mailbox.post(Failure(error))
        finally:
            for committer in self._committers.values():
                try:
                    committer.close()
                except Exception:
                    _LOG.exception("closing a committer of sink %r failed", self.step)

    def _next_order(self) -> CommitOrder | None:
        """Waits for it, and refreshes committers that have none for long; `None` at the end."""
        while True:
            for writer, seconds in self._until_refresh().items():
                if seconds <= 0:
                    self._committers[writer].refresh()
                    self._written[writer] = self._metrics.clock()
            with self._change:
                if self._closing:
                    return None
                assert self._log is not None
                order = self._log.next_commit()
                if order is not None:
                    return order
                self._change.wait(min(self._until_refresh().values(), default=None))

    def _until_refresh(self) -> dict[int, float]:
        """Seconds until a committer must be refreshed, by writer."""
        now = self._metrics.clock()
        intervals = {writer: committer.refresh_interval for writer, committer in self._committers.items()}
        return {
            writer: self._written[writer] + interval - now
            for writer, interval in intervals.items()
            if interval is not None
        }

    def _open_committers(self) -> None:
        writers = sorted({self._own, *self._restored.writers})
        still_pending: dict[int, Sequence[Committable]] = {}
        highest = 0
        for writer in writers:
            pending = self._restored.pending.get(writer, ())
            committer = self._make_committer(writer)
            if committer is None:
                continue
            self._committers[writer] = committer
            still_pending[writer] = committer.open(pending)
            self._written[writer] = self._metrics.clock()
            highest = max(highest, committer.highest_checkpoint())
        with self._change:
            self._log = CommitLog(self._own, still_pending)
            epochs = tuple(self._log.restored_epochs())
        self._mailbox.post(CommittersOpened(self.step, highest, epochs))
