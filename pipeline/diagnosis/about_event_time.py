"""Who holds event time back, and whether it has run ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from checkpoint.counted import counted
from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline.diagnosis.sentence import Sentence, note, trouble
from pipeline.shown_times import human_time

_BEHIND: Final = 60_000.0
"""Milliseconds behind the clock that are worth a word."""
_AHEAD: Final = 60_000.0
"""Milliseconds ahead of the clock that no clock is wrong by."""


def sentences(status: Mapping[str, Any]) -> Iterator[Sentence]:
    rows = [row for row in status["event_time"] if row["watermark"] != MAX_WATERMARK]
    yield from _ahead(rows)
    yield from _behind(status, rows)
    for row in rows:
        if row["recordsAhead"]:
            yield trouble(
                "event time",
                f"{counted(row['recordsAhead'], 'record')} at {row['vertex']} had timestamps further ahead than "
                "max_ahead allows. They did not move event time.",
            )
        if row["recordsLate"]:
            yield note(
                "event time",
                f"{counted(row['recordsLate'], 'record')} at {row['vertex']} came later than event time waits for.",
            )


def _ahead(rows: list[Mapping[str, Any]]) -> Iterator[Sentence]:
    first = min(rows, key=lambda row: _lag(row), default=None)
    if first is not None and _lag(first) < -_AHEAD:
        yield trouble(
            "event time",
            f"The watermark of {first['vertex']} is {human_time(-_lag(first) / 1000)} ahead of the clock: a record "
            "with a timestamp of the future has moved it, and records of now are late. Use max_ahead= of the watermark "
            "strategy, and look whether timestamps are in milliseconds.",
        )


def _lag(row: Mapping[str, Any]) -> float:
    return float(row["watermarkLagMs"] or 0.0)


def _behind(status: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> Iterator[Sentence]:
    last = max(rows, key=_lag, default=None)
    if last is None or _lag(last) <= _BEHIND:
        return
    subtasks = {
        name: float(values.get("watermarkLagMs") or 0.0)
        for name, values in status["subtasks"].items()
        if name.rpartition("[")[0] == last["vertex"] and not values.get("eventTimeIdle")
    }
    slowest = max(subtasks, key=lambda name: subtasks[name], default=None)
    who = last["vertex"] if slowest is None else slowest
    yield note(
        "event time",
        f"Event time is {human_time(_lag(last) / 1000)} behind the clock. {who} holds it back: either its data is that "
        "old, or a split of it is quiet (idle_after= or quiet_after= of the watermark strategy leave it out).",
    )
