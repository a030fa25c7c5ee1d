"""`WatermarkStrategy.bounded` and `assign_timestamps`: what they take and refuse."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from pipeline import Pipeline, PipelineError, WatermarkStrategy
from pipeline.graph import StepKind
from pipeline.testing import TestingSource


def test_its_constructor_which_would_take_milliseconds_is_refused() -> None:
    with pytest.raises(TypeError, match=r"made by WatermarkStrategy\.bounded\(.*seconds"):
        WatermarkStrategy("at", lateness=5)


def test_a_pickled_one_is_equal() -> None:
    strategy = WatermarkStrategy.bounded("at", 5, idle_after=3)
    assert pickle.loads(pickle.dumps(strategy)) == strategy


def test_durations_are_seconds_or_timedeltas() -> None:
    strategy = WatermarkStrategy.bounded("at", 1.5, idle_after=timedelta(minutes=1))
    assert (strategy.timestamp, strategy.lateness, strategy.idle_after) == ("at", 1500, 60.0)
    assert WatermarkStrategy.bounded("at", timedelta(milliseconds=2)).lateness == 2
    assert WatermarkStrategy.bounded("at", 0).idle_after is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, 1), "a field name, an index or a function, not None"),
        ((True, 1), "a field name, an index or a function, not True"),
        (("at", -1), "lateness must be at least 0 s, not -1"),
        (("at", "1"), "lateness must be seconds or a timedelta"),
        (("at", float("inf")), "lateness must be finite"),
        (("at", float("nan")), "lateness must be at least 0 s, not nan"),
        (("at", 0.0004), "lateness is 0.0004, which has a fraction of a millisecond"),
        (("at", 1, 0), "idle_after must be above 0"),
        (("at", 1, -5), "idle_after must be at least 0 s, not -5"),
    ],
)
def test_what_it_cannot_be_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WatermarkStrategy.bounded(*arguments)


def test_a_bound_that_is_no_whole_milliseconds_is_refused_and_not_rounded() -> None:
    assert WatermarkStrategy.bounded("at", 1, max_ahead=0.25).max_ahead == 250
    assert WatermarkStrategy.bounded("at", 1, max_ahead=float("inf")).max_ahead is None
    with pytest.raises(ValueError, match=r"max_ahead is 1\.0004, which has a fraction of a millisecond"):
        WatermarkStrategy.bounded("at", 1, max_ahead=1.0004)


def test_assign_timestamps_is_chained_and_may_have_an_id() -> None:
    p = Pipeline("job", parallelism=2)
    stream = p.source("in", TestingSource())
    stream.assign_timestamps(WatermarkStrategy.bounded("at", 1)).assign_timestamps(
        WatermarkStrategy.bounded(lambda v: v["at"], 1), id="again"
    )
    (vertex,) = p.plan().vertices
    assert [(step.id, step.kind) for step in vertex.steps[1:]] == [
        ("assign_timestamps-1", StepKind.ASSIGN_TIMESTAMPS),
        ("again", StepKind.ASSIGN_TIMESTAMPS),
    ]


def test_assign_timestamps_takes_a_strategy() -> None:
    with pytest.raises(PipelineError, match="assign_timestamps takes a WatermarkStrategy, not 'at'"):
        Pipeline("job").source("in", TestingSource()).assign_timestamps("at")  # type: ignore[arg-type]
