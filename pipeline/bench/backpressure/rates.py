"""Rates of a counter that is looked at now and then. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

RATE_WINDOW: Final = 1.0
"""Seconds over which rates are taken: subtasks report twice a second, so that anything shorter jumps."""


def windows(counts: Sequence[tuple[float, int]], window: float = RATE_WINDOW) -> list[tuple[float, float, float]]:
    """Pairs of time and counter as windows of about `window` seconds: begin, end, and increase a second in between. One
    for each pair that has pairs for so long before it."""
    found: list[tuple[float, float, float]] = []
    first, least = 0, 0.8 * window  # samples jitter
    for at, count in counts:
        while first + 1 < len(counts) and counts[first + 1][0] <= at - least:
            first += 1
        then, before = counts[first]
        if at - then >= least:
            found.append((then, at, (count - before) / (at - then)))
    return found


def rates(counts: Sequence[tuple[float, int]], window: float = RATE_WINDOW) -> list[tuple[float, float]]:
    """The same as pairs of time and increase a second over about the `window` seconds before."""
    return [(at, rate) for _, at, rate in windows(counts, window)]
