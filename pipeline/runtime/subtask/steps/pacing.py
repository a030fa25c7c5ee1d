"""`limit_rate`: so many records a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from checkpoint.waiting import Waiting, WaitKind
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Pacer, Push, Site
from sources.rate_limit import RateLimit

_RESUME_S: Final = 0.01
"""Seconds of the rate that are waited for at once, so that waking up costs little."""
_STILL_WAITS_S: Final = 5.0
"""A wait counts as over when the step has let everything pass for so long. Else it would begin and end all the time
where records come about as fast as they may."""


def compile_limit_rate(site: Site) -> CompiledStep:
    rate = site.step.payload / site.context.parallelism
    what = f"the rate of {site.step.payload:g} records/s that limit_rate {site.step.id!r} allows"
    pacer = RatePacer(what, rate, site.downstream, site.clock, site.interrupt)
    return CompiledStep(pacer.push, pacer=pacer)


class RatePacer:
    """Hands every record on at once, and then says how long the next one must wait.

    It never sleeps: the task waits, as it does for room in its output queues, so barriers and mail go first. What comes
    from one record of the task's input passes together, and is made up for by a longer wait.
    """

    def __init__(
        self, what: str, rate: float, downstream: Push, clock: Callable[[], float], interrupt: Callable[[], None]
    ) -> None:
        """
        Args:
            what: it waits for.
            rate: records/s here, in this subtask.
            interrupt: makes the task leave its record loop.
        """
        self.what = what
        self._downstream = downstream
        self._clock = clock
        self._interrupt = interrupt
        now = clock()
        self._limit = RateLimit(rate, now)
        self._resume = max(1.0, rate * _RESUME_S)
        self._holds = False
        self._began = now
        self._held_at: float | None = None

    def push(self, value: Any) -> None:
        if not self._holds:
            now = self._clock()
            if self._limit.allowance(now) < 2:  # this one and the next
                self._hold(now)
        self._limit.take(1)
        self._downstream(value)

    def _hold(self, now: float) -> None:
        if self.waits_since(now) is None:
            self._began = now
        self._held_at = now
        self._holds = True
        self._interrupt()

    def seconds_left(self, now: float) -> float:
        """How long the next record must wait; 0 = not at all."""
        if not self._holds:
            return 0.0
        left = self._limit.wait(now, self._resume)
        if left > 0.0:
            self._held_at = now
            return left
        self._holds = False
        return 0.0

    def waits_since(self, now: float) -> float | None:
        """Since when it holds records up, a clock value; `None` = it lets them pass."""
        return self._began if self._held_at is not None and now - self._held_at < _STILL_WAITS_S else None


class Pacers:
    """All those of a task."""

    def __init__(self, pacers: Sequence[Pacer]) -> None:
        self._pacers = pacers

    def seconds_left(self, now: float) -> float:
        """How long the next record must wait; 0 = not at all."""
        return max((pacer.seconds_left(now) for pacer in self._pacers), default=0.0)

    def report(self, waits: Waiting, now: float, ended: bool) -> None:
        """Begin and end in `waits` what the task waits for; `ended`: nothing is processed any more."""
        for pacer in self._pacers:
            since = pacer.waits_since(now)
            if since is None or ended:
                waits.end(pacer.what)
            else:
                waits.begin(pacer.what, since, WaitKind.RATE)
