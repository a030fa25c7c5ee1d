"""Event time in a subtask: watermarks in and out, and the timers that they and the clock set off."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from checkpoint.elements import ChannelName, EdgeName, IdleStatus, Watermark
from checkpoint.state import HeapBackend
from checkpoint.state.timers import Timer, Timers
from checkpoint.watermark_generator import PERIOD, WatermarkGenerator
from checkpoint.watermarks import MAX_WATERMARK, WatermarkCombiner
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_writer import RecordWriter
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.subtask.time_domain import TimeDomain
from pipeline.runtime.subtask.time_report import TimeReport

_READER: Final = "reader"
"""The input of a source: it tells no watermark but the last."""


class EventTime:
    """Used by the task thread only. Told of what input says of time (`on_…`), it does what follows from that in `fire`.

    Whatever `fire` does not get done is found again by the next one, also in another attempt: `combined` and the timers
    are state, and a watermark counts as passed on only when all its timers have fired.
    """

    def __init__(
        self,
        *,
        chain: Chain,
        backend: HeapBackend | None,
        writers: Sequence[RecordWriter],
        mailbox: Mailbox,
        channels: Iterable[ChannelName] | None,
        splits: Callable[[], Sequence[Any] | None] = lambda: None,
        left_out: Collection[EdgeName] = (),
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            backend: of the chain's head, if it is a keyed operator.
            channels: the inputs; `None` = a source.
            left_out: input edges that the watermark doesn't wait for (`TimedInputs.left_out`).
            splits: of a source, `SourceReader.splits`.
            clock: seconds, monotonic; the one that `on_clock` is called with.
            wall_clock: seconds since the epoch, for processing timers.
        """
        self._chain = chain
        self._record = chain.record
        self._context = chain.contexts[chain.head]
        self._backend = backend
        self._mailbox = mailbox
        self._is_source = channels is None
        self._combiner = (
            WatermarkCombiner([_READER])
            if channels is None
            else WatermarkCombiner(channels, lambda channel: channel.edge not in left_out)  # type: ignore[attr-defined]
        )
        self._channels = [_READER] if channels is None else list(channels)
        self._splits = splits
        self._next_splits = 0.0
        self._clock = clock
        self._wall_clock = wall_clock
        self._wall_ms = self._read_wall_clock()
        self._ended = False
        """The input has: processing time goes on no more."""
        self._head = chain.time.head
        self._generated = chain.time.generated
        self._pending: dict[str, int] = {}
        """Watermarks made by generators that are to be passed on, by the step of their domain."""
        self._to_do = False
        """Something beside timers may be due."""
        self._writers: dict[str | None, list[RecordWriter]] = {}
        """By domain: its step, `None` for that of the input."""
        for writer in writers:
            self._writers.setdefault(self._name(chain.time.of[writer.edge.upstream_step]), []).append(writer)
        for domain in self._generated:
            domain.wake = lambda domain=domain: self._tell_idle(domain, False)  # type: ignore[misc]
            assert domain.generator is not None
            domain.generator.wall_clock = wall_clock
        for domain in (self._head, *self._generated):
            domain.since = clock()
        self._report = TimeReport(
            self._head.step,
            self._head,
            self._generated,
            self._combiner,
            None if backend is None else backend.event_timers,
            wall_clock,
        )

    def open(self) -> None:
        """Called once, after `restore` and before anything else."""
        self._refresh_splits(self._clock())
        self._to_do = True
        for domain in (self._head, *self._generated):
            domain.show(domain.watermark)
        if self._backend is not None:
            self._backend.event_timers.over = self._head.watermark == MAX_WATERMARK

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
        for channel in self._channels:
            self._combiner.on_end(channel)
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
        if not self._generated:
            return
        if now >= self._next_splits:
            self._refresh_splits(now)
        for domain, generator in self._running():
            watermark = generator.on_clock(now, held_up, most)
            if watermark is not None:
                self._pending[domain.step] = watermark
                self._to_do = True
            if generator.idle is not domain.idle:
                self._to_do = True

    def seconds_to_next(self, now: float) -> float:
        """How long the task may wait for input before `on_clock` has something to do."""
        times = [generator.seconds_to_next(now) for _, generator in self._running()]
        if self._backend is not None and not self._ended and (at := self._backend.processing_timers.next) is not None:
            times.append(max(0.0, at / 1000 - self._wall_clock()))
        return min(times, default=float("inf"))

    def report(self, metrics: TaskMetrics, waits: bool) -> None:
        """Tell how far event time is, and with `waits` whom it waits for."""
        now = self._clock()
        for name, value in self._report.gauges().items():
            metrics.gauge(name, value)
        self._report.log(now)
        if waits:
            self._report.tell(metrics.time_waits, now)

    # -- what follows -------------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether `fire` has something to do, which must be done before more input is taken. Cheap."""
        if self._to_do:
            return True
        backend = self._backend
        if backend is None:
            return False
        reached = self._combiner.reached
        return (reached is not None and backend.event_timers.due(reached)) or backend.processing_timers.due(
            self._wall_ms
        )

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
            self._context.watermark = self._head.watermark

    def resend(self) -> None:
        """Tell downstream the watermark and idle status once more: behind a restore barrier, new channels know none."""
        for domain in (self._head, *self._generated):
            if domain.watermark is not None:
                self._send(domain, Watermark(domain.watermark))
            if domain.idle:
                self._send(domain, IdleStatus(True))

    def _step(self) -> bool:
        """Do one thing; whether there was one."""
        combiner, backend = self._combiner, self._backend
        if self._head.idle and not combiner.idle:
            self._tell_idle(self._head, False)
        reached = combiner.reached
        if backend is not None and reached is not None:
            timer = backend.event_timers.pop(reached)
            if timer is not None:
                if reached == MAX_WATERMARK:
                    self._ends(backend.event_timers, timer)
                try:
                    self._fire_timer(backend, timer, timer.at, reached)
                finally:
                    backend.event_timers.ending = False
                return True
        if self._to_do:
            if combiner.pending is not None:
                assert reached is not None
                self._pass_on(self._head, reached)
                combiner.passed(reached)
                if backend is not None:
                    backend.event_timers.over = reached == MAX_WATERMARK
                return True
            if self._pending:
                for domain in self._generated:
                    if (made := self._pending.pop(domain.step, None)) is not None:
                        self._pass_on(domain, made)
                return True
            self._tell_idle(self._head, combiner.idle)
            for domain, generator in self._running():
                self._tell_idle(domain, generator.idle)
            self._to_do = False
        if backend is not None:
            timer = backend.processing_timers.pop(self._wall_ms)
            if timer is not None:
                self._fire_timer(backend, timer, None, self._head.watermark)
                return True
        return False

    def _ends(self, timers: Timers, timer: Timer) -> None:
        """A timer fires since event time has ended. Time is taken to go on behind the data for as long as timers were
        set ahead, so that a queue whose timers set each other gets empty; no longer, so that periodic ones end."""
        timers.ending = timers.over = True
        timers.fires = timer.at
        reached = self._head.watermark
        if reached is not None and reached != MAX_WATERMARK:
            timers.within = reached + timers.reach

    def _fire_timer(self, backend: HeapBackend, timer: Timer, timestamp: int | None, watermark: int | None) -> None:
        record, on_timer = self._record, self._chain.on_timer
        assert on_timer is not None
        backend.set_current_key(timer.key, timer.group)
        record.key_bytes, record.key_group = timer.key, timer.group
        record.timestamp = timestamp
        # Steps behind the head have not got this watermark yet.
        self._context.watermark = watermark
        on_timer(timer.at)

    def _pass_on(self, domain: TimeDomain, timestamp: int) -> None:
        """Through the operators of the domain and onto its edges; the end of event time into all domains behind it."""
        if domain.watermark is not None and timestamp <= domain.watermark:
            return
        flush = self._chain.flush
        self._leave_key()
        if timestamp == MAX_WATERMARK and domain.generator is not None:
            reached = domain.generator.end_of_data
            if reached is not None:
                self._pass_on(domain, reached)  # it comes before the end of time
        # A watermark behind an idle status is one that follows the clock.
        told_by = self._combiner if domain.generator is None else domain.generator
        self._tell_idle(domain, timestamp != MAX_WATERMARK and told_by.follows_clock)
        flush()
        for context, on_watermark in domain.listeners:
            context.watermark = timestamp
            on_watermark(timestamp)
            flush()
        domain.watermark = timestamp
        domain.show(timestamp)
        domain.since = self._clock()
        self._send(domain, Watermark(timestamp))
        if domain.generator is not None:
            domain.generator.passed(timestamp, self._clock())
        if timestamp == MAX_WATERMARK:
            for child in domain.children:
                self._pass_on(child, timestamp)

    def _tell_idle(self, domain: TimeDomain, idle: bool) -> None:
        if idle is not domain.idle:
            domain.idle = idle
            self._send(domain, IdleStatus(idle))

    def _send(self, domain: TimeDomain, element: Watermark | IdleStatus) -> None:
        for writer in self._writers.get(self._name(domain), ()):
            writer.broadcast(element)

    def _leave_key(self) -> None:
        self._record.leave()
        if self._backend is not None:
            self._backend.clear_current_key()

    def _name(self, domain: TimeDomain) -> str | None:
        return None if domain is self._head else domain.step

    def _running(self) -> Iterator[tuple[TimeDomain, WatermarkGenerator]]:
        """Where watermarks are still made: event time has not ended."""
        for domain in self._generated:
            if domain.generator is not None and domain.watermark != MAX_WATERMARK:
                yield domain, domain.generator

    def _read_wall_clock(self) -> int:
        return int(self._wall_clock() * 1000)

    def _refresh_splits(self, now: float) -> None:
        self._next_splits = now + PERIOD
        by_split = [domain.generator for domain in self._generated if domain.by_split]
        if by_split:
            read = self._splits()
            for generator in by_split:
                assert generator is not None
                if read is None:
                    generator.split(None)
                else:
                    generator.set_splits(map(_hashable, read))

    # -- checkpoints --------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """State for `restore`, as msgpack can carry it: of the vertex, kept with its head."""
        state = self._combiner.snapshot()
        channels = [] if self._is_source else [[_to_wire(id), *rest] for id, *rest in state["channels"]]
        return {**state, **self._place(), "channels": channels, "idle": self._head.idle}

    def snapshot_watermarks(self) -> dict[str, dict[str, Any]]:
        """State for `restore_watermarks` of every `assign_timestamps` step, by step id, as msgpack can carry it."""
        return {
            domain.step: {**domain.generator.snapshot(), **self._place(), "idle": domain.idle}
            for domain in self._generated
            if domain.generator is not None
        }

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
        decoded = [
            {**state, "channels": [[_from_wire(id), *rest] for id, *rest in state["channels"]]} for state in states
        ]
        own = self._own(decoded)
        if (
            own is not None
            and same_topology
            and (self._is_source or {one[0] for one in own["channels"]} == set(self._channels))
        ):
            self._combiner.restore([own], True, ())
            self._head.idle = own["idle"]
        else:
            old = set().union(*holders.values()) or self._heirs(decoded)
            told = [state for state in decoded if self._is_source or state["subtask"] in old]
            channels = [id for state in told for id, *_ in state["channels"]]
            # A broadcast edge has nothing in flight, but what its channels had reached holds back as well.
            virtual = [id for id in channels if id.downstream in (holders.get(id.edge) or old)]
            self._combiner.restore(told, False, virtual)
        if self._is_source:
            self._combiner.end_restored()
        self._head.watermark = self._combiner.emitted

    def restore_watermarks(self, step: str, states: Sequence[Mapping[str, Any]], same_topology: bool) -> None:
        """Take over what `snapshot_watermarks` gave for a step.

        Args:
            states: of all old subtasks.
            same_topology: no parallelism or edge of the job has changed.
        """
        domain = next((one for one in self._generated if one.step == step), None)
        if domain is None or domain.generator is None:
            return  # it makes no watermarks any more
        own = self._own(states) if same_topology or domain.by_split else None
        told = states if own is None or domain.by_split else [own]
        domain.generator.restore(
            [
                {**one, **{part: [(_hashable(id), n) for id, n in one.get(part, ())] for part in ("splits", "quiet")}}
                for one in told
            ],
            own,
        )
        domain.watermark = domain.generator.emitted
        domain.idle = own is not None and own["idle"]

    def _place(self) -> dict[str, int]:
        return {"subtask": self._context.subtask, "parallelism": self._context.parallelism}

    def _own(self, states: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """The state of this very subtask, if the parallelism is the same."""
        place = self._place().items()
        return next((state for state in states if place <= state.items()), None)

    def _heirs(self, states: Sequence[Mapping[str, Any]]) -> set[int]:
        """Old subtasks that this one goes on for where no rows can be in flight: all inputs are broadcast, or new.

        It is those whose operator state comes here; keyed state may come from any.
        """
        if self._backend is not None:
            return {state["subtask"] for state in states}
        mine, parallelism = self._context.subtask, self._context.parallelism
        heirs = {state["subtask"] for state in states if state["subtask"] % parallelism == mine}
        return heirs or {mine % state["parallelism"] for state in states}

    def end_restored(self) -> None:
        """All restored in-flight data of this subtask is processed; nothing may be due any more from before."""
        self._combiner.end_restored()
        self._to_do = True


def _to_wire(channel: ChannelName) -> list[Any]:
    return [list(channel.edge), channel.upstream, channel.downstream]


def _from_wire(wire: Sequence[Any]) -> ChannelName:
    edge, upstream, downstream = wire
    return ChannelName(EdgeName(*edge), upstream, downstream)


def _hashable(split: Any) -> Any:
    """Checkpoints of older versions have lists for tuples."""
    return tuple(map(_hashable, split)) if isinstance(split, list) else split
