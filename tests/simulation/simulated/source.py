"""A virtual source subtask behind the production gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkpoint.barriers.events import Barrier
from checkpoint.elements import BarrierElement, EndOfInput, Watermark
from checkpoint.gate import gate_events as events
from checkpoint.gate.gate_options import GateOptions
from checkpoint.gate.source_gate import SourceGate
from checkpoint.in_flight.replay import RestoreBarrierCounter
from checkpoint.kinds import CheckpointKind
from simulated.channel import Channel
from simulated.graph import Row, Step, timestamp_of
from simulated.storage import SubtaskState
from simulated.subtask import Subtask

if TYPE_CHECKING:
    from simulated.attempt import Attempt


class SpanTooLong(AssertionError):
    """A source has emitted more between two barriers than the gate allows."""


class Source(Subtask):
    def __init__(self, attempt: Attempt, step: Step, index: int, number: int, offsets: dict[int, int]) -> None:
        super().__init__(attempt, step, index, number)
        parallelism = attempt.parallelism[step.id]
        own = step.splits[index::parallelism]
        self.offsets = {split: offsets.get(split, 0) for split in own}
        """Of the next row to emit, by split."""
        self.ended = False
        self._polled: list[Row] = []
        """Of one split, not emitted yet."""
        options = self.options
        self._gate_options = GateOptions(
            options.checkpoints,
            max_span_records=options.max_span_records,
            first_window=options.first_window,
        )
        self.gate = SourceGate(self._gate_options, self.scheduler.now, attempt.restored_id)
        self.closed_for: list[str] = []
        """Why its gate closed, each time."""
        self._started = False
        """The first heartbeat has come."""
        self._may_emit = not attempt.drains
        self._watermark: int | None = None
        """The last one sent."""
        self._span_records = 0
        self._refilled = (self.scheduler.now, 0.0)
        """When the last span began, and how long the gate had been closed by then."""
        if attempt.drains and RestoreBarrierCounter(()).restored_used_up():
            self.attempt.at_start(self.pass_restore_barrier)

    # -- emitting -------------------------------------------------------------------------------------------------

    def work(self) -> bool:
        if not self._started or not self._may_emit or self.ended:
            return False
        self._tick()
        if not self.gate.is_open or not self.has_room:
            return False
        if not self._polled and not self._poll():
            self.ended = True
            self.send_all(EndOfInput())
            self.attempt.report(self, ("ended",))
            return True
        row = self._polled.pop(0)
        self.offsets[row.split] += 1
        self.emit(row)
        self._span_records += 1
        self._check_span()
        self._act(self.gate.handle(events.Emitted(1, 10), self.scheduler.now))
        if self.rng.random() < 0.3:
            self._send_watermark()
        return True

    def _send_watermark(self, again: bool = False) -> None:
        """The least that its splits have reached; those that have ended hold nothing back."""
        reached = [offset for offset in self.offsets.values() if offset < self.step.records]
        watermark = timestamp_of(min(reached) - 1) if reached and min(reached) > 0 else None
        if watermark is not None and (again or self._watermark is None or watermark > self._watermark):
            self._watermark = watermark
            self.send_all(Watermark(watermark))

    def _poll(self) -> bool:
        left = [split for split, offset in self.offsets.items() if offset < self.step.records]
        if not left:
            return False
        split = self.rng.choice(left)
        allowance = self.gate.record_allowance()
        most = self.rng.randint(1, 4) if allowance is None else min(self.rng.randint(1, 4), allowance)
        first = self.offsets[split]
        self._polled = [Row(split, i) for i in range(first, min(first + most, self.step.records))]
        return True

    def _check_span(self) -> None:
        limit = self._gate_options.max_span_records
        if limit is not None and self._span_records > limit:
            raise SpanTooLong(f"{self.name} has emitted {self._span_records} records in a span of {limit}")
        since, closed = self._refilled
        now = self.scheduler.now
        open_seconds = now - since - (self.gate.statistics(now).closed_seconds - closed)
        assert self._gate_options.span_seconds is not None
        longest = max(self._gate_options.span_seconds, self.options.slow_storage_span)
        # A span that expiries have shortened holds one fetch at least, however late it comes.
        if self._span_records > 1 and open_seconds > longest + 1e-6:
            raise SpanTooLong(f"{self.name} was open for {open_seconds:.3f} s in a span")

    # -- gate and barriers ----------------------------------------------------------------------------------------

    def _tick(self) -> bool:
        now = self.scheduler.now
        due = self.gate.next_deadline(now)
        if due is None or due > now:
            return False
        self._act(self.gate.handle(events.Tick(), now))
        return True

    def _act(self, actions: list[events.Action]) -> None:
        for action in actions:
            match action:
                case events.AskForCheckpoint(last_barrier):
                    self.attempt.report(self, ("asks", last_barrier))
                case events.TakeBarrier(n, kind):
                    self._take_barrier(n, kind)
                case events.CloseGate() | events.OpenGate():
                    self.scheduler.log("gate", self.name, action)
                    if isinstance(action, events.CloseGate):
                        self.closed_for.append(action.reason)

    def _take_barrier(self, n: int, kind: CheckpointKind) -> None:
        if not self.gate.admits_trigger(n):
            return
        now = self.scheduler.now
        timeout = self.attempt.alignment(n, kind)
        barrier = Barrier(n, kind, alignment_timeout=timeout)
        self.take_snapshot(barrier, unaligned=barrier.unaligned)
        if kind is not CheckpointKind.SAVEPOINT:
            self._span_records = 0
            self._refilled = (now, self.gate.statistics(now).closed_seconds)
        self._act(self.gate.handle(events.BarrierTaken(n, kind), now))

    @property
    def span(self) -> tuple[int | None, bool]:
        return self.gate.span_records, self.gate.busy(held_up=not self.has_room)

    def state(self, n: int) -> SubtaskState:
        offsets = dict(self.offsets)
        if "polled_counts_as_emitted" in self.options.faults:
            for row in self._polled:
                offsets[row.split] += 1
        return SubtaskState(offsets=offsets)

    def handle(self, letter: tuple[Any, ...]) -> None:
        now = self.scheduler.now
        match letter:
            case ("trigger", n, kind):
                self._take_barrier(n, kind)
            case ("heartbeat", heartbeat):
                if not self._started:
                    self._started = True
                    self._act(self.gate.handle(events.ReadingBegins(), now))
                    self._refilled = (now, 0.0)
                self._act(self.gate.handle(events.HeartbeatReceived(heartbeat), now))
            case ("passed", event):
                self._act(self.gate.handle(event, now))
            case ("complete", n, _):
                self._act(self.gate.handle(events.CheckpointResolved(n, completed=True), now))
            case ("aborted", n):
                self.forget(n)
                self._act(self.gate.handle(events.CheckpointResolved(n, completed=False), now))
            case ("replayed",):
                self._may_emit = True
                if not self.ended:
                    self._send_watermark(again=True)

    def announce(self, channel: Channel, element: BarrierElement) -> None:
        raise AssertionError("a source has no inputs")
