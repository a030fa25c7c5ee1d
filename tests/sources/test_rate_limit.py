"""How many records a source may emit, by a clock that is told."""

from __future__ import annotations

import math
import time

import pytest

from sources.rate_limit import RateLimit, admit, check_rate


def test_it_begins_with_one_record_and_goes_on_at_the_rate() -> None:
    limit = RateLimit(100.0, 5.0)
    assert limit.allowance(5.0) == 1
    limit.take(1)
    assert limit.allowance(5.0) == 0
    assert limit.allowance(5.0625) == 6


def test_what_is_saved_up_is_a_tenth_of_a_second_and_one_record_at_least() -> None:
    assert RateLimit(1000.0, 0.0).allowance(1000.0) == 100
    slow = RateLimit(0.5, 0.0)
    assert slow.allowance(1000.0) == 1


def test_more_than_is_there_may_be_taken_and_is_waited_for() -> None:
    limit = RateLimit(10.0, 0.0)
    limit.take(3)
    assert limit.allowance(0.1) < 1
    assert limit.wait(0.1) == pytest.approx(0.2)
    assert limit.allowance(0.31) == 1


def test_the_wait_is_until_so_many_may_be_emitted() -> None:
    limit = RateLimit(100.0, 0.0)
    assert limit.wait(0.0) == 0.0
    assert limit.wait(0.0, 5.0) == pytest.approx(0.04)
    assert limit.wait(1.0, 5.0) == 0.0


def test_another_rate_keeps_what_was_saved_up_to_the_new_burst() -> None:
    limit = RateLimit(1000.0, 0.0)
    limit.set_rate(20.0, 10.0)
    assert limit.allowance(10.0) == 2
    limit.set_rate(1000.0, 10.0)
    assert limit.allowance(10.0) == 2
    assert limit.allowance(20.0) == 100


def test_what_was_saved_up_until_the_rate_changes_is_of_the_old_one() -> None:
    limit = RateLimit(1000.0, 0.0)
    limit.set_rate(2000.0, 0.05)
    assert limit.allowance(0.05) == 51


def test_a_poll_is_admitted_what_it_asks_for_up_to_the_allowance() -> None:
    assert admit(None, 7, 0.0) == 7
    limit = RateLimit(100.0, time.monotonic() - 10.0)
    assert admit(limit, 4, 0.0) == 4
    assert admit(limit, 50, 0.0) == 10


@pytest.mark.parametrize(("timeout", "least", "most"), [(0.0, 0.0, 50.0), (0.05, 0.04, 50.0)])
def test_a_poll_that_is_admitted_nothing_sleeps_no_longer_than_it_may(
    timeout: float, least: float, most: float
) -> None:
    limit = RateLimit(0.01, time.monotonic())
    limit.take(1)
    before = time.monotonic()
    assert admit(limit, 5, timeout) == 0
    assert least <= time.monotonic() - before < most  # of the 100 s until there is one


def test_a_rate_is_a_number_above_zero_or_none() -> None:
    assert [check_rate(rate, "rate_limit") for rate in (None, 0.5, 3)] == [None, 0.5, 3.0]
    for rate in (0, -1, math.inf, math.nan, True, "3"):
        with pytest.raises(ValueError, match="rate_limit must be a number of records/s above 0, or None for no limit"):
            check_rate(rate, "rate_limit")
