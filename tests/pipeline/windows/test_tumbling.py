"""Tumbling windows: what is special about them, and what they keep."""

from __future__ import annotations

import pytest
from window_oracle import END, Numbers, TimedHarness, is_empty, operator, told

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from pipeline import PipelineError, Sliding, Tumbling
from pipeline.aggregates import Aggregation, Count
from pipeline.by_event_time import NoTimestamp
from pipeline.testing import OperatorHarness
from pipeline.windows.operator import Options
from pipeline.windows.operator_choice import operator_of

TEN = Tumbling(0.01)


def test_a_window_gives_one_final_result_when_the_watermark_reaches_its_last_millisecond():
    harness = OperatorHarness(operator_of(TEN, Aggregation({"n": Count()}), Options()))
    for at in (3, 9, 0, 10):
        harness.process("x", key="ann", timestamp=at)
    assert harness.watermark(8) == []
    assert harness.watermark(9) == [{"key": "ann", "start": 0, "end": 10, "final": True, "n": 3}]
    assert harness.watermark(18) == []
    assert harness.watermark(19) == [{"key": "ann", "start": 10, "end": 20, "final": True, "n": 1}]


def test_negative_timestamps_belong_to_windows_as_others_do():
    harness = TimedHarness(operator(TEN))
    for number, at in enumerate((-1, -10, -11, 0)):
        harness.process(number, key="ann", timestamp=at)
    harness.watermark(-1)
    assert told(harness.outputs) == [("ann", -20, -10, True, (2,)), ("ann", -10, 0, True, (0, 1))]


def test_a_late_record_gives_a_new_result_until_the_window_closes():
    harness = TimedHarness(operator(TEN, lateness=5))
    harness.process(0, key="ann", timestamp=1)
    harness.watermark(9)
    harness.process(1, key="ann", timestamp=2)  # the window has fired
    harness.process(2, key="bob", timestamp=2)  # and never had this key
    harness.watermark(13)
    harness.process(3, key="ann", timestamp=9)
    harness.watermark(14)
    harness.process(4, key="ann", timestamp=9)  # and now it has closed
    harness.process(5, key="ann", timestamp=10)  # its own window has not
    assert told(harness.outputs) == [
        ("ann", 0, 10, False, (0,)),
        ("ann", 0, 10, False, (0, 1)),
        ("bob", 0, 10, False, (2,)),
        ("ann", 0, 10, False, (0, 1, 3)),
        *told(harness.outputs)[4:],
    ]
    assert sorted(told(harness.outputs)[4:]) == [("ann", 0, 10, True, (0, 1, 3)), ("bob", 0, 10, True, (2,))]
    assert harness.side_outputs["late"] == [4]


def test_a_watermark_that_passes_the_close_at_once_gives_the_final_result_only():
    harness = TimedHarness(operator(TEN, lateness=5))
    harness.process(0, key="ann", timestamp=1)
    harness.watermark(14)
    assert told(harness.outputs) == [("ann", 0, 10, True, (0,))]
    assert is_empty(harness)


def test_state_is_kept_until_the_close_and_no_longer():
    harness = TimedHarness(operator(TEN, lateness=5))
    harness.process(0, key="ann", timestamp=1)
    harness.watermark(13)
    assert not is_empty(harness)
    harness.watermark(14)
    assert is_empty(harness)


def test_a_window_that_has_closed_does_not_open_again_where_the_watermark_goes_back():
    """As after rescaling: another subtask was not as far."""
    fast, slow = TimedHarness(operator(TEN)), TimedHarness(operator(TEN))
    fast.process(0, key="ann", timestamp=1)
    fast.watermark(9)
    slow.process(1, key="bob", timestamp=1)
    slow.watermark(0)
    one = TimedHarness.restore(operator(TEN), [fast.snapshot(), slow.snapshot()])
    one.process(2, key="ann", timestamp=5)
    one.process(3, key="bob", timestamp=5)
    one.end_of_input()
    assert told(fast.outputs) == [("ann", 0, 10, True, (0,))]
    assert told(one.outputs) == [("bob", 0, 10, True, (1, 3))]
    assert one.side_outputs["late"] == [2]
    assert is_empty(one)


