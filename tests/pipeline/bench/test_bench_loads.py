"""`weir bench backpressure`: loads that change over time, and how long a source takes to be at full speed again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.bench.backpressure.full_speed import Return, returned
from pipeline.bench.backpressure.load import Change, Load
from pipeline.bench.backpressure.rates import rates, windows

EACH_SECOND = range(100)


# -- loads ------------------------------------------------------------------------------------------------------------


def test_a_change_comes_once_or_each_period() -> None:
    once, again = Change(2.0, 4.0), Change(2.0, 4.0, period=5.0)
    assert [at for at in range(12) if once.covers(at)] == [2, 3]
    assert [at for at in range(12) if again.covers(at)] == [2, 3, 7, 8]
    assert list(once.turns(12.0)) == [(2.0, 4.0)]
    assert list(again.turns(12.0)) == [(2.0, 4.0), (7.0, 9.0)]
    assert list(again.turns(2.0)) == []


def test_a_load_changes_what_its_change_says_and_nothing_else() -> None:
    even = Load(100.0, 0.01)
    quick = replace(even, change=Change(2.0, 4.0, rate=500.0))
    slow = replace(even, change=Change(2.0, 4.0, delay=0.5))
    assert {even.rate_at(at) for at in EACH_SECOND} == {100.0}
    assert {even.delay_at(at) for at in EACH_SECOND} == {0.01}
    assert [quick.rate_at(at) for at in (1.9, 2.0, 3.9, 4.0)] == [100.0, 500.0, 500.0, 100.0]
    assert quick.delay_at(3.0) == 0.01
    assert [slow.delay_at(at) for at in (1.9, 2.0, 3.9, 4.0)] == [0.01, 0.5, 0.5, 0.01]
    assert slow.rate_at(3.0) == 100.0


def test_the_top_rate_is_that_of_the_best_time() -> None:
    assert Load(100.0, 0.0).top_rate == 100.0
    assert Load(100.0, 0.0, Change(1.0, 2.0, rate=500.0)).top_rate == 500.0
    assert Load(100.0, 0.0, Change(1.0, 2.0, rate=0.0)).top_rate == 100.0
    assert Load(100.0, 0.0, Change(1.0, 2.0, delay=1.0)).top_rate == 100.0


@pytest.mark.parametrize(
    ("change", "back"),
    [
        (None, []),
        (Change(2.0, 4.0, rate=0.0), [(4.0, 20.0)]),
        (Change(2.0, 4.0, rate=0.0, returns=False), []),
        (Change(2.0, 4.0, delay=1.0), [(4.0, 20.0)]),
        (Change(2.0, 30.0, delay=1.0), []),  # not over before the end
        (Change(2.0, 20.0, delay=1.0), []),
        (Change(2.0, 4.0, rate=500.0), [(2.0, 4.0)]),
        (Change(2.0, 4.0, delay=0.0), [(2.0, 4.0)]),
        (Change(2.0, 30.0, rate=500.0), [(2.0, 20.0)]),
        (Change(8.0, 10.0, 10.0, rate=500.0), [(8.0, 10.0), (18.0, 20.0)]),
        (Change(2.0, 4.0, 10.0, rate=0.0), [(4.0, 12.0), (14.0, 20.0)]),
    ],
)
def test_full_speed_is_possible_again_once_the_source_gives_more_or_operators_are_quick(
    change: Change | None, back: list[tuple[float, float]]
) -> None:
    assert Load(100.0, 0.01, change).returns(20.0) == back


# -- the time until full speed ----------------------------------------------------------------------------------------


def counts(*per_half_second: int) -> list[tuple[float, int]]:
    """A counter each half second, with what comes in each of them."""
    found, total = [(0.0, 0)], 0
    for i, many in enumerate(per_half_second, 1):
        total += many
        found.append((i / 2, total))
    return found


def test_windows_are_rates_with_their_begin() -> None:
    seen = counts(10, 30, 50)
    assert windows(seen) == [(0.0, 1.0, 40.0), (0.5, 1.5, 80.0)]
    assert rates(seen) == [(1.0, 40.0), (1.5, 80.0)]
    assert windows([]) == windows([(0.0, 0)]) == []


SLOW_AND_BACK = counts(*[50] * 8, *[5] * 8, 20, 30, 45, *[50] * 5)
"""100/s, from the 4th second on 10/s, from the 8th on faster and faster, at full speed again after 9 s."""


def test_full_speed_is_nine_tenths_of_the_best() -> None:
    assert returned(SLOW_AND_BACK, 8.0, 12.0, 1_000.0) == Return(8.0, 12.0, 1.0)
    assert returned(SLOW_AND_BACK, 9.0, 12.0, 1_000.0).after == 0.0


def test_full_speed_from_the_first_moment_on_takes_no_time() -> None:
    assert returned(SLOW_AND_BACK, 2.0, 4.0, 1_000.0).after == 0.0


def test_a_window_that_began_earlier_or_ends_later_tells_nothing() -> None:
    assert returned(SLOW_AND_BACK, 4.0, 8.0, 1_000.0) == Return(4.0, 8.0, None)
    assert returned(SLOW_AND_BACK, 8.0, 9.9, 1_000.0).after is None


def test_what_the_source_could_give_at_most_bounds_the_best() -> None:
    saved_up = counts(*[50] * 4, *[0] * 4, 75, *[50] * 7)
    assert returned(saved_up, 5.0, 8.0, 1_000.0).after is None  # of 125/s, which it gives in one second only
    assert returned(saved_up, 5.0, 8.0, 100.0).after == 0.0


def test_a_source_that_gives_nothing_is_never_at_full_speed() -> None:
    assert returned(counts(0, 0, 0, 0), 0.0, 2.0, 100.0).after is None
    assert returned([], 0.0, 2.0, 100.0).after is None
