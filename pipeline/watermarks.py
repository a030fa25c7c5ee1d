"""How event time is taken from records, and how far behind them the watermark is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from checkpoint.options import Seconds, is_whole, named_options, seconds
from pipeline.windows.durations import milliseconds


@named_options
@dataclass(frozen=True, init=False)
class WatermarkStrategy:
    """For `stream.assign_timestamps`. Made by `bounded`."""

    timestamp: str | int | Callable[[Any], int]
    """A field name (of a dict), an index (of a list) or a function of the record."""
    lateness: int
    """Milliseconds by which records may come out of order."""
    idle_after: float | None = None
    """Seconds without records after which a split holds the others back no more; `None` = it always does. Once all are
    idle, the furthest one counts."""
    quiet_after: float | None = None
    """Seconds without records in any split after which the watermark goes on with the clock; `None` = never."""
    max_ahead: int | None = None
    """Milliseconds by which a timestamp may be ahead and still move the watermark; `None` = any."""

    def __init__(self, *_: object, **__: object) -> None:
        """
        Raises:
            TypeError: always, since the fields are milliseconds where all options of Weir are seconds.
        """
        raise TypeError(
            "a WatermarkStrategy is made by WatermarkStrategy.bounded(field_or_function, lateness), which takes seconds"
        )

    @classmethod
    def bounded(
        cls,
        field_or_function: str | int | Callable[[Any], int],
        lateness: Seconds,
        idle_after: Seconds | None = None,
        *,
        quiet_after: Seconds | None = None,
        max_ahead: Seconds | None = None,
    ) -> WatermarkStrategy:
        """Records may come out of order by `lateness` at most: the watermark is that far behind the largest timestamp.

        Args:
            field_or_function: where a record has its timestamp, an int in milliseconds since the epoch.
            lateness: seconds or `timedelta`.
            idle_after: a split (of Kafka: a partition) without records for so long holds the others back no more, and
                once all are idle, the furthest one counts; `None` = it always does.
            quiet_after: when no split has had records for so long, the watermark goes on with the clock, counted from
                the newest record, so that the last timers fire; what comes later with older timestamps is late. A split
                that is quiet for so long holds the others back no more, as with `idle_after`. `None` = without records
                event time stands still.
            max_ahead: a record whose timestamp is further ahead than that does not move the watermark: ahead of the
                clock of the host, or ahead of all that its split has had, as long as nothing more of that kind comes.
                Such records are counted and named in the log, and go on like others. `None` = all are believed.

        Raises:
            ValueError: an argument has a value that it can't have.
        """
        if not (isinstance(field_or_function, str) or is_whole(field_or_function) or callable(field_or_function)):
            raise ValueError(
                f"field_or_function must be a field name, an index or a function, not {field_or_function!r}"
            )
        if seconds(lateness, "lateness") == math.inf:
            raise ValueError("lateness must be finite: no watermark would ever come")
        idle = _longer_than_nothing(idle_after, "idle_after")
        quiet = _longer_than_nothing(quiet_after, "quiet_after")
        ahead = _longer_than_nothing(max_ahead, "max_ahead")
        made = {
            "timestamp": field_or_function,
            "lateness": milliseconds(lateness, "lateness", 0),
            "idle_after": idle,
            "quiet_after": quiet,
            "max_ahead": None if ahead in (None, math.inf) else milliseconds(max_ahead, "max_ahead"),
        }
        strategy = object.__new__(cls)
        for name, value in made.items():
            object.__setattr__(strategy, name, value)  # it is frozen
        return strategy


def _longer_than_nothing(value: Seconds | None, name: str) -> float | None:
    if value is None:
        return None
    given = seconds(value, name)
    if given == 0:
        raise ValueError(f"{name} must be above 0, or None for never")
    return given
