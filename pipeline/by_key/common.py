"""What operators that go by event time share."""

from __future__ import annotations

from typing import Any

from checkpoint.shown import shown
from pipeline.by_event_time import NoTimestamp
from pipeline.operators import OperatorContext


def timestamp_of(method: str, value: Any, ctx: OperatorContext) -> int:
    """
    Raises:
        NoTimestamp: the record has none.
    """
    timestamp = ctx.timestamp
    if timestamp is None:
        raise NoTimestamp(
            f"{method} goes by event time, and a record has no timestamp: {shown(value, 200)}; put "
            "assign_timestamps(…) directly behind the source"
        )
    return timestamp
