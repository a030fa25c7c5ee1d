"""How a cost grows with a size: fitted exponents. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SUPERLINEAR: Final = 1.15
"""An exponent from here on is called superlinear; below, noise can't be told from it."""


@dataclass(frozen=True)
class Fit:
    """A cost as a power of a size."""

    exponent: float
    """Of all points, by least squares of the logarithms: 1.0 is proportional, 0.0 constant."""
    tail: float
    """Of the last two points alone. A cost with a constant part shows its growth there first."""

    @property
    def superlinear(self) -> bool:
        """Whether the cost grows faster than the size at the end."""
        return max(self.exponent, self.tail) >= SUPERLINEAR

    def __str__(self) -> str:
        return f"n^{_rounded(self.exponent):.1f}, at the end n^{_rounded(self.tail):.1f}"


def fit(sizes: Sequence[float], costs: Sequence[float | None]) -> Fit | None:
    """`None` with fewer than two points whose size and cost are above 0.

    Args:
        costs: by size; `None` where there is none.
    """
    points = sorted(
        (math.log(size), math.log(cost))
        for size, cost in zip(sizes, costs, strict=True)
        if cost is not None and size > 0 and cost > 0
    )
    if len({x for x, _ in points}) < 2:
        return None
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    over = sum((x - mean_x) * (y - mean_y) for x, y in points)
    exponent = over / sum((x - mean_x) ** 2 for x, _ in points)
    last_x, last_y = points[-1]
    before_x, before_y = next(point for point in reversed(points) if point[0] < last_x)
    return Fit(exponent, (last_y - before_y) / (last_x - before_x))


def _rounded(value: float) -> float:
    """Without a minus in front of 0.0."""
    return round(value, 1) + 0.0
