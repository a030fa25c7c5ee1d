"""The gate's window: how many records a source subtask may emit between two barriers, learned as it goes.

As congestion control does for packets (RFC 5681): a window of what may be sent without an acknowledgement grows while
acknowledgements come quickly, and shrinks when they don't. Here a barrier that has *passed*, that is, at which every
subtask that the source reaches has taken its snapshot, acknowledges all records in front of it. Its *start delay*, from
the trigger until then, is the time that these records still took. (Never the checkpoint's duration: slow storage would
shrink the window, which lowers the rate that the window is set by, and so on to nothing.)

With H the bearable delay (`GateOptions.horizon`), r the records drained a second, m the checkpoints at a time:

    delay < H / 20       the window doubles           if half of it was used
    delay < H / 2        it grows by a quarter        likewise
    delay ≤ H            it stays; but where spans of sources that reach the same differ, the smaller windows grow by a
                         quarter and the larger ones shrink by a twentieth
    delay > H            it becomes r · H / m, since m spans that lie in the queues then take H; the smaller ones stay

So sources come to share operators evenly, as far as they have records, whoever was there first.

While no barrier is under way, all that the operators are known to have got, they have drained. The source then need
not stand still once the window is used up; it may go on at the pace that they have shown. That matters when the next
barrier doesn't come for another reason: slow storage, or the min pause.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from checkpoint.gate.gate_options import GateOptions

_QUICK = 1 / 20
"""Parts of H."""
_GOOD = 1 / 2
_USED = 1 / 2
"""Part of the window that a span must have had for the window to grow: a quiet job must not earn one for a flood."""
_GROWTH = 1.25
_QUICK_GROWTH = 2.0
_YIELD = 0.95
_SMALL, _LARGE = 0.8, 1.2
"""Parts of the mean span below and above which a span is a smaller or a larger one."""
_PACE_STEP = 0.25
"""By which part the pace without a barrier under way is above or below what was drained…"""
_PACE_QUEUE = 0.25
"""…but so that the queues change by that part of H at most."""
_LEAST_SECONDS = 0.05
"""Rates are taken over so long at least; only at the start it could be less."""
_CHANGED = 1.2
"""Spans of two slow barriers that differ by less than that factor tell nothing of what the window costs."""
_STEEP, _TOO_STEEP = 0.5, 1.25
"""Between those elasticities the rate goes with the window, so the queues are not what makes barriers slow. (Above, the
operators have become slower meanwhile.)"""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A barrier that has not passed, as far as known."""

    at: float
    position: int
    """Records emitted in front of it since reading began."""
    span: int
    """Records between it and the barrier before."""
    seconds: float
    """Time between it and the barrier before."""


