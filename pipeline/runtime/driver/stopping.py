"""From a signal to the end of a job: what is asked of it, and when patience is over (pure; `signals.py` does it)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

_AGAIN = 0.5
"""Seconds between a stop that failed and the next try."""
_ONE = 0.3
"""Seconds within which signals count as one: `timeout` and others send it to a process and then to its whole group."""
_ENDING = 60.0
"""Seconds that a cancelled job may take to end at the end of the process."""


@dataclass(frozen=True)
class AskToStop:
    """Have the job take its last checkpoint, commit, and end; the answer goes to `accepted` or `refused`."""


@dataclass(frozen=True)
class CancelJob:
    """End the job at once."""

    why: str
    """For the user; empty if it is clear."""


@dataclass(frozen=True)
class Leave:
    """End the process as it is."""


Action = AskToStop | CancelJob | Leave


@dataclass
class Stopping:
    """A first signal stops the job behind a last checkpoint, a second one or the end of the grace time cancels it, a
    third one ends the process. A stop that fails is tried again as long as there is time: the job may be restarting.

    Every method takes the time in seconds of a monotonic clock and returns what to do.
    """

    grace: float
    """Seconds for the last checkpoint and its commit; 0 = a first signal cancels."""
    asked: bool = field(default=False, init=False)
    """A signal has come."""
    cancelled: bool = field(default=False, init=False)
    """By this, not by others."""
    trouble: str | None = field(default=None, init=False)
    """Why the newest try to stop has failed."""
    _deadline: float | None = field(default=None, init=False)
    _again_at: float | None = field(default=None, init=False)
    _ended: bool = field(default=False, init=False)
    _signalled_at: float = field(default=-math.inf, init=False)

    def signalled(self, now: float) -> list[Action]:
        if self._ended or now - self._signalled_at < _ONE:
            return []
        self._signalled_at = now
        if self.cancelled:
            return [Leave()]
        if self.asked or self.grace <= 0:
            self.asked = True
            return self._cancel("")
        self.asked = True
        self._deadline = now + self.grace if math.isfinite(self.grace) else None
        return [AskToStop()]

    def accepted(self) -> None:
        """The last checkpoint is complete; what belongs to it is being committed."""
        self.trouble = None

    def refused(self, why: str, now: float) -> None:
        """The last checkpoint did not come about, and the job goes on."""
        if self.asked and not self.cancelled and not self._ended:
            self.trouble = why
            self._again_at = now + _AGAIN

    def ended(self) -> None:
        """The job has ended."""
        self._ended = True
        self._deadline = self._again_at = None

    def tick(self, now: float) -> list[Action]:
        if self._deadline is not None and now >= self._deadline:
            return self._cancel(f"it did not end within {self.grace:g} s")
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            return [AskToStop()]
        return []

    @property
    def next_deadline(self) -> float | None:
        """When to call `tick`."""
        return min((t for t in (self._deadline, self._again_at) if t is not None), default=None)

    def _cancel(self, why: str) -> list[Action]:
        self.cancelled = True
        self._deadline = self._again_at = None
        return [CancelJob(why)]


def seconds_to_end(jobs: Iterable[Stopping]) -> float:
    """For how long the end of the process waits for jobs that it stops."""
    return max((job.grace for job in jobs), default=0.0) + _ENDING
