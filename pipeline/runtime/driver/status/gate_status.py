"""How the source gates of each vertex are, from what its subtasks report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoint.counted import counted
from checkpoint.gate.window import in_words


def gates_of(subtasks: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For every source vertex: how many of its gates are closed and why, and the windows of its subtasks (records,
    smallest and largest; `None` without) with the last change of the smallest.

    Args:
        subtasks: metrics by subtask, as in `JobHandle.metrics()["subtasks"]`.
    """
    vertices: dict[str, list[Mapping[str, Any]]] = {}
    for name, values in subtasks.items():
        if "sourceGateReason" in values:
            vertices.setdefault(name.rpartition("[")[0], []).append(values)
    rows = []
    for vertex, all_ in vertices.items():
        reasons = [reason for values in all_ if (reason := values["sourceGateReason"]) is not None]
        windows = [
            (size, values.get("gateWindowChange"))
            for values in all_
            if (size := values.get("gateWindowRecords")) is not None
        ]
        least, change = min(windows, key=lambda one: one[0], default=(None, None))
        rows.append(
            {
                "vertex": vertex,
                "subtasks": len(all_),
                "closed": len(reasons),
                "reasons": sorted(set(reasons)),
                "least_window": least,
                "most_window": max((size for size, _ in windows), default=None),
                "last_change": change,
            }
        )
    return rows


def sentence(row: Mapping[str, Any]) -> str:
    """One row in words, without the vertex."""
    if not row["closed"]:
        parts = ["open"]
    elif row["closed"] == row["subtasks"] == 1:
        parts = ["closed"]
    else:
        parts = [f"{row['closed']} of {row['subtasks']} closed"]
    parts[0] += "".join(f" ({reason})" for reason in row["reasons"])
    least, most = row["least_window"], row["most_window"]
    if least is not None:
        size, which = in_words(round(least)), "it"
        if least != most:
            size, which = f"{least:,.0f}–{counted(most, 'record')}", "the smallest"
        parts.append(f"window of {size}; {which} {row['last_change']}")
    return ", ".join(parts)
