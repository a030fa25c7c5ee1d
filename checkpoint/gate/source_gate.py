"""The source gate: a source stops fetching before a checkpoint spans too much data (active backpressure).

One gate a source subtask. It counts what was emitted since the last barrier and the time that the source was free to
fetch. When that span is used up and no barrier came, it closes; the next barrier opens it again. Ordinary
backpressure would let the source read on until every buffer is full, and all of it would lie between two barriers.

A span is bounded by time, by a learned window of records (`checkpoint.gate.window`), and by the user's limits. Near
the end of a window or limit the gate asks for a checkpoint. While all barriers have passed, so that only the storage
holds the next one back, the time is `slow_storage_span`, and beyond its window the source goes on at a pace.
"""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator_events import Heartbeat
from checkpoint.counted import counted
from checkpoint.gate.gate_events import (
    Action,
    AskForCheckpoint,
    BarrierPassed,
    BarrierTaken,
    CheckpointResolved,
    CloseGate,
    Emitted,
    Event,
    HeartbeatReceived,
    OpenGate,
    ReadingBegins,
    TakeBarrier,
    Tick,
)
from checkpoint.gate.gate_options import GateOptions
from checkpoint.gate.window import SpanWindow, in_words

_ASK_AT = 0.8
"""Part of a window or limit at which the source asks for the next checkpoint."""
_LEAST_SECONDS = 0.1
"""A gate that opens since time has passed stays open for what the pace gives in so many seconds, at least."""
_ROUNDING = 1e-6
"""Seconds by which sums of clock differences may miss a deadline."""


@dataclass(frozen=True, slots=True)
class GateStatistics:
    closed_seconds: float
    """Time that the gate has been closed since the start."""


