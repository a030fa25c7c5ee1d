"""What `reduce` makes of windows."""

from __future__ import annotations

import pytest

from pipeline import CountWindow, Session, Sliding
from pipeline.aggregates import Aggregation
from pipeline.testing import OperatorHarness
from pipeline.windows.operator import Options
from pipeline.windows.operator_choice import operator_of
from pipeline.windows.reduced import Reduced


def into_the_first(a, b):
    a["n"] += b["n"]
    return a


def into_the_second(a, b):
    b["n"] += a["n"]
    return b


@pytest.mark.parametrize("function", [into_the_first, into_the_second])
@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Sliding(0.03, 0.01), [1, 2, 3, 3, 3, 3, 2, 1]),
        (CountWindow(3, 1), [1, 2, 3, 3, 3, 3]),
        (Session(0.01), [6]),
    ],
)
def test_the_function_may_change_what_it_gets(window, expected, function):
    """Windows that overlap have panes in common."""
    harness = OperatorHarness(operator_of(window, Aggregation({"value": Reduced(function)}), Options()))
    for at in range(0, 60, 10):
        harness.process({"n": 1}, key="ann", timestamp=at)
    harness.end_of_input()
    assert [result["value"]["n"] for result in harness.outputs] == expected
