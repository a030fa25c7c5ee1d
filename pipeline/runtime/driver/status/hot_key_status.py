"""The keys that have most of the records, from what subtasks report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SHOWN: Final = 20
"""In a status."""


def hot_keys_of(subtasks: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those of all steps with most records a second, hottest first: `key` as Python writes it, or `None` if keys are
    not to be named, and its `share` of the subtask's records.

    Args:
        subtasks: metrics by subtask, as in `JobHandle.metrics()["subtasks"]`.
    """
    found = [
        (share * values["recordsInPerSecond"], {"subtask": name, "key": key, "share": share})
        for name, values in subtasks.items()
        for key, share in values.get("hotKeys", ())
    ]
    return [row for _, row in sorted(found, key=lambda one: -one[0])[:_SHOWN]]


def sentence(row: Mapping[str, Any]) -> str:
    """One of them for a line of text."""
    return f"{named(row['key'])} has {row['share']:.0%} of the records of {row['subtask']}"


def named(key: str | None) -> str:
    return "one key" if key is None else f"key {key}"
