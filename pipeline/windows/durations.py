"""Durations and times of what goes by event time, in milliseconds: one rule for watermarks, windows, joins and
`distinct`."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Final

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.options import is_number
from pipeline.errors import PipelineError

_MILLISECOND: Final = timedelta(milliseconds=1)
_MOST: Final = 10**15
"""Some thirty thousand years."""
FOR_EVER: Final = "for ever: nothing bounds how many keys there are"
"""How long something is kept, for people."""


def milliseconds(value: Any, what: str, least: int | None = 1) -> int:
    """A duration (seconds or `timedelta`) in milliseconds.

    Args:
        what: the option, in errors.
        least: milliseconds; `None` = it may be negative.

    Raises:
        PipelineError: it is none, has a fraction of a millisecond, or is too short or too long.
    """
    if isinstance(value, timedelta):
        ms, rest = divmod(value, _MILLISECOND)
        exact = not rest
    elif is_number(value) and math.isfinite(value):
        ms = round(value * 1000)
        exact = isinstance(value, int) or math.isclose(ms, value * 1000, rel_tol=1e-12)
    else:
        raise PipelineError(f"{what} must be seconds or a timedelta, not {value!r}")
    if not exact:
        raise PipelineError(f"{what} is {value!r}, which has a fraction of a millisecond; timestamps have none")
    if least is not None and ms < least:
        raise PipelineError(f"{what} must be at least {least / 1000:g} s, not {value!r}")
    if abs(ms) > _MOST:
        raise PipelineError(f"{what} is {value!r}, which is longer than anything of event time can be")
    return ms


def in_time(at: int) -> int:
    """`at`, or the end of event time, if it lies behind that."""
    return min(at, MAX_WATERMARK)


def in_seconds(ms: int) -> str:
    """A duration, for people."""
    return f"{ms // 1000:,} s" if ms % 1000 == 0 else f"{ms / 1000:,.3f} s"


def later_by(what: str, ms: int) -> str:
    """A time that much later, for people."""
    return what if ms == 0 else f"{what} {'+' if ms > 0 else '-'} {in_seconds(abs(ms))}"