class Window:
    """The window of one source subtask. Pure: the clock is passed in. Only barriers that end a span are told."""

    def __init__(self, options: GateOptions, now: float) -> None:
        """
        Raises:
            ValueError: the options have no interval.
        """
        self._horizon = options.horizon
        self._spans = options.max_concurrent
        self._first = options.window_at_start
        self._records = float(self._first)
        self._change = f"began with {in_words(self._first)}"
        self._under_way: dict[int, _Taken] = {}
        """By ascending id."""
        self._drained: deque[tuple[float, int]] = deque([(now, 0)])
        """When barriers passed, and at which positions; only as much of it as rates are taken from."""
        self._position = 0
        self._taken_at = now
        self._delay: float | None = None
        """Of the newest barrier that has passed."""
        self._proven = 0.0
        """Records a second, the most that was drained since a barrier last passed slowly."""
        self._pace = 1.0
        self._slow: tuple[int, float] | None = None
        """Span and rate, neither 0, of the newest barrier, if it passed too slowly."""

    # -- what can be read -----------------------------------------------------------------------------------------

    @property
    def records(self) -> int:
        return max(1, int(self._records))

    @property
    def change(self) -> str:
        """The last change and its reason, in words."""
        return self._change

    @property
    def under_way(self) -> tuple[int, ...]:
        """Ids of the barriers taken that have not passed, as far as known."""
        return tuple(self._under_way)

    @property
    def passes(self) -> bool:
        """Whether the newest barrier that has passed did so in bearable time, and none is under way."""
        return not self._under_way and self._delay is not None and self._delay <= self._horizon

    @property
    def pace(self) -> float:
        """Records a second at which the source may go on beyond its window; 0 while a barrier is under way."""
        return 0.0 if self._under_way else self._pace * self._proven

    def limit(self, seconds: float) -> int:
        """Records that the span may have `seconds` after its barrier."""
        return max(self.records, int(self.pace * seconds))

    # -- what it is told ------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Reading begins: time before doesn't count. Nothing has been emitted."""
        self._drained = deque([(now, 0)])
        self._taken_at = now

    def barrier_taken(self, checkpoint_id: int, span: int, now: float) -> None:
        """`span`: records emitted since the last barrier."""
        self._position += span
        self._under_way[checkpoint_id] = _Taken(now, self._position, span, now - self._taken_at)
        self._taken_at = now

    def passed(self, checkpoint_id: int, start_delay: float, mean_span: float, now: float) -> None:
        """A barrier has passed all that the source reaches. Repetitions, and older ones than one that has, count
        nothing. `mean_span`: of all sources that reach the same, in records."""
        taken = self._under_way.get(checkpoint_id)
        if taken is None:
            return
        self._forget(checkpoint_id)
        rate = self._rate(taken.position, now)
        self._learn(checkpoint_id, taken, start_delay, mean_span, rate)

    def completed(self, checkpoint_id: int, now: float) -> None:
        """The barrier has passed, if nobody said so before: after the time until now at most, storage included."""
        taken = self._under_way.get(checkpoint_id)
        if taken is not None and now - taken.at <= self._horizon:
            self.passed(checkpoint_id, now - taken.at, taken.span, now)
        else:
            self._forget(checkpoint_id)

    # An aborted checkpoint acknowledges nothing: its barrier counts as under way until a newer one has passed.

    def _forget(self, checkpoint_id: int) -> None:
        """Barriers keep their order, so the older ones have passed, too."""
        for n in [n for n in self._under_way if n <= checkpoint_id]:
            del self._under_way[n]

    # -- learning -------------------------------------------------------------------------------------------------

    def _rate(self, position: int, now: float) -> float:
        """Records drained a second, over a while: messages about two barriers may arrive at one time."""
        least = _QUICK * self._horizon
        while len(self._drained) > 1 and now - self._drained[1][0] >= least:
            self._drained.popleft()
        since, before = self._drained[0]
        self._drained.append((now, position))
        return (position - before) / max(now - since, _LEAST_SECONDS)

    def _learn(self, checkpoint_id: int, taken: _Taken, delay: float, mean_span: float, rate: float) -> None:
        horizon = self._horizon
        self._delay = delay
        self._proven = max(self._proven, rate) if delay < _GOOD * horizon else rate
        step = min(_PACE_STEP, _PACE_QUEUE * horizon / max(taken.seconds, 1e-3))
        before, used = self._records, taken.span >= _USED * self._records
        if delay <= horizon:
            self._slow = None
        if delay < _GOOD * horizon:
            quick = delay < _QUICK * horizon
            self._pace = _QUICK_GROWTH if quick else 1 + step
            if used:
                self._records *= _QUICK_GROWTH if quick else _GROWTH
        elif delay <= horizon:
            self._pace = 1.0
            if used and taken.span < _SMALL * mean_span:
                self._records *= _GROWTH
            elif used and taken.span > _LARGE * mean_span:
                self._records *= _YIELD
        else:
            self._pace = 1 - step
            if taken.span and not (used and taken.span < _SMALL * mean_span):
                self._shrink(taken, rate, used)
        if self.records != max(1, int(before)):
            verb = "grew" if self._records > before else "shrank"
            self._change = (
                f"{verb} from {max(1, int(before)):,} to {in_words(self.records)} at checkpoint {checkpoint_id}, whose "
                f"barrier passed within {delay:.3g} s (bearable: {horizon:g} s), {rate:,.0f} records/s drained"
            )

    def _shrink(self, taken: _Taken, rate: float, used: bool) -> None:
        """Too slow. But where the rate has gone down with the span, it is not the queues that make barriers slow (an
        operator that holds each barrier for a fixed time, say), and less would only cost throughput."""
        before, self._slow = self._slow, (taken.span, rate)
        if before is not None and used and _STEEP < _elasticity(before, self._slow) < _TOO_STEEP:
            self._records *= _GROWTH
            return
        least = 1 if used else self._first  # others may have made it slow; one that is quiet need not pay for them
        self._records = min(self._records, max(least, rate * self._horizon / self._spans))


def _elasticity(before: tuple[int, float], after: tuple[int, float]) -> float:
    """By which power of the span the rate has changed; 0 where the spans are too much alike to tell."""
    spans = math.log(after[0] / before[0])
    if abs(spans) < math.log(_CHANGED):
        return 0.0
    return math.log(after[1] / before[1]) / spans


def in_words(records: int) -> str:
    return "1 record" if records == 1 else f"{records:,} records"
