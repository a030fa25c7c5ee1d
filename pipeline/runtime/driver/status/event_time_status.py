"""How far event time is in each vertex, from what its subtasks report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from checkpoint.counted import counted
from checkpoint.event_time.bounds import MAX_WATERMARK

_WORDS: Final = {
    "recordsLate": ("record late", "records late"),
    "recordsAhead": ("record too far ahead", "records too far ahead"),
    "timersDropped": ("timer dropped at the end", "timers dropped at the end"),
}
COUNTED: Final = tuple(_WORDS)
"""Counters of event time, by metric."""


def event_time_of(subtasks: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For every vertex that has had a watermark or counts something: its lowest watermark and the largest lag, of those
    subtasks that aren't idle, if there are any.

    Args:
        subtasks: metrics by subtask, as in `JobHandle.metrics()["subtasks"]`.
    """
    vertices: dict[str, list[Mapping[str, Any]]] = {}
    for name, values in subtasks.items():
        vertices.setdefault(name.rpartition("[")[0], []).append(values)
    rows = []
    for vertex, all_ in vertices.items():
        active = [values for values in all_ if not values.get("eventTimeIdle")] or [
            values for values in all_ if values.get("watermark") is not None
        ]
        watermarks = [values.get("watermark") for values in active]
        told = [one for one in watermarks if one is not None]
        counts = {name: sum(values.get(name) or 0 for values in all_) for name in COUNTED}
        if told or any(counts.values()):
            lags = [lag for values in active if (lag := values.get("watermarkLagMs")) is not None]
            lowest = min(told, default=None) if len(told) == len(watermarks) else None
            rows.append({"vertex": vertex, "watermark": lowest, "watermarkLagMs": max(lags, default=None), **counts})
    return rows


def sentence(row: Mapping[str, Any]) -> str:
    """One row in words, without the vertex."""
    watermark, lag = row["watermark"], row["watermarkLagMs"]
    if watermark is None:
        parts = ["no watermark in some subtasks yet"]
    elif watermark == MAX_WATERMARK:
        parts = ["ended"]
    else:
        parts = [f"watermark {_when(watermark)}"]
        if lag is not None:
            parts.append(f"{abs(lag) / 1000:,.1f} s {'behind' if lag >= 0 else 'ahead of'} the clock")
    for name, (one, more) in _WORDS.items():
        if row[name]:
            parts.append(counted(row[name], one, more))
    return ", ".join(parts)


def _when(ms: int) -> str:
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(ms)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC ({ms})"
