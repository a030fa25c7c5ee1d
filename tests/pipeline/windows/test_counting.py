"""Windows by the number of records, and windows without an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_oracle import Numbers, is_empty

from pipeline import CountWindow, Global, Pipeline, PipelineError, Session, Tumbling
from pipeline.aggregates import Aggregation
from pipeline.testing import OperatorHarness
from pipeline.windows.operator import Options
from pipeline.windows.operator_choice import operator_of
from sources import SequenceSource


def make(window):
    return operator_of(window, Aggregation({"numbers": Numbers()}), Options())


@given(
    size=st.integers(1, 12),
    slide=st.integers(1, 12),
    keys=st.lists(st.sampled_from("ab"), max_size=60),
    restart=st.integers(0, 60),
)
def test_results_are_of_the_last_records_each_time_that_so_many_have_come(size, slide, keys, restart):
    window = CountWindow(max(size, slide), slide)
    harness, came = OperatorHarness(make(window)), {}
    for number, key in enumerate(keys):
        if number == restart:
            harness = OperatorHarness.restore(make(window), harness.snapshot())
        numbers = came.setdefault(key, [])
        numbers.append(number)
        last = numbers[-window.size :]
        expected = {"key": key, "start": min(last), "end": max(last) + 1, "final": True, "numbers": last}
        assert harness.process(number, key=key, timestamp=number) == ([expected] if len(numbers) % slide == 0 else [])


def test_a_window_that_is_full_leaves_nothing():
    harness = OperatorHarness(make(CountWindow(3)))
    for number in range(3):
        harness.process(number, key="ann")
    assert harness.outputs == [{"key": "ann", "start": None, "end": None, "final": True, "numbers": [0, 1, 2]}]
    assert is_empty(harness)


def test_a_global_window_has_all_records_or_those_since_the_last_result():
    for clear, second in ((False, [0, 1, 2, 3]), (True, [2, 3])):
        harness = OperatorHarness(make(Global(count=2, clear=clear)))
        for number in range(5):
            harness.process(number, key="ann", timestamp=10 - number)
        assert [one["numbers"] for one in harness.outputs] == [[0, 1], second]
        assert [one["final"] for one in harness.outputs] == [clear, clear]
        assert (harness.outputs[-1]["start"], harness.outputs[-1]["end"]) == (7, 9 if clear else 11)


def test_a_global_window_by_the_clock_has_results_where_records_have_come():
    harness = OperatorHarness(make(Global(every=10)))
    harness.process(0, key="ann")
    harness.process(1, key="ann")
    assert harness.advance_time(9.999) == []
    assert [one["numbers"] for one in harness.advance_time(0.001)] == [[0, 1]]
    harness = OperatorHarness.restore(make(Global(every=10)), harness.snapshot(), clock=harness.clock)
    assert harness.advance_time(60) == []
    harness.process(2, key="ann")
    assert [one["numbers"] for one in harness.advance_time(10)] == [[0, 1, 2]]


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.window(CountWindow(0)),
        lambda s: s.window(CountWindow(3, 4)),
        lambda s: s.window(CountWindow(2.5)),
        lambda s: s.window(Global()),
        lambda s: s.window(Global(count=1, every=1)),
        lambda s: s.window(Global(every=0)),
        lambda s: s.window(Global(count=2, clear=1)),
        lambda s: s.window(CountWindow(3), lateness=1).reduce(max),
        lambda s: s.window(Global(count=3), early=1).reduce(max),
        lambda s: s.window(CountWindow(3)).late(),
    ],
)
def test_what_can_not_be_is_refused(use):
    with pytest.raises(PipelineError):
        use(Pipeline("p").source("numbers", SequenceSource(9)).key_by(lambda n: n % 3))


def test_other_windows_are_refused_where_state_is_restored():
    harness = OperatorHarness(make(CountWindow(3)))
    harness.process(0, key="ann")
    for other in (CountWindow(4), Global(count=3), Tumbling(3), Session(3)):
        with pytest.raises(PipelineError, match="another id"):
            OperatorHarness.restore(make(other), harness.snapshot())


@pytest.mark.parametrize("clear", [False, True])
def test_what_triggers_a_global_window_may_change(clear):
    """The window had no timer, and would have got none."""
    harness = OperatorHarness(make(Global(count=3, clear=clear)))
    harness.process(0, key="ann")
    harness = OperatorHarness.restore(make(Global(every=60, clear=clear)), harness.snapshot())
    harness.process(1, key="ann")
    assert [one["numbers"] for one in harness.advance_time(60)] == [[0, 1]]
    harness.process(2, key="ann")
    harness = OperatorHarness.restore(make(Global(count=3, clear=clear)), harness.snapshot(), clock=harness.clock)
    assert harness.advance_time(120) == []
    harness.process(3, key="ann")
    (result,) = harness.process(4, key="ann")
    assert result["numbers"] == ([2, 3, 4] if clear else [0, 1, 2, 3, 4])
    harness.process(5, key="ann")
    harness = OperatorHarness.restore(make(Global(every=60, clear=clear)), harness.snapshot(), clock=harness.clock)
    harness.process(6, key="ann")
    assert [one["numbers"][-2:] for one in harness.advance_time(60)] == [[5, 6]]
