"""What bounds a source's span."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.config import CheckpointConfig
from checkpoint.counted import counted
from checkpoint.options import flag, limit

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

    checkpoints: CheckpointConfig
    """Without an interval no barrier could open the gate, so it never closes."""
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
        for name in ("max_span_records", "max_span_bytes", "first_window"):
            limit(getattr(self, name), name)
        flag(self.window, "span_window")
        flag(self.enabled, "active_backpressure")

    @property
    def span_seconds(self) -> float | None:
        """Longest time between two barriers in a healthy job, with grace; `None` without periodic checkpoints.

        The period of triggers is `max(interval, min_pause + duration)`, and a healthy duration is below the interval.
        """
        interval = self.checkpoints.interval_s
        if interval is None:
            return None
        period = interval + self.checkpoints.min_pause_s
        return period + max(_GRACE * period, _LEAST_GRACE)

    @property
    def horizon(self) -> float:
        """The start delay that is just bearable, in seconds: an interval, and half of the timeout at most, since a
        barrier that has not passed by then tells nothing any more.

        Raises:
            ValueError: there is no interval.
        """
        interval = self.checkpoints.interval_s
        if interval is None:
            raise ValueError("without periodic checkpoints no start delay is too long")
        return max(_LEAST_HORIZON, min(interval, self.checkpoints.timeout_s / 2))

    @property
    def window_at_start(self) -> int:
        """In records.

        Raises:
            ValueError: there is no interval.
        """
        return self.first_window or max(LEAST_FIRST_RECORDS, round(FIRST_RECORDS_PER_SECOND * self.horizon))

    @property
    def barriers_wait(self) -> bool:
        """Whether a barrier waits for the data in front of it until the start delay is no longer bearable. Else it
        overtakes that before, and what then takes long is something else, a busy machine say.

        Raises:
            ValueError: there is no interval.
        """
        wait = self.checkpoints.alignment_timeout_s
        return wait is None or wait >= self.horizon

    @property
    def warning(self) -> str | None:
        """What to tell a user who switched active backpressure off; `None` if there is nothing to tell."""
        interval, timeout, at_once = (
            self.checkpoints.interval_s,
            self.checkpoints.timeout_s,
            self.checkpoints.max_concurrent,
        )
        if self.enabled or interval is None:
            return None
        unbounded = max(0.0, timeout - at_once * interval)
        return (
            f"active_backpressure=False: while {counted(at_once, 'checkpoint is', 'checkpoints are')} in progress the "
            f"source reads on, and the next checkpoint may span timeout − max_concurrent × interval = {timeout:g} − "
            f"{at_once} × {interval:g} = {unbounded:g} s of data; checkpoints may then expire one after the other. "
            "Leave active_backpressure on unless you compare the two."
        )