class SourceGate:
    """Decides when a source subtask may fetch. Pure: events in, actions out, the clock passed in.

    What was emitted in front of a barrier is reported (`Emitted`) before its `BarrierTaken`.
    """

    def __init__(self, options: GateOptions, now: float, last_barrier: int = 0) -> None:
        """`last_barrier` is the id of the checkpoint that the attempt was restored from, 0 if none."""
        self._options = options
        self._now = now
        """Last clock value; threads read the clock apart, so it is never taken back."""

        self._open = True
        self._used_up = ""
        """Which part of the span is used up, in words. Empty while open."""
        self._closed_total = 0.0
        """Seconds closed, up to `_now`."""
        self._window = SpanWindow(options, now) if self._active and options.window else None

        self._span_start = now
        """When the last barrier that refills the span was taken, or the start."""
        self._span_time = 0.0
        """Seconds open since `_span_start`, up to `_now`."""
        self._span_records = 0
        self._span_bytes = 0
        self._scale = 1.0
        """The coordinator's factor on the span; below 1 after expiries."""

        self._last_barrier = last_barrier
        """Largest id taken, of any kind: barriers keep the order of their ids on every channel."""
        self._asked_with = -1
        """`_last_barrier` of the last ask."""
        self._in_progress: dict[int, CheckpointKind] = {}
        """Checkpoints not resolved, as far as known; replaced by each heartbeat."""
        self._resolved_untaken: set[int] = set()
        """Ids above `_last_barrier` that are over: a late trigger for one is not answered any more."""
        self._held_back: str | None = None

    # -- what the source reads ------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def reason(self) -> str | None:
        """Why the gate is closed, as far as known now; `None` while it is open."""
        return None if self._open else f"{self._used_up}: {self._cause()}"

    @property
    def span_records(self) -> int:
        """Records emitted since the last barrier that was not a savepoint's."""
        return self._span_records

    @property
    def span_bytes(self) -> int:
        """Bytes emitted since the last barrier that was not a savepoint's."""
        return self._span_bytes

    @property
    def window_records(self) -> int | None:
        """Records that a span may have while a barrier is under way, as learned so far; `None` without a window."""
        return None if self._window is None else self._window.records

    @property
    def window_change(self) -> str | None:
        """The window's last change and its reason, in words."""
        return None if self._window is None else self._window.change

    def busy(self, held_up: bool) -> bool:
        """Whether the source would have emitted more since its last barrier: it has used its window, or (`held_up`)
        waited for room in its output queues. Without a window nobody asks."""
        return self._window is not None and (held_up or self._window.used_by(self._span_records))

    @property
    def last_barrier(self) -> int:
        """Largest checkpoint id whose barrier was taken."""
        return self._last_barrier

    def record_allowance(self) -> int | None:
        """How many records may be fetched now: `None` = any number, 0 = closed, else at least one."""
        if not self._open:
            return 0
        limit = self._record_limit
        return None if limit is None else max(1, limit - self._span_records)

    def admits_trigger(self, checkpoint_id: int) -> bool:
        """Whether a trigger is still to be answered: its barrier was not taken and its checkpoint is not over."""
        return checkpoint_id > self._last_barrier and checkpoint_id not in self._resolved_untaken

    def statistics(self, now: float) -> GateStatistics:
        return GateStatistics(self._closed_total + (0.0 if self._open else max(0.0, now - self._now)))

    def next_deadline(self, now: float) -> float | None:
        """When to send the next `Tick`, a clock value; `None` if time alone changes nothing."""
        if not self._open:
            return self._opens_at(now)
        left = self._time_left()
        if left is None or self._owes_a_fetch():
            return None
        return max(now, self._now + left)

    def _opens_at(self, now: float) -> float | None:
        """When the window's pace opens the gate, if nothing else comes before."""
        window, left = self._window, self._time_left()
        if window is None or not window.pace or left is None or left <= _ROUNDING or self._hard_limit():
            return None
        records = self._span_records + self._least()
        return max(now, self._span_start + records / window.pace + _ROUNDING)

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Action]:
        """What to do about `event`.

        Raises:
            ValueError: a barrier was taken out of the order of ids.
        """
        self._advance(now)
        actions: list[Action] = []
        missed: list[TakeBarrier] = []
        match event:
            case Emitted(records, size):
                self._span_records += records
                self._span_bytes += size
            case BarrierTaken(checkpoint_id, kind, held_up):
                actions += self._barrier_taken(checkpoint_id, kind, held_up)
            case BarrierPassed():
                self._passed(event)
            case CheckpointResolved(checkpoint_id, completed):
                if self._window is not None:
                    told = self._window.completed if completed else self._window.aborted
                    told(checkpoint_id, self._now)
                self._in_progress.pop(checkpoint_id, None)
                if checkpoint_id > self._last_barrier:
                    self._resolved_untaken.add(checkpoint_id)
            case HeartbeatReceived(heartbeat):
                missed = self._heartbeat(heartbeat)
            case ReadingBegins():
                actions += self._begin()
            case Tick():
                pass
        # Barriers come last: each is an event of its own, which may open the gate, and nothing older may follow that.
        return [*actions, *self._ask(), *(self._close() if self._open else self._open_again()), *missed]

    def _advance(self, now: float) -> None:
        elapsed = max(0.0, now - self._now)
        self._now += elapsed
        if self._open:
            self._span_time += elapsed
        else:
            self._closed_total += elapsed

    def _begin(self) -> list[Action]:
        """The first span begins; what was taken and resolved so far stays known."""
        self._closed_total = 0.0
        if self._window is not None:
            self._window.begin(self._now)
        return self._refill()

    def _refill(self) -> list[Action]:
        self._span_start = self._now
        self._span_time = 0.0
        self._span_records = self._span_bytes = 0
        if self._open:
            return []
        self._open = True
        self._used_up = ""
        return [OpenGate()]

    def _barrier_taken(self, checkpoint_id: int, kind: CheckpointKind, held_up: bool) -> list[Action]:
        if checkpoint_id <= self._last_barrier:
            raise ValueError(
                f"barrier {checkpoint_id} taken after barrier {self._last_barrier}: barriers must keep the order of "
                "their ids; answer only triggers that the gate admits"
            )
        self._last_barrier = checkpoint_id
        resolved = checkpoint_id in self._resolved_untaken
        self._resolved_untaken = {n for n in self._resolved_untaken if n > checkpoint_id}
        if not resolved:
            self._in_progress[checkpoint_id] = kind
        if kind is CheckpointKind.SAVEPOINT:
            return []  # a savepoint bounds no checkpoint's span: the next checkpoint still spans all of it
        if self._window is not None:
            self._window.barrier_taken(checkpoint_id, self._span_records, held_up, self._now)
        return self._refill()

    def _passed(self, event: BarrierPassed) -> None:
        if self._window is not None:
            self._window.passed(event, self._now)

    def _heartbeat(self, heartbeat: Heartbeat) -> list[TakeBarrier]:
        """The barriers whose triggers are lost."""
        for passed in heartbeat.passed:
            self._passed(BarrierPassed(*passed))
        self._in_progress = dict(heartbeat.in_progress)
        self._scale = heartbeat.span_scale
        self._held_back = heartbeat.held_back
        missed = sorted(n for n in self._in_progress if self.admits_trigger(n))
        if not missed:
            self._asked_with = -1  # the last ask may be lost: ask again as long as it is needed
        return [TakeBarrier(n, self._in_progress[n]) for n in missed]

    # -- the span -------------------------------------------------------------------------------------------------

    @property
    def _active(self) -> bool:
        return self._options.enabled and self._options.checkpoints.interval_s is not None

    @property
    def _record_limit(self) -> int | None:
        """The window or `max_span_records`, whichever is used up first."""
        hard = self._scaled(self._options.max_span_records)
        if self._window is None:
            return hard
        learned = self._window.limit(self._now - self._span_start)
        return learned if hard is None else min(learned, hard)

    @property
    def _byte_limit(self) -> int | None:
        return self._scaled(self._options.max_span_bytes)

    def _scaled(self, limit: int | None) -> int | None:
        return None if limit is None or not self._active else max(1, int(limit * self._scale))

    def _time_left(self) -> float | None:
        seconds = self._options.span_seconds
        if seconds is None or not self._active:
            return None
        if self._window is not None and self._window.passes:
            seconds = max(seconds, self._options.checkpoints.slow_storage_span_s)
        return seconds * self._scale - self._span_time

    def _owes_a_fetch(self) -> bool:
        """A shortened span may be over before one fetch has come out; without it nothing would ever move."""
        return self._scale < 1 and self._span_records == 0

    def _least(self) -> int:
        """Records that a gate must have to give to be opened by time."""
        return 1 if self._window is None else 1 + int(_LEAST_SECONDS * self._window.pace)

    def _close(self) -> list[Action]:
        used_up = self._what_is_used_up()
        if not used_up:
            return []
        self._open = False
        self._used_up = used_up
        return [CloseGate(f"{used_up}: {self._cause()}")]

    def _open_again(self) -> list[Action]:
        """The barriers have passed, so that the span is a longer one; or the pace gives something again."""
        if self._window is None or self._what_is_used_up(self._least()):
            return []
        self._open = True
        self._used_up = ""
        return [OpenGate()]

    def _hard_limit(self) -> str:
        """Which limit of the user's is used up, in words."""
        records, size = self._scaled(self._options.max_span_records), self._byte_limit
        if records is not None and self._span_records >= records:
            return f"span of {in_words(records)} used up"
        if size is not None and self._span_bytes >= size:
            return f"span of {counted(size, 'byte')} used up"
        return ""

    def _what_is_used_up(self, least: int = 1) -> str:
        """In words; empty if `least` records may still be emitted, or more."""
        left, records = self._time_left(), self._record_limit
        used_up = self._hard_limit()
        if used_up:
            pass
        elif left is not None and left <= _ROUNDING and not self._owes_a_fetch():
            used_up = f"span of {self._span_time + left:.3g} s used up"
        elif self._window is not None and records is not None and self._span_records + least > records:
            # Not shortened: it has been judged by the delays of barriers, and storage has no part in that.
            return f"window of {in_words(self._window.records)} used up"
        else:
            return ""
        return used_up if self._scale == 1 else f"{used_up} (shortened to {self._scale:.2g} of it by expiries)"

    def _cause(self) -> str:
        """Why no barrier came, in words."""
        running = sorted(n for n, kind in self._in_progress.items() if kind is not CheckpointKind.SAVEPOINT)
        if len(running) >= self._options.checkpoints.max_concurrent:
            ids = ", ".join(map(str, running))
            most = f"checkpoints in progress are at their maximum of {self._options.checkpoints.max_concurrent} ({ids})"
            return most if self._window is None else f"{most}; {self._whom_they_wait_for(running)}"
        if self._held_back is not None:
            return self._held_back
        waited = self._now - self._span_start
        if self._asked_with == self._last_barrier:
            return "the next checkpoint was asked for and has not come yet"
        if waited < (self._options.span_seconds or 0.0):
            return "the next checkpoint is not due yet"
        return f"the coordinator is slow, no barrier for {waited:.3g} s"

    def _whom_they_wait_for(self, running: list[int]) -> str:
        assert self._window is not None
        behind = [str(n) for n in running if n in self._window.under_way]
        if behind:
            return f"waits for operators: they have not got all that lies in front of barrier {', '.join(behind)}"
        return "waits for storage, or for operators that this source doesn't reach: the barriers have passed all others"

    def _ask(self) -> list[Action]:
        if self._asked_with == self._last_barrier or any(self.admits_trigger(n) for n in self._in_progress):
            return []
        records = self._scaled(self._options.max_span_records)
        window = None if self._window is None else self._window.records
        limits = ((window, self._span_records), (records, self._span_records), (self._byte_limit, self._span_bytes))
        if not any(limit is not None and used >= _ASK_AT * limit for limit, used in limits):
            return []
        self._asked_with = self._last_barrier
        return [AskForCheckpoint(self._last_barrier)]
