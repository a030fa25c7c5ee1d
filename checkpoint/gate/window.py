"""The gate's window: how many records a source subtask may emit between two barriers, learned as it goes.

As congestion control does for packets (RFC 5681): a window of what may be sent without an acknowledgement grows while
acknowledgements come quickly, and shrinks when they don't. Here a barrier that has *passed*, that is, at which every
subtask that the source reaches has taken its snapshot, acknowledges all records in front of it. Its *start delay*, from
the trigger until then, is the time that these records still took. (Never the checkpoint's duration: slow storage would
shrink the window, which lowers the rate that the window is set by, and so on to nothing.)

With H the bearable delay (`GateOptions.horizon`), r the records processed a second, m the checkpoints at a time:

    delay < H / 20       the window doubles           if half of it was used (and also below 0.2 s)
    delay < H / 2        it grows by a quarter        likewise
    delay ≤ H            it stays; but where spans of busy sources that reach the same differ, the smaller windows
                         grow by a quarter and the larger ones shrink by a twentieth
    delay > H            it becomes 0.8 · r · H / m, so that the m spans that lie in the queues take less than H; the
                         smaller ones stay

So sources come to share operators evenly, as far as they have records, whoever was there first.

Barriers that overtake data within H don't wait for the queues any longer than that: what takes longer then tells
nothing of the window, and changes nothing.

A delay need not come from the queues. An operator may have a latency of its own, or hold each barrier for a while; then
a smaller window only costs throughput. That shows in r: where r goes with the span, the window doubles whatever the
delay is, and shrinks no further than to there; and where nothing else changes it is tried a quarter larger from time to
time, and goes back if that was in vain (`checkpoint.gate.rounds`).

While no barrier is under way, all that the operators are known to have got, they have processed. The source then need
not stand still once the window is used up; it may go on at the pace that they have shown. That matters when the next
barrier doesn't come for another reason: slow storage, or the min pause.
"""

from __future__ import annotations

from collections import deque

from checkpoint.counted import counted
from checkpoint.gate.gate_events import BarrierPassed
from checkpoint.gate.gate_options import GateOptions
from checkpoint.gate.rounds import Round, Rounds, TakenBarrier

_QUICK, _GOOD = 1 / 20, 1 / 2
"""Parts of H."""
_QUICK_SECONDS = 0.2
"""A delay is quick below that in any case: so long messages may take on a busy machine."""
_USED = 1 / 2
"""Part of the window that a span must have had for the window to grow: a quiet job must not earn one for a flood."""
_GROWTH = 1.25
_QUICK_GROWTH = 2.0
_AIM = 0.8
"""Part of H that the queues should take once a window has shrunk, so that it can be tried larger within H."""
_YIELD = 0.95
_SMALL, _LARGE = 0.8, 1.2
"""Parts of the mean span of busy sources below and above which a span is a smaller or a larger one."""
_PACE_STEP = 0.25
"""By which part the pace without a barrier under way is above or below what was processed…"""
_PACE_QUEUE = 0.25
"""…but so that the queues change by that part of H at most."""
_LEAST_SECONDS = 0.05
"""Rates are taken over so long at least; only at the start it could be less."""
_MUCH = 0.75
"""A barrier that completes no round shrinks the window only if to less than that part."""
_SLOWER = 0.7
"""Part of a rate below which operators have become slower."""
_PATIENCE, _MOST_PATIENCE = 4, 64
"""Rounds that are alike before the window is tried a quarter larger; doubled each time that it was in vain."""


