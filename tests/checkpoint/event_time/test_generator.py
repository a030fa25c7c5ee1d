"""The generator of one subtask's splits: when it has something to say next, and what it makes of a jump ahead."""

from __future__ import annotations

import math
from typing import Any

import pytest

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.event_time.generator import SplitTime, WatermarkGenerator

WALL = 1_000_000.0
"""What the host's clock says, in seconds since 1970."""


def generator(lateness: int = 0, idle_after: float | None = None, **options: Any) -> WatermarkGenerator:
    return WatermarkGenerator(lateness, idle_after, 0.0, wall_clock=lambda: WALL, **options)


def record(one: WatermarkGenerator, at: int, id: str = "a") -> SplitTime:
    """As the record loop takes one that is not far ahead."""
    split = one.split(id)
    one.touch(split, at)
    split.largest = max(split.largest, at)
    return split


def sent(one: WatermarkGenerator, now: float) -> int | None:
    watermark = one.on_clock(now, held_up=False)
    if watermark is not None:
        one.passed(watermark, now)
    return watermark


# -- when the next watermark comes ------------------------------------------------------------------------------------


def test_without_anything_to_wait_for_it_never_has_to_be_asked() -> None:
    one = generator()
    assert one.seconds_to_next(0.0) == math.inf
    record(one, 1_000)
    assert sent(one, 0.0) == 999
    assert one.seconds_to_next(0.0) == math.inf


def test_news_come_once_the_period_since_the_last_watermark_is_over() -> None:
    one = generator(lateness=100)
    record(one, 1_000)
    assert one.seconds_to_next(0.0) == 0.0
    assert sent(one, 0.0) == 899
    record(one, 2_000)
    assert one.seconds_to_next(0.0) == 0.2
    assert one.seconds_to_next(0.125) == pytest.approx(0.075)
    assert one.on_clock(0.1875, held_up=False) is None
    assert one.seconds_to_next(5.0) == 0.0
    assert sent(one, 0.2) == 1_899


def test_a_watermark_that_was_sent_by_others_and_is_older_changes_nothing() -> None:
    one = generator()
    one.passed(500, 0.0)
    one.passed(400, 5.0)
    assert one.emitted == 500
    record(one, 1_000)
    assert one.seconds_to_next(1.0) == 0.0


def test_a_split_falls_idle_after_its_time_without_records_in_which_it_could_be_read() -> None:
    one = generator(idle_after=5.0)
    split = record(one, 1_000)
    sent(one, 0.0)
    assert one.seconds_to_next(0.0) == 5.0
    sent(one, 3.0)
    assert one.seconds_to_next(3.0) == 2.0
    one.on_clock(7.0, held_up=True)
    assert one.seconds_to_next(7.0) == 2.0
    one.on_clock(8.75, held_up=False)
    assert not split.idle
    one.on_clock(9.0, held_up=False)
    assert split.idle
    assert one.seconds_to_next(9.0) == math.inf


@pytest.mark.parametrize("option", ["idle_after", "quiet_after"])
def test_a_split_whose_records_wait_is_not_idle_however_long_others_come_first(option: str) -> None:
    one = generator(**{option: 1.0})
    one.set_splits("ab", waiting="b")
    record(one, 10, "b")
    for second in range(5):
        record(one, 1_000 * (second + 1), "a")
        one.on_clock(second + 1.0, held_up=False)
    assert one.holding() == [("b", 10, 0.0)]
    assert one.on_clock(6.0, held_up=False) == 9
    one.set_splits("ab")
    assert one.on_clock(6.5, held_up=False) == 9
    assert one.on_clock(7.0, held_up=False) >= 4_999


def test_one_that_was_idle_holds_time_back_again_once_records_of_it_wait() -> None:
    one = generator(idle_after=1.0)
    one.set_splits("ab")
    record(one, 10, "b")
    record(one, 1_000, "a")
    one.on_clock(0.5, held_up=False)
    record(one, 2_000, "a")
    assert sent(one, 1.5) == 1_999
    one.set_splits("ab", waiting="b")
    record(one, 3_000, "a")
    assert sent(one, 2.0) is None
    assert one.holding() == [("b", 10, 0.0)]


def test_of_a_long_time_since_the_last_call_only_so_much_counts_as_read() -> None:
    one = generator(idle_after=5.0)
    record(one, 1_000)
    sent(one, 0.0)
    one.on_clock(100.0, held_up=False, most=2.0)
    assert one.seconds_to_next(100.0) == 3.0


def test_the_clock_goes_on_in_quarters_of_a_period_at_least() -> None:
    one = generator(quiet_after=10.0)
    record(one, 1_000)
    sent(one, 0.0)
    assert one.seconds_to_next(0.0) == 10.0
    assert sent(one, 10.0) == 10_999
    assert one.follows_clock
    assert one.seconds_to_next(10.0) == pytest.approx(0.2)
    assert one.seconds_to_next(10.1875) == 0.05
    assert sent(one, 11.0) == 11_999


def test_the_clock_does_not_lead_to_the_end_of_time() -> None:
    """Which says that nothing comes any more."""
    one = generator(quiet_after=10.0)
    record(one, MAX_WATERMARK - 5_000)
    sent(one, 0.0)
    assert sent(one, 20.0) == MAX_WATERMARK - 2


