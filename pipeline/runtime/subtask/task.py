"""The task thread of a subtask: its mailbox loop, and how it takes part in checkpoints.

`SourceTask` and `OperatorTask` add where records come from.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.edge_format import EdgeFormat
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
from checkpoint.waiting import WaitKind
from pipeline.runtime import protocol
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.event_time.domains import TimeDomain
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.point_queries import PointQueries
from pipeline.runtime.subtask.record_writer import RecordWriter
from pipeline.runtime.subtask.sink_driver import SinkDriver
from pipeline.runtime.subtask.steps.compiled import Pace
from pipeline.runtime.subtask.task_checkpoints import TaskCheckpoints
from pipeline.runtime.subtask.task_metrics import TaskMetrics

_LOG = logging.getLogger(f"weir.{__name__}")
_GAUGE_PERIOD = 0.25
_IDLE_WAIT = 0.2
"""Upper bound of a wait; whatever happens wakes the task thread before, but for the clock."""


class Driver(Protocol):
    """How a task talks to the driver. Thread-safe; never blocks for long."""

    def report(self, message: protocol.ToDriver) -> None: ...

    def entered(self, phase: str | None) -> None: ...

    def failed(self, error: BaseException, *, step: str | None) -> None: ...


@dataclass(frozen=True)
class Entry:
    """Where the records of an edge enter a subtask's chain."""

    push: Callable[[Any], None]
    format: EdgeFormat
    inside: TimeDomain | None = None
    """For what was in flight between steps that are chained now, the domain there; `None` = they enter at the head."""

    @property
    def at_head(self) -> bool:
        return self.inside is None


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
        entries: Mapping[EdgeName, Entry],
        replay: bool,
        queries: PointQueries,
        mailbox: Mailbox,
        driver: Driver,
        metrics: TaskMetrics,
        linger: float,
        clock: Callable[[], float] = time.monotonic,
        pacers: Sequence[Pace] = (),
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
        self.writers = writers
        self.sinks = sinks
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
        self._linger = linger
        self._clock = clock
        self._pacers = pacers
        self._next_flush = 0.0
        self._next_gauges = 0.0
        self._quiet = False
        """The job has ended: nothing is processed any more, whatever is left is in its last checkpoint."""
        self._finished = False
        self._opened: dict[str, mail.CommittersOpened] = {}
        self._started = False
        """The first heartbeat has come: every subtask runs. What is emitted before could be in no checkpoint, since
        none is triggered."""
        self._restoring = True
        """Restored input, or event time that belongs to it, is left."""
        self._input_ending = False
        self._input_ended = False
        self._awaits_output = any(sink.hides_output for sink in sinks.values())
        """The first checkpoint is taken as soon as there is output for it."""

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
            for sink in self.sinks.values():
                sink.start()
            if self.sinks:
                self.driver.entered("is opening the committers of " + ", ".join(map(repr, self.sinks)))
            else:
                self.driver.report(protocol.Running())
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
        metrics, writers = self.metrics, self.writers
        metrics.bytes_out = sum(writer.sent_bytes for writer in writers)
        to_sinks = sum(sink.records for sink in self.sinks.values())
        metrics.records_out = sum(writer.records for writer in writers) + to_sinks
        metrics.gauge("recordsToSinks", to_sinks)
        metrics.gauge("overdraftBytes", max((writer.overdraft_bytes for writer in writers), default=0))
        self.event_time.report(metrics, waits=self._started and not self._quiet)
        self._report_pace()

    def _report_pace(self) -> None:
        now, waits = self._clock(), self.metrics.pace_waits
        for pacer in self._pacers:
            since = pacer.waits_since(now)
            if since is None or self._quiet:
                waits.end(pacer.what)
            else:
                waits.begin(pacer.what, since, WaitKind.RATE)

    def _in_flight_bytes(self) -> int:
        """Bytes queued; from any thread."""
        return sum(writer.queued_bytes for writer in self.writers)

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
        if now >= self._next_flush:
            for writer in self.writers:
                writer.flush()
            self._next_flush = now + self._linger
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
                    for sink in self.sinks.values():
                        sink.complete(checkpoint_id)
            case protocol.Aborted(checkpoint_id):
                self.chain.notify(checkpoint_id, completed=False)
                self.checkpoints.aborted(checkpoint_id)
                self._on_resolved(checkpoint_id, completed=False)
            case protocol.Query():
                self.queries.add(received)
            case protocol.ReleaseEpoch(step, epoch):
                self.sinks[step].release_epoch(epoch)
            case protocol.ReleaseNew(step):
                self.sinks[step].release_new()
            case mail.CommittersOpened(step):
                self._opened[step] = received
                if len(self._opened) == len(self.sinks):
                    highest = max(one.highest_checkpoint for one in self._opened.values())
                    epochs = {id: one.restored_epochs for id, one in self._opened.items()}
                    self.driver.report(protocol.Running(highest, epochs))
            case protocol.Heartbeat() if not self._started:
                self._started = True
                self._on_start()
                self._handle(received)
            case _:
                self._handle(received)

    # -- output -------------------------------------------------------------------------------------------------

    def _may_process(self) -> bool:
        """Whether the next record may be taken: there is room for what it emits, and no step has it wait."""
        for writer in self.writers:
            if not writer.has_room:
                return False
        if self._pacers and self._seconds_to_pace(self._clock()) > 0.0:
            return False
        return all(sink.accepts_records for sink in self.sinks.values())

    def _seconds_to_pace(self, now: float) -> float:
        return max((pacer.seconds_left(now) for pacer in self._pacers), default=0.0)

    def _wait_for_room(self) -> None:
        started = self._clock()
        timeout = self._longest_wait(started)
        paced = self._seconds_to_pace(started)
        self.mailbox.wait(min(timeout, paced) if paced > 0.0 else timeout)
        self.metrics.backpressured_s += self._clock() - started

    def _wait_for_work(self, timeout: float = _IDLE_WAIT) -> None:
        self.metrics.idle_s += self._wait(timeout)

    def _wait(self, timeout: float = _IDLE_WAIT) -> float:
        """Wait for mail, input or the clock; returns for how long, in seconds."""
        started = self._clock()
        timeout = min(timeout, self._longest_wait(started), self.event_time.seconds_to_next(started))
        unsent = any(writer.unsent for writer in self.writers)
        if unsent:
            timeout = min(timeout, max(0.0, self._next_flush - started))
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
        for sink in self.sinks.values():
            sink.write_slice()
        if self._awaits_output and any(sink.records for sink in self.sinks.values() if sink.hides_output):
            self._awaits_output = False
            self.driver.report(protocol.OutputBegan())

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
        for writer in self.writers:
            writer.broadcast(RestoreBarrier())
        # Channels of this attempt know no watermark yet, and one that doesn't advance would never be sent.
        self.event_time.resend()
        if not self.writers:
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
        for writer in self.writers:
            writer.broadcast(EndOfInput())
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
        for close in (self._close_input, self.chain.close, *(sink.close for sink in self.sinks.values())):
            try:
                close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
