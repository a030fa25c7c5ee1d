"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def time_of(seconds: float) -> str:
    """`seconds` since 1970, in UTC; a number that is no time of the calendar as it is."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s since 1970"


def human_time(seconds: float | None) -> str:
    """`0.42 s`, `12 s`, `3 min 20 s`, `5 h 7 min`; a dash for `None`."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
