"""Sliding windows: panes, late records that some windows still take, and what is kept."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_oracle import END, Oracle, TimedHarness, every, is_empty, operator, told

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from pipeline import Count, Sliding
from pipeline.aggregates import Aggregation
from pipeline.testing import OperatorHarness
from pipeline.windows import sliding
from pipeline.windows.grid import Panes
from pipeline.windows.operator import Options
from pipeline.windows.operator_choice import operator_of

TEN_BY_FIVE = Sliding(0.01, 0.005)


def panes_of(key, harness):
    if is_empty(harness):
        return {}
    encoded = encode_key(key)
    return harness._backend.peek(encoded, key_group(encoded, 128), "windows", 10)


@given(
    size=st.integers(1, 40),
    slide=st.integers(1, 40),
    offset=st.integers(-50, 50),
    at=st.integers(-100, 100),
)
def test_the_windows_of_a_pane_are_those_of_its_times(size, slide, offset, at):
    size = max(size, slide)
    panes = Panes(size, slide, offset)
    pane = panes.pane(at)
    assert pane <= at < pane + panes.width
    ends = sorted(end for _, end in every(size, slide, offset)(at))
    assert list(panes.ends(pane, -1000, 1000)) == ends
    assert (panes.first_end(pane), panes.last_end(pane)) == (ends[0], ends[-1])
    for end in ends:
        assert panes.is_end(end)
        assert pane in panes.panes_of(end)
    assert pane in panes.ending_with(ends[-1])
    assert not any(pane in panes.ending_with(end) for end in ends[:-1])


def test_a_record_is_in_all_windows_that_overlap_it():
    harness = TimedHarness(operator(TEN_BY_FIVE))
    for number, at in enumerate((3, 7)):
        harness.process(number, key="ann", timestamp=at)
    harness.end_of_input()
    assert told(harness.outputs) == [
        ("ann", -5, 5, True, (0,)),
        ("ann", 0, 10, True, (0, 1)),
        ("ann", 5, 15, True, (1,)),
    ]


def test_a_record_that_is_late_for_some_windows_belongs_to_the_others_and_is_not_late():
    harness = TimedHarness(operator(TEN_BY_FIVE))
    harness.watermark(4)  # [-5, 5) has closed
    harness.process(0, key="ann", timestamp=3)
    harness.watermark(9)
    assert told(harness.outputs) == [("ann", 0, 10, True, (0,))]
    harness.process(1, key="ann", timestamp=4)
    assert harness.side_outputs["late"] == [1]
    assert is_empty(harness)


@pytest.mark.parametrize("lateness", [0, 3])
def test_a_window_that_has_closed_does_not_open_again_where_the_watermark_goes_back(lateness):
    """As after rescaling: another subtask was not as far."""
    fast, slow = (TimedHarness(operator(TEN_BY_FIVE, lateness)) for _ in range(2))
    fast.process(0, key="ann", timestamp=3)
    fast.watermark(9 + lateness)
    slow.watermark(0)
    one = TimedHarness.restore(operator(TEN_BY_FIVE, lateness), [fast.snapshot(), slow.snapshot()])
    one.process(1, key="ann", timestamp=3)
    one.process(2, key="ann", timestamp=8)
    one.end_of_input()
    assert {result[1:4] for result in told(fast.outputs) if result[3]} == {(-5, 5, True), (0, 10, True)}
    assert told(one.outputs) == [("ann", 5, 15, True, (2,))]
    assert one.side_outputs["late"] == [1]
    assert is_empty(one)


def test_panes_are_freed_one_by_one():
    harness = TimedHarness(operator(Sliding(0.03, 0.01)))
    harness.process(0, key="ann", timestamp=5)
    harness.process(1, key="ann", timestamp=15)
    kept = []
    for watermark in (9, 19, 28, 29, 38, 39):
        harness.watermark(watermark)
        kept.append(sorted(panes_of("ann", harness)))
    assert kept == [[0, 10], [0, 10], [0, 10], [10], [10], []]


def test_nothing_is_remembered_of_a_key_without_windows():
    step = operator_of(Sliding(0.1, 0.001), Aggregation({"n": Count()}), Options())
    harness = OperatorHarness(step)
    for key in "abc":
        for at in range(50):
            harness.process(at, key=key, timestamp=at)
    harness.watermark(60)
    assert len(step._folding._keys) == 3
    harness.watermark(1000)
    assert not step._folding._keys


def test_windows_fire_behind_a_gap_without_records():
    harness = TimedHarness(operator(TEN_BY_FIVE))
    harness.process(0, key="ann", timestamp=2)
    harness.process(1, key="ann", timestamp=1002)
    harness.watermark(500)
    assert told(harness.outputs) == [("ann", -5, 5, True, (0,)), ("ann", 0, 10, True, (0,))]
    harness.watermark(2000)
    assert told(harness.outputs)[2:] == [("ann", 995, 1005, True, (1,)), ("ann", 1000, 1010, True, (1,))]
    assert is_empty(harness)


@pytest.mark.parametrize("lateness", [0, 12, 10**15])
def test_at_the_end_of_input_all_windows_fire_however_many_follow_each_other(lateness):
    harness = TimedHarness(operator(Sliding(0.1, 0.001), lateness))
    for number, at in enumerate((0, 50, 1000)):
        harness.process(number, key="ann", timestamp=at)
    harness.watermark(20)
    harness.end_of_input()
    final = [one for one in told(harness.outputs) if one[3]]
    assert sorted(one[1] for one in final) == [*range(-99, 51), *range(901, 1001)]
    assert harness.timers_dropped == 0
    assert is_empty(harness)


def test_early_results_of_all_windows_that_have_changed():
    harness = TimedHarness(operator(TEN_BY_FIVE, early=1000))
    harness.process(0, key="ann", timestamp=3)
    harness.advance_time(1)
    assert told(harness.outputs) == [("ann", -5, 5, False, (0,)), ("ann", 0, 10, False, (0,))]
    harness.process(1, key="ann", timestamp=7)
    harness.watermark(4)
    harness.advance_time(1)
    assert told(harness.outputs)[2:] == [
        ("ann", -5, 5, True, (0,)),
        ("ann", 0, 10, False, (0, 1)),
        ("ann", 5, 15, False, (1,)),
    ]
    harness.end_of_input()
    assert is_empty(harness)


@pytest.mark.parametrize("lateness", [0, 8])
@pytest.mark.parametrize(("size", "slide"), [(20, 1), (20, 4), (30, 20)])
def test_many_panes_and_late_records_among_them(size, slide, lateness):
    """What windows have folded of their panes before counts no more once a late record has changed one."""
    random = Random(size * slide + lateness)
    harness = TimedHarness(operator(Sliding(size / 1000, slide / 1000), lateness))
    oracle = Oracle(every(size, slide), lateness)
    for number in range(1500):
        key, at = random.choice("ab"), number // 8 - int(random.expovariate(0.08))
        harness.process(number, key=key, timestamp=at)
        oracle.record(key, at, number)
        if number % 3 == 0:
            harness.watermark(number // 8 - 5)
            oracle.watermark(number // 8 - 5)
        if number % 400 == 399:
            outputs, late = harness.outputs, harness.side_outputs
            harness = TimedHarness.restore(operator(Sliding(size / 1000, slide / 1000), lateness), harness.snapshot())
            harness.outputs, harness.side_outputs["late"] = outputs, late.get("late", [])
    harness.end_of_input()
    oracle.watermark(END)
    assert len(oracle.late) > 10
    assert sorted(told(harness.outputs)) == sorted(oracle.results)
    assert harness.side_outputs["late"] == oracle.late
    assert is_empty(harness)


@pytest.mark.timeout(120)  # looks at all of them would be five billion
def test_a_window_that_fires_looks_at_the_panes_that_there_are_and_not_at_all_that_it_may_have():
    harness = OperatorHarness(operator_of(Sliding(1000, 0.001), Aggregation({"n": Count()}), Options()))
    harness.process({}, key="ann", timestamp=0)
    results = harness.watermark(5000)  # of windows with 1,000,000 panes each
    assert [(one["end"], one["n"]) for one in results] == [(end, 1) for end in range(1, 5002)]


@given(
    times=st.lists(st.tuples(st.sampled_from("ab"), st.integers(-60, 60)), min_size=1, max_size=25),
    lateness=st.sampled_from((0, 3, 40)),
    watermark=st.integers(-70, 50),
    most=st.sampled_from((0, 8)),
)
def test_at_the_end_many_open_windows_close_one_by_one_as_few_do_together(times, lateness, watermark, most):
    def outputs(at_once):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sliding, "MOST_AT_ONCE", at_once)
            harness = TimedHarness(operator(Sliding(0.02, 0.006), lateness))
            for number, (key, at) in enumerate(times):
                harness.process(number, key=key, timestamp=at)
                if number == len(times) // 2:
                    harness.watermark(watermark)
            harness.end_of_input()
            assert is_empty(harness)
            assert harness.timers_dropped == 0
            return sorted(told(harness.outputs), key=lambda one: (one[0], one[2], one[3]))

    assert outputs(most) == outputs(1000)
