"""The source gate: a source stops fetching before a checkpoint spans too much data (active backpressure).

One gate a source subtask. It counts what was emitted since the last barrier and the time that the source was free to
fetch. When that span is used up and no barrier came, it closes; the next barrier opens it again. Ordinary
backpressure would let the source read on until every buffer is full, and all of it would lie between two barriers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from checkpoint.coordination.coordinator_events import CheckpointKind, Heartbeat
from checkpoint.gate_events import (
    Action,
    AskForCheckpoint,
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

_GRACE = 0.1
"""Part of the span added for trigger jitter…"""
_LEAST_GRACE = 0.25
"""…but at least so many seconds."""
_ASK_AT = 0.8
"""Part of a record or byte limit at which the source asks for the next checkpoint."""
_ROUNDING = 1e-9
"""Seconds by which sums of clock differences may miss a deadline."""


@dataclass(frozen=True, slots=True)
class GateOptions:
    """What bounds a source's span. Times in seconds.

    Raises:
        ValueError: an option has a value that it can't have; the message says which it may have.
    """

    interval: float | None
    """Checkpoint interval; `None` = no periodic checkpoints: no barrier could open the gate, so it never closes."""
    min_pause: float = 0.0
    max_concurrent: int = 1
    timeout: float = 600.0
    max_span_records: int | None = None
    """Most records between two barriers; `None` = no limit."""
    max_span_bytes: int | None = None
    """Most bytes between two barriers; `None` = no limit."""
    enabled: bool = True
    """`active_backpressure` of the source; `False` = only count."""

    def __post_init__(self) -> None:
        if self.interval is not None and not 0 < self.interval < math.inf:
            raise ValueError(f"interval must be a positive number of seconds or None, not {self.interval!r}")
        if not 0 <= self.min_pause < math.inf:
            raise ValueError(f"min_pause must be at least 0 s, not {self.min_pause!r}")
        if not self.timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {self.timeout!r}")
        for name in ("max_concurrent", "max_span_records", "max_span_bytes"):
            value = getattr(self, name)
            if value is None and name != "max_concurrent":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        if not isinstance(self.enabled, bool):
            raise ValueError(f"active_backpressure must be True or False, not {self.enabled!r}")

    @property
    def span_seconds(self) -> float | None:
        """Longest time between two barriers in a healthy job, with grace; `None` without periodic checkpoints.

        The period of triggers is `max(interval, min_pause + duration)`, and a healthy duration is below the interval.
        """
        if self.interval is None:
            return None
        period = self.interval + self.min_pause
        return period + max(_GRACE * period, _LEAST_GRACE)

    @property
    def warning(self) -> str | None:
        """What to tell a user who switched active backpressure off; `None` if there is nothing to tell."""
        if self.enabled or self.interval is None:
            return None
        unbounded = max(0.0, self.timeout - self.max_concurrent * self.interval)
        return (
            f"active_backpressure=False: while {self.max_concurrent} checkpoint(s) are in progress the source reads "
            f"on, and the next checkpoint may span timeout − max_concurrent × interval = {self.timeout:g} − "
            f"{self.max_concurrent} × {self.interval:g} = {unbounded:g} s of data; checkpoints may then expire one "
            "after the other. Leave active_backpressure on unless you compare the two."
        )


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
    def last_barrier(self) -> int:
        """Largest checkpoint id whose barrier was taken."""
        return self._last_barrier

    def closed_seconds(self, now: float) -> float:
        """Time closed since the start, in seconds."""
        return self._closed_total + (0.0 if self._open else max(0.0, now - self._now))

    def record_allowance(self) -> int | None:
        """How many records may be fetched now: `None` = any number, 0 = closed, else at least one."""
        return self._allowance(self._record_limit, self._span_records)

    def byte_allowance(self) -> int | None:
        """How many bytes may be fetched now: `None` = any number, 0 = closed; a single larger record still goes."""
        return self._allowance(self._byte_limit, self._span_bytes)

    def admits_trigger(self, checkpoint_id: int) -> bool:
        """Whether a trigger is still to be answered: its barrier was not taken and its checkpoint is not over."""
        return checkpoint_id > self._last_barrier and checkpoint_id not in self._resolved_untaken

    def next_deadline(self, now: float) -> float | None:
        """When to send the next `Tick`, a clock value; `None` if time alone changes nothing."""
        left = self._time_left()
        if not self._open or left is None or self._owes_a_fetch():
            return None
        return max(now, self._now + left)

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Action]:
        """What to do about `event`.

        Raises:
            ValueError: a barrier was taken out of the order of ids.
        """
        self._advance(now)
        actions: list[Action] = []
        match event:
            case Emitted(records, size):
                self._span_records += records
                self._span_bytes += size
            case BarrierTaken(checkpoint_id, kind):
                actions += self._barrier_taken(checkpoint_id, kind)
            case CheckpointResolved(checkpoint_id):
                self._in_progress.pop(checkpoint_id, None)
                if checkpoint_id > self._last_barrier:
                    self._resolved_untaken.add(checkpoint_id)
            case HeartbeatReceived(heartbeat):
                actions += self._heartbeat(heartbeat)
            case ReadingBegins():
                actions += self._begin()
            case Tick():
                pass
        return actions + self._ask() + self._close()

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

    def _barrier_taken(self, checkpoint_id: int, kind: CheckpointKind) -> list[Action]:
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
        return self._refill()

    def _heartbeat(self, heartbeat: Heartbeat) -> list[Action]:
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
        return self._options.enabled and self._options.interval is not None

    @property
    def _record_limit(self) -> int | None:
        return self._scaled(self._options.max_span_records)

    @property
    def _byte_limit(self) -> int | None:
        return self._scaled(self._options.max_span_bytes)

    def _scaled(self, limit: int | None) -> int | None:
        return None if limit is None or not self._active else max(1, int(limit * self._scale))

    def _allowance(self, limit: int | None, used: int) -> int | None:
        if not self._open:
            return 0
        return None if limit is None else max(1, limit - used)

    def _time_left(self) -> float | None:
        seconds = self._options.span_seconds
        return None if seconds is None or not self._active else seconds * self._scale - self._span_time

    def _owes_a_fetch(self) -> bool:
        """A shortened span may be over before one fetch has come out; without it nothing would ever move."""
        return self._scale < 1 and self._span_records == 0

    def _close(self) -> list[Action]:
        if not self._open or not (used_up := self._what_is_used_up()):
            return []
        self._open = False
        self._used_up = used_up
        return [CloseGate(f"{used_up}: {self._cause()}")]

    def _what_is_used_up(self) -> str:
        left, records, size = self._time_left(), self._record_limit, self._byte_limit
        if records is not None and self._span_records >= records:
            used_up = f"span of {records} records used up"
        elif size is not None and self._span_bytes >= size:
            used_up = f"span of {size} bytes used up"
        elif left is not None and left <= _ROUNDING and not self._owes_a_fetch():
            used_up = f"span of {self._span_time + left:.3g} s used up"
        else:
            return ""
        return used_up if self._scale == 1 else f"{used_up} (shortened to {self._scale:.2g} of it by expiries)"

    def _cause(self) -> str:
        """Why no barrier came, in words."""
        running = sorted(n for n, kind in self._in_progress.items() if kind is not CheckpointKind.SAVEPOINT)
        if len(running) >= self._options.max_concurrent:
            ids = ", ".join(map(str, running))
            return f"checkpoints in progress are at their maximum of {self._options.max_concurrent} ({ids})"
        if self._held_back is not None:
            return self._held_back
        waited = self._now - self._span_start
        if self._asked_with == self._last_barrier:
            return "the next checkpoint was asked for and has not come yet"
        if waited < (self._options.span_seconds or 0.0):
            return "the next checkpoint is not due yet"
        return f"the coordinator is slow, no barrier for {waited:.3g} s"

    def _ask(self) -> list[Action]:
        if self._asked_with == self._last_barrier or any(self.admits_trigger(n) for n in self._in_progress):
            return []
        limits = ((self._record_limit, self._span_records), (self._byte_limit, self._span_bytes))
        if not any(limit is not None and used >= _ASK_AT * limit for limit, used in limits):
            return []
        self._asked_with = self._last_barrier
        return [AskForCheckpoint(self._last_barrier)]