def test_a_window_that_has_fired_does_not_fire_again_where_the_watermark_goes_back():
    fast, slow = TimedHarness(operator(TEN, 50)), TimedHarness(operator(TEN, 50))
    fast.process(0, key="ann", timestamp=1)
    fast.watermark(20)
    slow.watermark(0)
    one = TimedHarness.restore(operator(TEN, 50), [fast.snapshot(), slow.snapshot()])
    one.process(1, key="ann", timestamp=2)
    assert told(one.outputs) == [("ann", 0, 10, False, (0, 1))]
    one.watermark(9)  # where it has fired before
    one.watermark(58)
    assert len(one.outputs) == 1
    one.watermark(59)
    assert told(one.outputs)[1:] == [("ann", 0, 10, True, (0, 1))]


@pytest.mark.parametrize("lateness", [0, 7, 10**15])
def test_at_the_end_of_input_all_windows_give_their_final_result(lateness):
    harness = TimedHarness(operator(TEN, lateness))
    for number in range(100):  # more than timers may set each other at the end
        harness.process(number, key="ann", timestamp=number * 10)
    harness.watermark(500)
    harness.end_of_input()
    final = [one for one in told(harness.outputs) if one[3]]
    assert sorted(final) == [("ann", n * 10, n * 10 + 10, True, (n,)) for n in range(100)]
    assert harness.timers_dropped == 0
    assert is_empty(harness)


@pytest.mark.parametrize("lateness", [0, 5])
def test_windows_at_the_end_of_event_time_do_not_overflow(lateness):
    harness = TimedHarness(operator(TEN, lateness))
    harness.process(0, key="ann", timestamp=END - 9)
    harness.process(1, key="ann", timestamp=END)
    harness.process(2, key="ann", timestamp=-(2**63))
    harness.end_of_input()
    assert {number for one in told(harness.outputs) if one[3] for number in one[4]} == {0, 1, 2}
    assert is_empty(harness)


def test_timers_of_windows_at_equal_times_are_for_each_of_them():
    """With a lateness of one size, a window closes when the next one fires."""
    harness = TimedHarness(operator(TEN, lateness=10))
    harness.process(0, key="ann", timestamp=1)
    harness.process(1, key="ann", timestamp=11)
    harness.watermark(9)
    harness.watermark(19)
    harness.watermark(29)
    assert told(harness.outputs) == [
        ("ann", 0, 10, False, (0,)),
        ("ann", 0, 10, True, (0,)),
        ("ann", 10, 20, False, (1,)),
        ("ann", 10, 20, True, (1,)),
    ]


def test_an_early_result_at_each_update():
    harness = TimedHarness(operator(TEN, early=0))
    harness.process(0, key="ann", timestamp=1)
    harness.process(1, key="ann", timestamp=2)
    harness.watermark(9)
    assert told(harness.outputs) == [
        ("ann", 0, 10, False, (0,)),
        ("ann", 0, 10, False, (0, 1)),
        ("ann", 0, 10, True, (0, 1)),
    ]


def test_early_results_come_so_often_where_something_has_changed():
    harness = TimedHarness(operator(TEN, early=2000))
    for number, at in enumerate((1, 2, 12)):
        harness.process(number, key="ann", timestamp=at)
    assert harness.advance_time(1.999) == []
    harness.advance_time(0.001)
    assert told(harness.outputs) == [("ann", 0, 10, False, (0, 1)), ("ann", 10, 20, False, (2,))]
    harness.advance_time(60)
    assert len(harness.outputs) == 2
    harness.process(3, key="ann", timestamp=13)
    harness = TimedHarness.restore(operator(TEN, early=2000), harness.snapshot(), clock=harness.clock)
    harness.advance_time(2)
    assert told(harness.outputs) == [("ann", 10, 20, False, (2, 3))]


