"""How far event time is, by vertex and in words."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline.runtime.driver.status.event_time_status import event_time_of, sentence


def row(**values: Any) -> dict[str, Any]:
    none = {"recordsLate": 0, "recordsAhead": 0, "timersDropped": 0}
    return {"vertex": "count", "watermark": None, "watermarkLagMs": None, **none, **values}


def test_a_vertex_is_as_far_as_its_slowest_subtask_that_is_not_idle() -> None:
    subtasks = {
        "count[0]": {"watermark": 5, "watermarkLagMs": 10.0, "recordsLate": 2},
        "count[1]": {"watermark": 3, "watermarkLagMs": 30.0, "recordsLate": None},
        "count[2]": {"watermark": 1, "watermarkLagMs": 90.0, "eventTimeIdle": True, "recordsLate": 1},
        "out[0]": {},
    }
    assert event_time_of(subtasks) == [row(watermark=3, watermarkLagMs=30.0, recordsLate=3)]


def test_while_all_are_idle_those_count_that_have_a_watermark() -> None:
    subtasks = {
        "count[0]": {"watermark": 5, "eventTimeIdle": True},
        "count[1]": {"watermark": None, "eventTimeIdle": True},
    }
    assert event_time_of(subtasks) == [row(watermark=5)]


def test_a_subtask_without_a_watermark_leaves_the_vertex_without() -> None:
    assert event_time_of({"count[0]": {"watermark": 5}, "count[1]": {}}) == [row()]
    assert event_time_of({"count[0]": {"timersDropped": 4}}) == [row(timersDropped=4)]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "no watermark in some subtasks yet"),
        ({"watermark": MAX_WATERMARK, "watermarkLagMs": 5.0}, "ended"),
        ({"watermark": 0}, "watermark 1970-01-01 00:00:00 UTC (0)"),
        ({"watermark": 0, "watermarkLagMs": 0.0}, "watermark 1970-01-01 00:00:00 UTC (0), 0.0 s behind the clock"),
        ({"watermark": 0, "watermarkLagMs": 2500.0}, "watermark 1970-01-01 00:00:00 UTC (0), 2.5 s behind the clock"),
        ({"watermark": 0, "watermarkLagMs": -1.0}, "watermark 1970-01-01 00:00:00 UTC (0), 0.0 s ahead of the clock"),
        ({"watermark": 10**17}, f"watermark {10**17}"),
        ({"recordsLate": 1200}, "no watermark in some subtasks yet, 1,200 records late"),
        (
            {"recordsAhead": 1, "timersDropped": 3},
            "no watermark in some subtasks yet, 1 record too far ahead, 3 timers dropped at the end",
        ),
    ],
)
def test_a_row_in_words(values: dict[str, Any], words: str) -> None:
    assert sentence(row(**values)) == words
