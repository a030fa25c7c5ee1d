"""What bounds a source's span."""

from __future__ import annotations

import math
from dataclasses import dataclass

_GRACE = 0.1
"""Part of the span added for trigger jitter…"""
_LEAST_GRACE = 0.25
"""…but at least so many seconds."""
FIRST_RECORDS_PER_SECOND = 100
"""The first window is what so many records a second come to within the horizon…"""
LEAST_FIRST_RECORDS = 1_000
"""…but so many at least. Doubling from there takes a second or two up to full speed; and operators that do less have
one long checkpoint, the first."""
_LEAST_HORIZON = 1.0
"""Seconds: a delay below that is nobody's trouble, however short the interval is, and mostly noise."""


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
    slow_storage_span: float = 60.0
    """Longest span while barriers pass in time and only the storage holds the next one back; the span without that
    counts if it is longer."""
    max_span_records: int | None = None
    """Most records between two barriers; `None` = no limit."""
    max_span_bytes: int | None = None
    """Most bytes between two barriers; `None` = no limit."""
    window: bool = True
    """`span_window` of the source: also close by a learned number of records (see `checkpoint.gate.window`)."""
    first_window: int | None = None
    """Records of the window at the start; `None` = `FIRST_RECORDS_PER_SECOND` for the time of the horizon, and
    `LEAST_FIRST_RECORDS` at least."""
    enabled: bool = True
    """`active_backpressure` of the source; `False` = only count."""

    def __post_init__(self) -> None:
        if self.interval is not None and not 0 < self.interval < math.inf:
            raise ValueError(f"interval must be a positive number of seconds or None, not {self.interval!r}")
        if not 0 <= self.min_pause < math.inf:
            raise ValueError(f"min_pause must be at least 0 s, not {self.min_pause!r}")
        if not self.timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {self.timeout!r}")
        if not self.slow_storage_span >= 0:
            raise ValueError(f"slow_storage_span must be at least 0 s, not {self.slow_storage_span!r}")
        for name in ("max_concurrent", "max_span_records", "max_span_bytes", "first_window"):
            value = getattr(self, name)
            if value is None and name != "max_concurrent":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        for name, value in (("span_window", self.window), ("active_backpressure", self.enabled)):
            if not isinstance(value, bool):
                raise ValueError(f"{name} must be True or False, not {value!r}")

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
    def horizon(self) -> float:
        """The start delay that is just bearable, in seconds: an interval, and half of the timeout at most, since a
        barrier that has not passed by then tells nothing any more.

        Raises:
            ValueError: there is no interval.
        """
        if self.interval is None:
            raise ValueError("without periodic checkpoints no start delay is too long")
        return max(_LEAST_HORIZON, min(self.interval, self.timeout / 2))

    @property
    def window_at_start(self) -> int:
        """In records.

        Raises:
            ValueError: there is no interval.
        """
        return self.first_window or max(LEAST_FIRST_RECORDS, round(FIRST_RECORDS_PER_SECOND * self.horizon))

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
