"""How long a source takes to get to full speed again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.bench.backpressure.rates import windows

FULL: Final = 0.9
"""Part of what a source gives at its best that counts as full speed."""


@dataclass(frozen=True)
class Return:
    """A moment from which the source could be at full speed again. Times are seconds."""

    at: float
    """Since all subtasks ran for the first time."""
    until: float
    """When that was over, or the run."""
    after: float | None
    """How long it took; `None` = it was not there before `until`."""


def returned(counts: Sequence[tuple[float, int]], at: float, until: float, most: float) -> Return:
    """When the source was at full speed again: at the beginning of the first window of a second (`rates.windows`)
    behind `at` and in front of `until` in which it gives 90 % of what it gives at its best in any, or of `most`
    if that is less.

    Args:
        counts: time and counter of the whole run.
        most: records/s that the source could give at any time. What it has saved up while it was held back comes on top
            for a moment, and is no speed that it could keep up.
    """
    found = windows(counts)
    best = min(most, max((rate for _, _, rate in found), default=0.0))
    for begin, end, rate in found:
        if begin >= at and end <= until and rate >= FULL * best > 0:
            return Return(at, until, begin - at)
    return Return(at, until, None)