def test_the_quietest_time_of_all_counts_from_the_last_record_of_any_split() -> None:
    one = generator(idle_after=2.0, quiet_after=10.0)
    record(one, 1_000, "a")
    record(one, 1_000, "b")
    sent(one, 0.0)
    sent(one, 4.0)  # both are idle
    record(one, 1_500, "b")
    sent(one, 4.0)
    sent(one, 6.0)
    assert one.seconds_to_next(6.0) == 8.0
    sent(one, 10.0)
    assert not one.follows_clock
    assert sent(one, 14.0) == 11_499
    assert one.follows_clock


def test_a_restored_split_has_a_second_to_be_read_however_long_it_was_quiet() -> None:
    one = generator(idle_after=5.0)
    one.restore([{"splits": [["a", 1_000]], "quiet": [["a", 50.0]], "at": WALL, "emitted": 999}], None)
    split = one.split("a")
    assert (split.largest, one.emitted) == (1_000, 999)
    assert one.seconds_to_next(0.0) == 1.0
    one.on_clock(0.75, held_up=False)
    assert not split.idle
    one.on_clock(1.0, held_up=False)
    assert split.idle


# -- jumps ------------------------------------------------------------------------------------------------------------


def test_a_jump_is_believed_after_a_second_without_a_record_from_before_it() -> None:
    one = generator(max_ahead=100)
    split = record(one, 1_000)
    sent(one, 0.0)
    one.jump(split, 5_000)
    assert one.seconds_to_next(0.0) == 1.0
    sent(one, 0.75)
    assert (split.largest, one.seconds_to_next(0.75)) == (1_000, 0.25)
    assert sent(one, 1.0) == 4_999
    assert (split.largest, split.jump, one.ahead) == (5_000, None, 0)
    assert one.seconds_to_next(1.0) == math.inf


def test_records_of_a_jump_that_was_none_are_counted_when_the_split_goes_on_where_it_was() -> None:
    one = generator(max_ahead=100)
    split = record(one, 1_000)
    for at in (5_000, 5_050):
        one.jump(split, at)
    record(one, 1_100)
    assert (one.ahead, one.last_ahead, split.jump) == (2, ("a", 5_050), None)
    sent(one, 2.0)
    assert split.largest == 1_100


def test_a_record_that_is_ahead_of_the_hosts_clock_moves_nothing() -> None:
    one = generator(max_ahead=100)
    split = record(one, 1_000)
    bound = int(WALL * 1000) + 100
    one.jump(split, bound + 1)
    assert (one.ahead, one.last_ahead, split.jump, split.largest) == (1, ("a", bound + 1), None, 1_000)
    one.jump(split, bound)
    assert (one.ahead, split.jump) == (1, bound)


def test_of_two_jumps_the_nearer_one_is_the_likelier_and_those_that_go_on_are_one() -> None:
    one = generator(max_ahead=100)
    split = record(one, 1_000)
    one.jump(split, 9_000)
    one.jump(split, 8_899)
    assert (one.ahead, one.last_ahead, split.jump, split.jump_records) == (1, ("a", 9_000), 8_899, 1)
    one.jump(split, 8_999)
    assert (split.jump, split.jump_records, split.largest) == (8_999, 2, 1_000)
    one.jump(split, 9_100)
    assert (split.jump, split.jump_records, split.largest) == (9_100, 1, 8_999)


def test_a_step_within_the_bound_is_no_jump() -> None:
    one = generator(max_ahead=100)
    split = record(one, 1_000)
    one.jump(split, 1_100)
    assert (split.largest, split.jump) == (1_100, None)


def test_at_the_end_of_the_data_a_jump_of_two_records_counts() -> None:
    one = generator(max_ahead=100)
    assert (one.newest, one.end_of_data) == (None, None)
    split = record(one, 1_000)
    record(one, 800, "b")
    one.jump(split, 5_000)
    assert (one.newest, one.end_of_data) == (1_000, 1_000)
    one.jump(split, 5_001)
    assert (one.newest, one.end_of_data) == (1_000, 5_001)


# -- who holds it back ------------------------------------------------------------------------------------------------


def test_those_without_a_record_or_furthest_behind_hold_it_back() -> None:
    one = generator(idle_after=5.0)
    assert (one.holding(), one.held_back) == ([], False)
    record(one, 1_000, "a")
    record(one, 700, "b")
    one.split("c")
    sent(one, 0.0)
    sent(one, 2.0)
    assert one.holding() == [("c", None, 2.0)]
    record(one, 700, "c")
    assert one.holding() == [("b", 700, 2.0), ("c", 700, 0.0)]
    assert one.held_back
    record(one, 700, "a")
    assert one.held_back
    for id in ("b", "c"):
        record(one, 1_000, id)
    assert not one.held_back


def test_a_split_that_is_not_read_any_more_holds_nothing_back_until_it_has_a_record() -> None:
    one = generator()
    record(one, 1_000, "a")
    record(one, 500, "b")
    one.set_splits(["a"])
    assert sent(one, 0.0) == 999
    assert one.snapshot()["splits"] == [["a", 1_000]]
    one.set_splits([])
    assert one.idle
    record(one, 2_000, "b")
    assert not one.idle
    assert one.holding() == [("b", 2_000, 0.0)]
