"""Percentiles of measured values."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], part: float) -> float | None:
    """The value below which `part` (0 to 1) of the values lie, between neighbours linearly; `None` without values."""
    if not values:
        return None
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
