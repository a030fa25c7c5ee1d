"""What slow barriers tell of a window: whether more of it, or less, would change anything. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

_CHANGED = 1.15
"""Rounds whose spans differ by less than that factor tell nothing."""
_STEEP, _TOO_STEEP = 0.4, 1.5
"""Between those elasticities the rate goes with the span. (Above, the operators have become slower meanwhile.)"""


@dataclass(frozen=True, slots=True)
class TakenBarrier:
    """A barrier that a source has taken. Times are clock values, positions records emitted since reading began."""

    at: float
    position: int
    span: int
    """Records between it and the barrier before."""
    seconds: float
    """Time between it and the barrier before."""
    held_up: bool
    """The source had to wait for room in its output queues meanwhile."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round has come to, for the sources that reach the same on average: of one alone more is processed with a
    larger span in any case, at the cost of the others."""

    span: float
    """Records, on average of its barriers."""
    rate: float
    """Records processed a second."""
    before: Round | None
    """The round before, of another span; `None` if there was none."""

    @property
    def rate_goes_with_span(self) -> bool:
        """The queues are not what makes barriers slow, else operators would process the same whatever the span is. An
        operator has a latency, say, or holds each barrier for a fixed time: less would cost throughput."""
        if self.before is None or not (self.rate > 0 and self.before.rate > 0):
            return False
        elasticity = math.log(self.rate / self.before.rate) / math.log(self.span / self.before.span)
        return _STEEP < elasticity < _TOO_STEEP

    @property
    def vain(self) -> bool:
        """The span is larger than before, and no more comes of it."""
        return self.before is not None and self.span > self.before.span and not self.rate_goes_with_span


class Rounds:
    """A round is as many barriers as may be under way at a time, whose spans all began after the window's last change:
    only those show what the change has done, and so many together have no bunches. The first slow barrier is a round by
    itself, since nothing should go on as before."""

    def __init__(self, barriers: int) -> None:
        self._barriers = barriers
        self._began = -math.inf
        """When the window last changed."""
        self._spans: list[float] = []
        self._from = 0.0
        self._last: Round | None = None

    def changed(self, now: float) -> None:
        self._began = now
        self._spans.clear()

    def end(self) -> None:
        """Barriers are quick again: what was before tells nothing any more."""
        self._spans.clear()
        self._last = None

    def passed(self, taken: TakenBarrier, mean_span: float, last: float, now: float) -> Round | None:
        """A slow barrier has passed: the round that it completes.

        Args:
            mean_span: see `checkpoint.gate.gate_events.BarrierPassed`.
            last: when the barrier before passed.
        """
        if taken.at - taken.seconds < self._began:
            return None
        if not self._spans:
            self._from = last
        self._spans.append(mean_span)
        if len(self._spans) < self._barriers and self._last is not None:
            return None
        processed, barriers = sum(self._spans), len(self._spans)
        self._spans.clear()
        if not processed or now <= self._from:
            return None
        span, rate = processed / barriers, processed / (now - self._from)
        before = self._last
        if before is not None and _alike(span, before.span):
            if not _alike(rate, before.rate):
                self._last = Round(span, rate, None)
            return Round(span, rate, None)  # and compare with the same one again, so that small steps add up
        self._last = Round(span, rate, None)
        return Round(span, rate, before)


def _alike(one: float, other: float) -> bool:
    return one == other or (one > 0 < other and abs(math.log(one / other)) < math.log(_CHANGED))
