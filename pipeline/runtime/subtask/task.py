"""The task thread of a subtask: its mailbox loop, and how it takes part in checkpoints.

`SourceTask` and `OperatorTask` add where records come from.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.elements import (
    ChannelName,
    Data,
    EdgeName,
    EndOfInput,
    IdleStatus,
    InOrder,
    RestoreBarrier,
    Watermark,
)
from checkpoint.in_flight.restored_input import RestoredInput
from pipeline.runtime import protocol
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.chain import Chain, ChainEntry
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.point_queries import PointQueries
from pipeline.runtime.subtask.record_writer import RecordWriter
from pipeline.runtime.subtask.sink_driver import SinkDriver
from pipeline.runtime.subtask.steps.compiled import Pacer
from pipeline.runtime.subtask.steps.pacing import Pacers
from pipeline.runtime.subtask.task_checkpoints import TaskCheckpoints
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.subtask.task_output import Driver, TaskOutput

_LOG = logging.getLogger(f"weir.{__name__}")
_GAUGE_PERIOD = 0.25
_IDLE_WAIT = 0.2
"""Upper bound of a wait; whatever happens wakes the task thread before, but for the clock."""


class Cancelled(Exception):
    """The driver ended the attempt."""


class Task(ABC):
    """One subtask. Everything here runs in the task thread."""

    def __init__(
        self,
        name: str,
        chain: Chain,
        writers: Sequence[RecordWriter],
        sinks: dict[str, SinkDriver],
        checkpoints: TaskCheckpoints,
        event_time: EventTime,
        batch: BatchInProgress,
        restored: RestoredInput,
        entries: Mapping[EdgeName, ChainEntry],
        replay: bool,
        queries: PointQueries,
        mailbox: Mailbox,
        driver: Driver,
        metrics: TaskMetrics,
        linger: float,
        clock: Callable[[], float] = time.monotonic,
        pacers: Sequence[Pacer] = (),
    ):
        """
        Args:
            restored: what was in flight; processed before anything new.
            entries: where records enter the chain, for the edges that lead into it and those inside it.
            replay: nothing new comes from the sources until all that was in flight has gone through the job.
            pacers: steps of the chain that may have the next record wait.
        """
        self.name = name
        self.chain = chain
        self.output = TaskOutput(writers, sinks, driver, linger)
        self.checkpoints = checkpoints
        self.event_time = event_time
        self.batch = batch
        self.restored = restored
        self.entries = entries
        self.replay = replay
        self.queries = queries
        self.mailbox = mailbox
        self.driver = driver
        self.metrics = metrics
        self._clock = clock
        self._pacers = Pacers(pacers)
        self._next_gauges = 0.0
        self._quiet = False
        """The job has ended: nothing is processed any more, whatever is left is in its last checkpoint."""
        self._finished = False
        self._started = False
        """The first heartbeat has come: every subtask runs. What is emitted before could be in no checkpoint, since
        none is triggered."""
        self._restoring = True
        """Restored input, or event time that belongs to it, is left."""
        self._input_ending = False
        self._input_ended = False

    def run(self) -> None:
        """Open, process until told to finish, close.

        Raises:
            Cancelled: the driver ended the attempt.
            Exception: user code or a part of the runtime failed.
        """
        self.metrics.in_flight = self._in_flight_bytes
        try:
            self.chain.open(lambda step: self.driver.entered(f"is in open() of {step!r}"))
            self.event_time.open()
            self.output.open()
            while not self._finished:
                self._look_around()
                if self._finished:
                    break
                if self._started and not self._quiet:
                    self._step()
                else:
                    self._wait_for_mail()
            self._set_gauges()
        except BaseException as error:
            # Closing may take its time (a commit under way), and recovery needn't wait for it.
            self.driver.failed(error, step=self.chain.step_of(error))
            try:
                self._close()
            except Exception:
                _LOG.exception("%s: closing after a failure failed, too", self.name)
            raise
        self.driver.entered("is closing")
        self._close()

    # -- for the two kinds of task ------------------------------------------------------------------------------

    @abstractmethod
    def _step(self) -> None:
        """Do some work, or wait for it, until the mailbox interrupts."""

    @abstractmethod
    def _handle(self, received: mail.Mail) -> None:
        """Mail that only this kind of task understands."""

    def _on_clock(self, now: float) -> None:
        """Time has passed."""

    def _next_deadline(self, now: float) -> float | None:
        """When an aligned checkpoint becomes unaligned here, a clock value; `None`: none will."""
        return self.checkpoints.next_deadline

    def _on_start(self) -> None:
        """Every subtask runs."""

    def _on_restored(self) -> None:
        """All that was in flight here is processed."""

    def _set_gauges(self) -> None:
        """Report what is not counted on the way."""
        self.output.set_gauges(self.metrics)
        self.event_time.report(self.metrics, waits=self._started and not self._quiet)
        self._pacers.report(self.metrics.pace_waits, self._clock(), ended=self._quiet)

    def _in_flight_bytes(self) -> int:
        """Bytes queued; from any thread."""
        return self.output.queued_bytes()

    def _on_resolved(self, checkpoint_id: int, completed: bool) -> None:
        """A checkpoint completed or was aborted."""

    def _close_input(self) -> None:
        """Release what brings records."""

    # -- mailbox ------------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        mailbox = self.mailbox
        mailbox.interrupt = False
        while mailbox.mail and not self._finished:
            self._read(mailbox.mail.popleft())
        self.metrics.looked_at = now = self._clock()
        self.queries.answer(now)
        self.output.flush_overdue(now)
        self.checkpoints.make_overdue_unaligned(now)
        self._on_clock(now)
        if now >= self._next_gauges:
            self._next_gauges = now + _GAUGE_PERIOD
            self._set_gauges()

    def _read(self, received: mail.Mail) -> None:
        match received:
            case protocol.Cancel():
                raise Cancelled("cancelled")
            case mail.Failure(ConnectionError()) if self._quiet:
                pass  # a peer was faster to leave
            case mail.Failure(error):
                raise error
            case protocol.Quiesce():
                self._quiet = True
                self.driver.report(protocol.Quiet())
            case protocol.Finish():
                self._finished = True
            case protocol.Completed(checkpoint_id, kind, commits):
                self.chain.notify(checkpoint_id, completed=True)
                if kind is not CheckpointKind.SAVEPOINT:
                    self.checkpoints.completed(checkpoint_id)
                self._on_resolved(checkpoint_id, completed=True)
                if commits:
                    self.output.commit(checkpoint_id)
            case protocol.Aborted(checkpoint_id):
                self.chain.notify(checkpoint_id, completed=False)
                self.checkpoints.aborted(checkpoint_id)
                self._on_resolved(checkpoint_id, completed=False)
            case protocol.Query():
                self.queries.add(received)
            case protocol.ReleaseEpoch(step, epoch):
                self.output.release_epoch(step, epoch)
            case protocol.ReleaseNew(step):
                self.output.release_new(step)
            case mail.CommittersOpened():
                self.output.committers_opened(received)
            case protocol.Heartbeat() if not self._started:
                self._started = True
                self._on_start()
                self._handle(received)
            case _:
                self._handle(received)

    # -- output -------------------------------------------------------------------------------------------------

    def _may_process(self) -> bool:
        """Whether the next record may be taken: there is room for what it emits, and no step has it wait."""
        if not self.output.has_room:
            return False
        if self._pacers.seconds_left(self._clock()) > 0.0:
            return False
        return self.output.sinks_accept

    def _wait_for_room(self) -> None:
        started = self._clock()
        timeout = self._longest_wait(started)
        paced = self._pacers.seconds_left(started)
        self.mailbox.wait(min(timeout, paced) if paced > 0.0 else timeout)
        self.metrics.backpressured_s += self._clock() - started

    def _wait_for_work(self, timeout: float = _IDLE_WAIT) -> None:
        self.metrics.idle_s += self._wait(timeout)

    def _wait(self, timeout: float = _IDLE_WAIT) -> float:
        """Wait for mail, input or the clock; returns for how long, in seconds."""
        started = self._clock()
        timeout = min(timeout, self._longest_wait(started), self.event_time.seconds_to_next(started))
        if (next_flush := self.output.next_flush()) is not None:
            timeout = min(timeout, max(0.0, next_flush - started))
        self.mailbox.wait(timeout)
        return self._clock() - started

    def _wait_for_mail(self) -> None:
        """While nothing may be processed, whatever is due."""
        started = self._clock()
        self.mailbox.wait(self._longest_wait(started))
        self.metrics.idle_s += self._clock() - started

    def _longest_wait(self, now: float) -> float:
        deadlines = (now + _IDLE_WAIT, self._next_deadline(now), self.queries.next_at)
        return max(0.0, min(deadline for deadline in deadlines if deadline is not None) - now)

    def _leave_records(self) -> None:
        """The record loop is left: no step may hold records back."""
        self.chain.flush()
        self.output.write_slices()

    # -- records and event time ---------------------------------------------------------------------------------

    def _process_batch(self) -> None:
        """Push the rest of the batch in progress, until something asks for attention."""
        self.metrics.records_in += self.batch.process()
        self._leave_records()

    def _fire(self) -> None:
        """Fire timers and pass the watermark on, until something asks for attention."""
        self.event_time.fire()
        self._leave_records()

    def _put_batch_back(self) -> None:
        """Before a snapshot: what is left of the batch in progress is in-flight input."""
        if self.batch:
            origin = self.batch.origin
            if isinstance(origin, int):
                self._put_back(origin, self.batch.release())
            else:
                self.restored.put_back(origin, self.batch.release())

    def _put_back(self, channel: int, element: Data) -> None:
        raise AssertionError(f"{self.name} has no input channel {channel}")

    def _take_restored(self) -> None:
        """Take the next element of what was in flight; or find that there is none left."""
        taken = self.restored.take()
        if taken is None:
            self._restoring = False
            self._end_restored()
            return
        channel, element = taken
        entry = self.entries[channel.edge]
        match element:
            case Data():
                self.batch.take(element, channel, entry.format, entry.push, entry.inside)
            # Between steps that are chained now the watermark of the step in front holds, once this is processed.
            case Watermark() | IdleStatus():
                if entry.at_head:
                    self._take_control(channel, element, restored=True)

    def _end_restored(self) -> None:
        self.event_time.end_restored()
        self._on_restored()

    def _take_control(self, channel: ChannelName, element: InOrder, restored: bool = False) -> None:
        """Something that stays behind the records in front of it was taken.

        Args:
            restored: it was in flight, and `channel` is its channel of then.
        """
        match element:
            case Watermark(timestamp):
                self.event_time.on_watermark(channel, timestamp, restored)
            case IdleStatus(idle):
                self.event_time.on_idle(channel, idle, restored)
            case _:
                raise RuntimeError(f"{self.name} can't handle a {type(element).__name__} in a channel")

    @property
    def _time_due(self) -> bool:
        """Whether event time has something to do now. What waits in front of steps that are chained now is older than
        anything that comes from the head, timers and watermarks included."""
        if not self.event_time.due:
            return False
        first = self.restored.first
        return first is None or self.entries[first.edge].at_head

    def _forward_restore_barrier(self) -> None:
        """Nothing restored comes from here any more. Whoever is last says so to the driver."""
        if not self.replay:
            return
        self.replay = False
        self.output.broadcast(RestoreBarrier())
        # Channels of this attempt know no watermark yet, and one that doesn't advance would never be sent.
        self.event_time.resend()
        if not self.output.has_channels:
            self.driver.report(protocol.RestoreBarrierArrived())

    def _begin_end(self) -> None:
        """All input has ended: event time ends, too, and then the output."""
        if not self._input_ending:
            self._input_ending = True
            self.event_time.end_of_input()

    def _end_output(self) -> None:
        """Everything there ever was is processed: say so downstream and to the driver, and go on with checkpoints."""
        self._input_ended = True
        self._leave_records()
        self.output.broadcast(EndOfInput())
        self.driver.report(protocol.InputEnded())

    # -- checkpoints --------------------------------------------------------------------------------------------

    def _take_snapshot(
        self,
        barrier: Barrier,
        unaligned: bool,
        alignment: float,
        capture: Sequence[ChannelName] = (),
        head_state: Mapping[str, Any] | None = None,
        statistics: Mapping[str, Any] | None = None,
        busy: bool = False,
    ) -> None:
        """See `TaskCheckpoints.take`."""
        self._put_batch_back()
        self._leave_records()
        self.checkpoints.take(barrier, unaligned, alignment, capture, head_state or {}, statistics or {}, busy)

    # -- end ----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        self.checkpoints.close()
        errors: list[BaseException] = []
        for close in (self._close_input, self.chain.close, *self.output.closes):
            try:
                close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
