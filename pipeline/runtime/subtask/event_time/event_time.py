"""Event time in a subtask: from what its input and the clock say to timers, `on_watermark` and what goes downstream."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from checkpoint.elements import ChannelName, EdgeName, IdleStatus, Watermark
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.event_time.generator import PERIOD
from checkpoint.state import KeyedBackend
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.event_time.domains import TimeDomain, TimeDomains
from pipeline.runtime.subtask.event_time.generated import GeneratedTime
from pipeline.runtime.subtask.event_time.input import InputTime
from pipeline.runtime.subtask.event_time.own_state import Identity
from pipeline.runtime.subtask.event_time.report import TimeReport
from pipeline.runtime.subtask.event_time.timers import TimerFiring
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_writer import RecordWriter
from pipeline.runtime.subtask.task_metrics import TaskMetrics


class OutputTime:
    """Sends the watermark and idle status of a domain on the edges that begin in it."""

    def __init__(self, domains: TimeDomains, writers: Sequence[RecordWriter]) -> None:
        self._domains = (domains.head, *domains.generated)
        self._writers: dict[int, list[RecordWriter]] = {id(domain): [] for domain in self._domains}
        for writer in writers:
            self._writers[id(domains.of[writer.edge.upstream_step])].append(writer)

    def tell_watermark(self, domain: TimeDomain) -> None:
        """Tell the one that the domain has reached."""
        assert domain.watermark is not None
        self._send(domain, Watermark(domain.watermark))

    def tell_idle(self, domain: TimeDomain, idle: bool) -> None:
        """Tell it unless it was told."""
        if idle is not domain.idle:
            domain.idle = idle
            self._send(domain, IdleStatus(idle))

    def repeat(self) -> None:
        """Tell all once more."""
        for domain in self._domains:
            if domain.watermark is not None:
                self.tell_watermark(domain)
            if domain.idle:
                self._send(domain, IdleStatus(True))

    def _send(self, domain: TimeDomain, element: Watermark | IdleStatus) -> None:
        for writer in self._writers[id(domain)]:
            writer.broadcast(element)


class EventTime:
    """Used by the task thread only. Told of what input says of time (`on_…`), it does what follows from that in `fire`.

    Whatever `fire` does not get done is found again by the next one, also in another attempt: `combined` and the timers
    are state, and a watermark counts as passed on only when all its timers have fired.
    """

    def __init__(
        self,
        *,
        chain: Chain,
        backend: KeyedBackend | None,
        writers: Sequence[RecordWriter],
        mailbox: Mailbox,
        channels: Iterable[ChannelName] | None,
        splits: Callable[[], Sequence[Any] | None] = lambda: None,
        waiting: Callable[[], Collection[Any]] = tuple,
        left_out: Collection[EdgeName] = (),
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        period: float = PERIOD,
    ) -> None:
        """
        Args:
            backend: of the chain's head, if it is a keyed operator.
            channels: the inputs; `None` = a source.
            left_out: input edges that the watermark doesn't wait for (`TimedInputs.left_out`).
            splits: of a source, `SourceReader.splits`.
            waiting: of a source, `SourceReader.waiting_splits`.
            clock: seconds, monotonic; the one that `on_clock` is called with.
            wall_clock: seconds since the epoch, for processing timers and for state with a time to live.
            period: seconds between two watermarks that `assign_timestamps` makes.
        """
        self._chain = chain
        self._backend = backend
        self._mailbox = mailbox
        self._clock = clock
        self._wall_clock = wall_clock
        self._wall_ms = self._read_wall_clock()
        self._ended = False
        """The input has: processing time goes on no more."""
        self._to_do = False
        """Something beside timers may be due."""
        if backend is not None:
            backend.event_clock.record = chain.record
        head = chain.contexts[chain.head]
        identity = Identity(head.subtask, head.parallelism)
        self._head = chain.time.head
        self._domains = (self._head, *chain.time.generated)
        groups = None if backend is None else backend.key_groups
        self._input = InputTime(self._head, identity, channels, left_out, groups)
        self._combiner = self._input.combiner
        self._generated = GeneratedTime(chain.time.generated, identity, splits, waiting)
        self._timers = None if backend is None else TimerFiring(chain, backend)
        self._output = OutputTime(chain.time, writers)
        for domain in self._domains:
            domain.since = clock()
            domain.wake = lambda domain=domain: self._output.tell_idle(domain, False)  # type: ignore[misc]
            if domain.generator is not None:
                domain.generator.wall_clock = wall_clock
                domain.generator.period = period
        self._report = TimeReport(
            self._head.step,
            self._head,
            chain.time.generated,
            self._combiner,
            None if backend is None else backend.event_timers,
            wall_clock,
            getattr(chain.operators.get(chain.head), "_inputs", None),
        )

    def open(self) -> None:
        """Called once, after `restore` and before anything else."""
        self._generated.refresh_splits(self._clock())
        self._to_do = True
        for domain in self._domains:
            domain.show(domain.watermark)
        if self._timers is not None:
            self._timers.passed(self._head.watermark)
        self._show_groups()
        if self._backend is not None:
            timers_due = self._backend.processing_timers.due(self._wall_ms)
            self._backend.processing_clock.begin(self._wall_ms, timers_due)
            if self._head.watermark is not None:
                self._backend.event_clock.passed(self._head.watermark)

    # -- what input says ----------------------------------------------------------------------------------------

    def on_watermark(self, channel: ChannelName, timestamp: int, restored: bool = False) -> None:
        """A `Watermark` was taken from a channel. It is in `snapshot` from now on, even while `fire` is not done with
        it: the next attempt goes on firing where this one was. Putting it back, too, does no harm.

        Args:
            restored: the element is restored in-flight data, and `channel` its channel of then.
        """
        self._combiner.on_watermark(channel, timestamp, restored)
        self._to_do = True

    def on_idle(self, channel: ChannelName, idle: bool, restored: bool = False) -> None:
        """An `IdleStatus` was taken from a channel; as `on_watermark`."""
        self._combiner.on_idle(channel, idle, restored)
        self._to_do = True

    def on_end(self, channel: ChannelName) -> None:
        """An `EndOfInput` was taken from a channel."""
        self._combiner.on_end(channel)
        self._to_do = True

    def end_of_input(self) -> None:
        """All input has ended, or the source has: event time ends, too. `EndOfInput` may be sent on once nothing is due
        any more; that all event timers fire may take its time. Processing timers that are not due yet never fire."""
        self._ended = True
        self._input.end()
        self._to_do = True

    def on_clock(self, now: float, held_up: bool = False, most: float = math.inf) -> None:
        """Time has passed.

        Args:
            held_up: input was not looked at since the last call, for want of room or because the source's gate is
                closed, so that no split counts as idle for that.
            most: seconds since the last call that count for that, where it was looked at.
        """
        if not self._ended:
            self._wall_ms = self._read_wall_clock()
        if self._backend is not None:
            self._backend.processing_clock.read(self._wall_ms)
            self._backend.remove_expired()
        if self._generated.on_clock(now, held_up, most):
            self._to_do = True

    def seconds_to_next(self, now: float) -> float:
        """How long the task may wait for input before `on_clock` has something to do."""
        times = [generator.seconds_to_next(now) for _, generator in self._generated.running()]
        if self._backend is not None and not self._ended and (at := self._backend.processing_timers.next) is not None:
            times.append(max(0.0, at / 1000 - self._wall_clock()))
        return min(times, default=float("inf"))

    def report(self, metrics: TaskMetrics, waits: bool) -> None:
        """Tell how far event time is, and with `waits` whom it waits for."""
        now = self._clock()
        for name, value in self._report.gauges().items():
            metrics.gauge(name, value)
        self._report.log(now)
        if self._backend is not None:
            metrics.gauge("stateEntriesExpired", self._backend.expired)
            for name, count in self._backend.metrics().items():
                metrics.gauge(name, count)
        if waits:
            self._report.tell(metrics.time_waits, now)

    # -- what follows -------------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether `fire` has something to do, which must be done before more input is taken. Cheap."""
        return self._to_do or (self._timers is not None and self._timers.due(self._combiner.reached, self._wall_ms))

    def fire(self) -> None:
        """Do what is due, timer by timer, until the mailbox interrupts or nothing is.

        Outputs may have overdrawn their queues, and sinks may hold records afterwards, as behind the record loop.
        """
        mailbox = self._mailbox
        try:
            while not mailbox.interrupt and self._step():
                pass
        finally:
            self._leave_key()
            self._chain.contexts[self._chain.head].watermark = self._head.watermark

    def resend(self) -> None:
        """Tell downstream the watermark and idle status once more: behind a restore barrier, new channels know none."""
        self._output.repeat()

    def _step(self) -> bool:
        """Do one thing; whether there was one."""
        combiner, timers, output = self._combiner, self._timers, self._output
        if self._head.idle and not combiner.idle:
            output.tell_idle(self._head, False)
        reached = combiner.reached
        if timers is not None and reached is not None and timers.fire_event_timer(reached):
            return True
        if self._to_do:
            if combiner.pending is not None:
                assert reached is not None
                self._pass_on(self._head, reached)
                combiner.passed(reached)
                if timers is not None:
                    timers.passed(reached)
                self._show_groups()
                return True
            if made := self._generated.take():
                for domain, watermark in made:
                    self._pass_on(domain, watermark)
                return True
            output.tell_idle(self._head, combiner.idle)
            for domain, generator in self._generated.running():
                output.tell_idle(domain, generator.idle)
            self._to_do = False
        return timers is not None and timers.fire_processing_timer(self._wall_ms)

    def _pass_on(self, domain: TimeDomain, timestamp: int) -> None:
        """Through the operators of the domain and onto its edges; the end of event time into all domains behind it."""
        if domain.watermark is not None and timestamp <= domain.watermark:
            return
        flush = self._chain.flush
        self._leave_key()
        if domain is self._head and self._backend is not None:
            self._backend.event_clock.passed(timestamp)
        if timestamp == MAX_WATERMARK and domain.generator is not None:
            reached = domain.generator.end_of_data
            if reached is not None:
                self._pass_on(domain, reached)  # it comes before the end of time
        # A watermark behind an idle status is one that follows the clock.
        told_by = self._combiner if domain.generator is None else domain.generator
        self._output.tell_idle(domain, timestamp != MAX_WATERMARK and told_by.follows_clock)
        flush()
        for context, on_watermark in domain.listeners:
            context.watermark = timestamp
            on_watermark(timestamp)
            flush()
        domain.watermark = timestamp
        domain.show(timestamp)
        domain.since = self._clock()
        self._output.tell_watermark(domain)
        if domain.generator is not None:
            domain.generator.passed(timestamp, self._clock())
        if timestamp == MAX_WATERMARK:
            for child in domain.children:
                self._pass_on(child, timestamp)

    def _show_groups(self) -> None:
        """Have the keyed operator know of key groups that are further than its subtask, as long as there are any."""
        groups = self._input.groups
        if groups is not None:
            ahead = groups.passed(self._combiner.emitted)
            self._chain.contexts[self._chain.head].groups = groups if ahead else None

    def _leave_key(self) -> None:
        self._chain.record.leave()
        if self._backend is not None:
            self._backend.clear_current_key()

    def _read_wall_clock(self) -> int:
        return int(self._wall_clock() * 1000)

    # -- checkpoints --------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """State for `restore`, as msgpack can carry it: of the vertex, kept with its head."""
        return self._input.snapshot()

    def snapshot_watermarks(self) -> dict[str, dict[str, Any]]:
        """State for `restore_watermarks` of every `assign_timestamps` step, by step id, as msgpack can carry it."""
        return self._generated.snapshot()

    def restore(
        self, states: Sequence[Mapping[str, Any]], holders: Mapping[EdgeName, Collection[int]], same_topology: bool
    ) -> None:
        """Take over what `snapshot` gave.

        What a channel had reached holds for the new channel of its name only if nothing upstream has changed either:
        the subtask behind it may now be fed by others, of which none had come so far.

        Args:
            states: of all old subtasks; none if the head was chained then, or is new.
            holders: by input edge the old subtasks (by index) whose in-flight rows may come here; none where no rows
                can be in flight, and for a source.
            same_topology: no parallelism or edge of the job has changed.
        """
        self._input.restore(states, holders, same_topology)

    def restore_watermarks(self, step: str, states: Sequence[Mapping[str, Any]], same_topology: bool) -> None:
        """Take over what `snapshot_watermarks` gave for a step.

        Args:
            states: of all old subtasks.
            same_topology: no parallelism or edge of the job has changed.
        """
        self._generated.restore(step, states, same_topology)

    def end_restored(self) -> None:
        """All restored in-flight data of this subtask is processed; nothing may be due any more from before."""
        self._combiner.end_restored()
        self._to_do = True
