"""Sessions: how they grow together, whatever the order of the records."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from window_oracle import TimedHarness, is_empty, operator, told

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from pipeline import Session, Tumbling
from pipeline.paged import directory
from pipeline.windows.operator import TimeWindows

TEN = Session(0.01)


@pytest.mark.parametrize("order", list(itertools.permutations([(0, 0), (1, 10), (2, 20)])))
def test_records_that_touch_make_one_session_in_any_order(order):
    harness = TimedHarness(operator(TEN))
    for number, at in order:
        harness.process(number, key="ann", timestamp=at)
    harness.watermark(28)
    assert harness.outputs == []
    harness.watermark(29)
    assert told(harness.outputs) == [("ann", 0, 30, True, (0, 1, 2))]
    assert is_empty(harness)


def test_records_further_apart_than_the_gap_are_two_sessions():
    harness = TimedHarness(operator(TEN))
    harness.process(0, key="ann", timestamp=11)
    harness.process(1, key="ann", timestamp=0)
    harness.end_of_input()
    assert told(harness.outputs) == [("ann", 0, 10, True, (1,)), ("ann", 11, 21, True, (0,))]


def test_a_record_between_two_sessions_makes_one_of_three_also_when_they_have_fired():
    harness = TimedHarness(operator(TEN, lateness=100))
    harness.process(0, key="ann", timestamp=0)
    harness.process(1, key="ann", timestamp=18)
    harness.watermark(20)
    harness.process(2, key="ann", timestamp=9)  # the first has fired, the second has not
    harness.watermark(30)
    harness.process(3, key="ann", timestamp=38)
    harness.process(4, key="ann", timestamp=28)  # late, and joins one that has fired and one that has not
    harness.end_of_input()
    assert told(harness.outputs) == [
        ("ann", 0, 10, False, (0,)),
        ("ann", 0, 28, False, (0, 1, 2)),
        ("ann", 0, 48, True, (0, 1, 2, 3, 4)),
    ]
    assert is_empty(harness)


def test_a_session_that_has_fired_and_grows_fires_again_at_its_new_end():
    harness = TimedHarness(operator(TEN, lateness=100))
    harness.process(0, key="ann", timestamp=0)
    harness.watermark(12)
    harness.process(1, key="ann", timestamp=8)  # [0, 18) now
    harness.watermark(16)
    assert len(harness.outputs) == 1
    harness.watermark(17)
    harness.watermark(117)
    assert told(harness.outputs) == [
        ("ann", 0, 10, False, (0,)),
        ("ann", 0, 18, False, (0, 1)),
        ("ann", 0, 18, True, (0, 1)),
    ]
    assert is_empty(harness)


def test_sessions_that_become_one_give_one_early_result():
    harness = TimedHarness(operator(TEN, early=2000))
    for number, at in enumerate((0, 18, 40, 9)):
        harness.process(number, key="ann", timestamp=at)
    harness.advance_time(2)
    assert told(harness.outputs) == [("ann", 0, 28, False, (0, 1, 3)), ("ann", 40, 50, False, (2,))]


def test_a_session_that_grows_sets_no_timer_for_each_record():
    harness = TimedHarness(operator(TEN))
    for number in range(100):
        harness.process(number, key="ann", timestamp=number)
    assert len(harness._backend.event_timers) == 1
    harness.watermark(107)
    assert harness.outputs == []
    assert len(harness._backend.event_timers) == 1
    harness.watermark(108)
    assert told(harness.outputs) == [("ann", 0, 109, True, tuple(range(100)))]


def test_a_session_that_has_closed_is_not_opened_again_where_the_watermark_goes_back():
    fast, slow = TimedHarness(operator(TEN)), TimedHarness(operator(TEN))
    fast.process(0, key="ann", timestamp=0)
    fast.watermark(9)
    slow.watermark(0)
    one = TimedHarness.restore(operator(TEN), [fast.snapshot(), slow.snapshot()])
    one.process(1, key="ann", timestamp=0)
    assert one.side_outputs["late"] == [1]


def test_many_sessions_of_a_key_close_in_order():
    harness = TimedHarness(operator(TEN, early=0))
    for number in range(20_000):
        harness.process(number, key="ann", timestamp=number * 11)
    assert len(harness.outputs) == 20_000
    assert len(harness.watermark(11 * 20_000)) == 20_000
    assert is_empty(harness)


def rewritten(harness: TimedHarness, **states: Any) -> Any:
    """A snapshot in which the states of ann have these values."""
    encoded = encode_key("ann")
    harness._backend.set_current_key(encoded, key_group(encoded, 128))
    for name, value in states.items():
        getattr(harness.operator, name).value = value
    harness._backend.clear_current_key()
    return harness.snapshot()


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("size", [2, directory.MOST])
def test_sessions_of_a_checkpoint_from_before_there_were_pages_go_on(monkeypatch, backend, size):
    """It has all sessions of a key in one value, and two begins of sessions that are gone in front of them."""
    monkeypatch.setattr(directory, "MOST", size)
    before = TimedHarness(operator(TEN, early=2000))
    for number, at in enumerate((20, 40, 60, 80, 85)):
        before.process(number, key="ann", timestamp=at)
    sessions = {20: (20, ((0,),)), 40: (40, ((1,),)), 60: (60, ((2,),)), 80: (85, ((3, 4),))}
    changed = dict.fromkeys((20, 40, 60, 80, 85))
    snapshot = rewritten(before, windows=[2, [-9, 3, 20, 40, 60, 80], sessions], updated=(2000, changed), changed=None)
    harness = TimedHarness.restore(operator(TEN, early=2000), [snapshot], state_backend=backend)
    harness.process(5, key="ann", timestamp=50)
    harness.process(6, key="ann", timestamp=0)
    harness.advance_time(2)
    expected = [("ann", 0, 10, (6,)), ("ann", 20, 30, (0,)), ("ann", 40, 70, (1, 2, 5)), ("ann", 80, 95, (3, 4))]
    assert sorted(told(harness.outputs)) == [(*one[:3], False, one[3]) for one in expected]
    harness.outputs.clear()
    again = TimedHarness.restore(operator(TEN, early=2000), [harness.snapshot()], state_backend=backend)
    again.watermark(69)
    again.end_of_input()
    assert told(again.outputs) == [(*one[:3], True, one[3]) for one in expected]
    assert is_empty(again)


@pytest.mark.parametrize("window", [TEN, Tumbling(0.01)], ids=repr)
def test_thousands_of_windows_of_a_key_with_early_results_give_them_in_parts(monkeypatch, window):
    told_by_a_timer = []

    def counting(self: TimeWindows, updates: list[int], ctx: Any) -> Any:
        told_by_a_timer.append(len(updates))
        return results_of(self, updates, ctx)

    made = operator(window, early=2000)
    results_of = type(made).results_of
    monkeypatch.setattr(type(made), "results_of", counting)
    harness = TimedHarness(made)
    for number in range(2_500):
        harness.process(number, key="ann", timestamp=number * 20)
    harness.advance_time(2)
    assert told_by_a_timer == [1000, 1000, 500]
    assert sorted(told(harness.outputs)) == [
        ("ann", at, at + 10, False, (number,)) for number, at in enumerate(range(0, 50_000, 20))
    ]
    harness.end_of_input()
    assert is_empty(harness)
