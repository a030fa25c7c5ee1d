"""How event time is taken from records, and how far behind them the watermark is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from checkpoint.config import Seconds, seconds


@dataclass(frozen=True)
class WatermarkStrategy:
    """For `stream.assign_timestamps`. Made by `bounded`."""

    timestamp: str | int | Callable[[Any], int]
    """A field name (of a dict), an index (of a list) or a function of the record."""
    lateness: int
    """Milliseconds."""
    idle_after: float | None
    """Seconds."""

    @classmethod
    def bounded(
        cls, field_or_function: str | int | Callable[[Any], int], lateness: Seconds, idle_after: Seconds | None = None
    ) -> WatermarkStrategy:
        """Records may come out of order by `lateness` at most: the watermark is that far behind the largest timestamp.

        Args:
            field_or_function: where a record has its timestamp, an int in milliseconds since the epoch.
            lateness: seconds or `timedelta`.
            idle_after: a split (of Kafka: a partition) without records for so long holds the others back no more;
                `None` = it always does.

        Raises:
            ValueError: an argument has a value that it can't have.
        """
        named = isinstance(field_or_function, str | int) and not isinstance(field_or_function, bool)
        if not (named or callable(field_or_function)):
            raise ValueError(f"timestamps are a field name, an index or a function, not {field_or_function!r}")
        late = seconds(lateness, "lateness")
        if late == math.inf:
            raise ValueError("lateness must be finite: no watermark would ever come")
        idle = None if idle_after is None else seconds(idle_after, "idle_after")
        if idle == 0:
            raise ValueError("idle_after must be above 0, or None for never")
        return cls(field_or_function, round(late * 1000), idle)