def test_what_has_closed_gives_no_early_result_and_leaves_nothing():
    harness = TimedHarness(operator(TEN, early=2000))
    harness.process(0, key="ann", timestamp=1)
    harness.process(1, key="ann", timestamp=11)
    harness.watermark(9)
    harness.advance_time(2)
    assert told(harness.outputs) == [("ann", 0, 10, True, (0,)), ("ann", 10, 20, False, (1,))]
    harness.process(2, key="ann", timestamp=12)
    harness.end_of_input()
    assert is_empty(harness)


def test_what_has_fired_gives_no_early_result():
    harness = TimedHarness(operator(TEN, lateness=100, early=2000))
    harness.process(0, key="ann", timestamp=1)
    harness.process(1, key="ann", timestamp=11)
    harness.watermark(9)
    harness.advance_time(2)
    assert told(harness.outputs) == [("ann", 0, 10, False, (0,)), ("ann", 10, 20, False, (1,))]


def test_what_has_changed_is_forgotten_when_it_has_closed():
    """Else a key that has an open window at all times would have more and more state while the clock doesn't move."""
    harness = TimedHarness(operator(TEN, early=2000))
    for number in range(10):
        harness.process(number, key="ann", timestamp=number * 10)
        harness.watermark(number * 10 - 1)
    harness._backend.set_current_key(encode_key("ann"), key_group(encode_key("ann"), 128))
    assert harness.operator.updated.value == 2000
    assert harness.operator.changed.value == {90: None}


def test_a_lateness_may_reach_beyond_what_a_calendar_knows():
    harness = TimedHarness(operator(Tumbling(86_400, time_zone="Europe/Paris"), lateness=10**15))
    harness.process(0, key="ann", timestamp=0)
    harness.watermark(82_799_999)
    harness.end_of_input()
    bounds = ("ann", -3_600_000, 82_800_000)
    assert told(harness.outputs) == [(*bounds, False, (0,)), (*bounds, True, (0,))]


def test_a_record_without_timestamp_is_refused_with_what_to_do():
    with pytest.raises(NoTimestamp, match="assign_timestamps"):
        OperatorHarness(operator(TEN)).process({"user": "ann"}, key="ann")


def test_other_windows_lateness_or_aggregates_are_refused_where_state_is_restored():
    harness = OperatorHarness(operator(TEN))
    harness.process(0, key="ann", timestamp=1)
    snapshot = harness.snapshot()
    for other in (operator(Tumbling(0.02)), operator(TEN, 5), operator_of(TEN, Aggregation({"n": Count()}), Options())):
        with pytest.raises(PipelineError, match="ive the step another id"):
            OperatorHarness.restore(other, snapshot)
    OperatorHarness.restore(operator(Tumbling(0.01, offset=0.01), early=0), snapshot)  # they are the same windows


def test_a_key_with_many_open_windows_costs_no_more_for_each():
    """A look at all of them for each record or each result would take hours."""
    harness = OperatorHarness(operator_of(TEN, Aggregation({"n": Count()}), Options()))
    for number in range(20_000):
        harness.process(0, key="ann", timestamp=number * 10)
    assert len(harness.watermark(200_000)) == 20_000
    assert is_empty(harness)


class _Fussy(Numbers):
    def result(self, acc):
        if 13 in acc:
            raise ValueError("thirteen")
        return super().result(acc)


def test_with_on_error_results_keep_their_times_and_what_fails_leaves_nothing():
    """What a step emits is held back then, until it is done with the record."""
    aggregation = Aggregation({"numbers": _Fussy()})
    harness = TimedHarness(operator_of(Sliding(0.02, 0.01), aggregation, Options(early=0)), on_error="skip")
    harness.process(1, key="ann", timestamp=1)
    harness.process(13, key="ann", timestamp=2)
    harness.process(2, key="ann", timestamp=3)
    assert told(harness.outputs) == [
        ("ann", -10, 10, False, (1,)),
        ("ann", 0, 20, False, (1,)),
        ("ann", -10, 10, False, (1, 2)),
        ("ann", 0, 20, False, (1, 2)),
    ]
