"""`ManualClock`: time that passes only when a test says so."""

from __future__ import annotations

import math

from checkpoint.options import seconds as checked_seconds


class ManualClock:
    """A monotonic clock in seconds, for everything that takes the time as an argument or a callable.

    >>> clock = ManualClock()
    >>> clock.advance(1.5)
    1.5
    >>> clock()
    1.5
    """

    def __init__(self, start: float = 0.0) -> None:
        """
        Args:
            start: seconds that it shows at first. Default: 0.
        """
        self._now = checked_seconds(start, "start", -math.inf, finite=True)

    def __call__(self) -> float:
        return self._now

    @property
    def now(self) -> float:
        """Seconds."""
        return self._now

    @property
    def milliseconds(self) -> int:
        return round(self._now * 1000)

    def advance(self, seconds: float) -> float:
        """Let `seconds` pass; returns the new time.

        Raises:
            ValueError: time can't go back.
        """
        if not seconds >= 0:
            raise ValueError(f"time can't go back, so advance({seconds!r}) is refused")
        self._now += seconds
        return self._now

    def advance_to(self, time: float) -> float:
        """Let time pass until `time`, in seconds; returns it.

        Raises:
            ValueError: it has passed.
        """
        if not time >= self._now:
            raise ValueError(f"time can't go back from {self._now:g} to {time!r}")
        self._now = float(time)
        return self._now