class SpanWindow:
    """The window of one source subtask. Pure: the clock is passed in. Only barriers that end a span are told."""

    def __init__(self, options: GateOptions, now: float) -> None:
        """
        Raises:
            ValueError: the options have no interval.
        """
        self._horizon = options.horizon
        self._quick = max(_QUICK * self._horizon, _QUICK_SECONDS)
        self._spans = options.checkpoints.max_concurrent
        self._first = options.window_at_start
        self._barriers_wait = options.barriers_wait
        self._records = float(self._first)
        self._change = f"began with {in_words(self._first)}"
        self._under_way: dict[int, TakenBarrier] = {}
        """By ascending id."""
        self._processed: deque[tuple[float, int]] = deque([(now, 0)])
        """When barriers passed, and at which positions; only as much of it as rates are taken from."""
        self._position = 0
        self._taken_at = now
        self._delay: float | None = None
        """Start delay of the newest barrier that has passed."""
        self._proven = 0.0
        """Records a second, the most that was processed since a barrier last passed slowly."""
        self._pace = 1.0
        self._passes: deque[tuple[float, int]] = deque([(now, 0)], maxlen=self._spans + 1)
        """The same of the newest barriers, so many as may be under way: they may pass in bunches."""
        self._rounds = Rounds(self._spans)
        self._needed: Round | None = None
        """The newest round that the rate went with, since barriers passed quickly last: less would cost throughput."""
        self._alike = 0
        """Rounds since the window was last tried larger."""
        self._patience = _PATIENCE

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
        self._processed = deque([(now, 0)])
        self._passes.clear()
        self._passes.append((now, 0))
        self._taken_at = now

    def barrier_taken(self, checkpoint_id: int, span: int, held_up: bool, now: float) -> None:
        """`span`: records emitted since the last barrier; `held_up`: see `TakenBarrier`."""
        self._position += span
        self._under_way[checkpoint_id] = TakenBarrier(now, self._position, span, now - self._taken_at, held_up)
        self._taken_at = now

    def passed(self, event: BarrierPassed, now: float) -> None:
        """A barrier has passed all that the source reaches. Repetitions, and older ones than one that has, count
        nothing."""
        n, delay = event.checkpoint_id, event.start_delay
        taken = self._under_way.get(n)
        if taken is None:
            return
        self._forget(n)
        before, (last, _) = self._records, self._passes[-1]
        self._passes.append((now, taken.position))
        rate = self._rate(taken.position, now)
        self._learn(taken, event, rate, last, now)
        if self._records != before:
            self._rounds.changed(now)
            why = f"whose barrier passed within {delay:.3g} s (bearable: {self._horizon:g} s)"
            self._say(before, f"{why}, {rate:,.0f} records/s processed", n)

    def completed(self, checkpoint_id: int, now: float) -> None:
        """The barrier has passed, if nobody said so before: after the time until now at most, storage included."""
        taken = self._under_way.get(checkpoint_id)
        if taken is not None and now - taken.at <= self._horizon:
            self.passed(BarrierPassed(checkpoint_id, now - taken.at, taken.span, taken.span), now)
        else:
            self._forget(checkpoint_id)

    def aborted(self, checkpoint_id: int, now: float) -> None:
        """That acknowledges nothing: the barrier counts as under way until a newer one has passed. That it has been so
        for longer than is bearable halves the window, if barriers wait for data."""
        taken, before = self._under_way.get(checkpoint_id), self._records
        if taken is not None and now - taken.at > self._horizon and self._barriers_wait:
            self._records = max(1.0, before / 2)
            self._rounds.changed(now)
            self._say(before, f"which ended after {now - taken.at:.3g} s, before its barrier had passed", checkpoint_id)

    def used_by(self, span: int) -> bool:
        """Whether a span of so many records has used the window."""
        return span >= _USED * self._records

    def _say(self, before: float, why: str, checkpoint_id: int) -> None:
        then = max(1, int(before))
        if self.records != then:
            verb = "grew" if self.records > then else "shrank"
            self._change = f"{verb} from {then:,} to {in_words(self.records)} at checkpoint {checkpoint_id}, {why}"

    def _forget(self, checkpoint_id: int) -> None:
        """Barriers keep their order, so the older ones have passed, too."""
        for n in [n for n in self._under_way if n <= checkpoint_id]:
            del self._under_way[n]

    # -- learning -------------------------------------------------------------------------------------------------

    def _rate(self, position: int, now: float) -> float:
        """Records processed a second, over a while: messages about two barriers may arrive at one time."""
        least = _QUICK * self._horizon
        while len(self._processed) > 1 and now - self._processed[1][0] >= least:
            self._processed.popleft()
        since, before = self._processed[0]
        self._processed.append((now, position))
        return (position - before) / max(now - since, _LEAST_SECONDS)

    def _learn(self, taken: TakenBarrier, event: BarrierPassed, rate: float, last: float, now: float) -> None:
        horizon, delay, busy = self._horizon, event.start_delay, event.busy_span
        self._delay = delay
        self._proven = max(self._proven, rate) if delay < _GOOD * horizon else rate
        used = self.used_by(taken.span)
        self._pace = self._pace_after(taken, delay)
        if delay < _GOOD * horizon:
            self._rounds.end()
            self._needed = None
            self._alike, self._patience = 0, _PATIENCE
            if used:
                self._records *= _QUICK_GROWTH if delay < self._quick else _GROWTH
            return
        if not self._barriers_wait:
            return
        done = self._rounds.passed(taken, event.mean_span, last, now)
        if used and taken.span < _SMALL * busy:
            if delay <= horizon:
                self._records *= _GROWTH
        elif used and taken.span > _LARGE * busy and delay <= horizon:
            self._records *= _YIELD
        elif done is not None:
            self._judge(done, delay, used, taken.held_up)
        elif delay > horizon and taken.span and self._needed is None:
            target = self._after_a_slow_barrier(used, taken.held_up)
            if target < _MUCH * self._records:
                self._records = target

    def _pace_after(self, taken: TakenBarrier, delay: float) -> float:
        horizon, seconds = self._horizon, max(taken.seconds, 1e-3)
        step = min(_PACE_STEP, _PACE_QUEUE * horizon / seconds)
        if delay < self._quick:
            return 1 + min(1.0, horizon / seconds)
        if delay < _GOOD * horizon:
            return 1 + step
        return 1.0 if delay <= horizon else 1 - step

    def _after_a_slow_barrier(self, used: bool, held_up: bool) -> float:
        (since, before), (now, position) = self._passes[0], self._passes[-1]
        rate = (position - before) / max(now - since, _LEAST_SECONDS)
        # Others may have made it slow: one that is quiet need not pay for them.
        least = 1.0 if used or held_up else float(self._first)
        return min(self._records, max(least, _AIM * rate * self._horizon / self._spans))

    def _judge(self, done: Round, delay: float, used: bool, held_up: bool) -> None:
        needed = self._needed
        if needed is not None and done.span >= needed.span and done.rate < _SLOWER * needed.rate:
            needed = None
        if used and done.rate_goes_with_span:
            self._needed = done
            self._records *= _QUICK_GROWTH
            return
        self._needed = needed
        if done.before is not None and done.vain:
            self._records = max(1.0, self._records * done.before.span / done.span)
            self._patience = min(2 * self._patience, _MOST_PATIENCE)
        elif delay > self._horizon:
            least = 0.0 if needed is None else min(1.0, needed.span / done.span) * self._records
            self._records = max(least, self._after_a_slow_barrier(used, held_up))
        elif used:
            self._alike += 1
            if self._alike >= self._patience:
                self._alike = 0
                self._records *= _GROWTH


def in_words(records: int) -> str:
    return counted(records, "record")
