"""What slow barriers tell of a window: rounds, and how two of them compare."""

from __future__ import annotations

import pytest

from checkpoint.gate.rounds import Round, Rounds, TakenBarrier


def taken(at: float, seconds: float = 10.0) -> TakenBarrier:
    return TakenBarrier(at, 0, 0, seconds, held_up=False)


def test_the_first_slow_barrier_is_a_round_and_then_as_many_as_may_be_under_way() -> None:
    rounds = Rounds(2)
    assert rounds.passed(taken(10), 100.0, 10.0, 30.0) == Round(100.0, 5.0, None)
    assert rounds.passed(taken(20), 200.0, 30.0, 40.0) is None
    assert rounds.passed(taken(30), 200.0, 40.0, 40.0) == Round(200.0, 40.0, Round(100.0, 5.0, None))


def test_a_span_that_began_before_the_window_changed_tells_nothing_of_the_change() -> None:
    rounds = Rounds(1)
    rounds.changed(15.0)
    assert rounds.passed(taken(24.9), 100.0, 10.0, 30.0) is None
    assert rounds.passed(taken(25.0), 100.0, 30.0, 40.0) is not None


def test_a_change_begins_a_new_round() -> None:
    rounds = Rounds(2)
    rounds.passed(taken(10), 100.0, 10.0, 30.0)
    rounds.passed(taken(20), 200.0, 30.0, 40.0)
    rounds.changed(41.0)
    assert rounds.passed(taken(55), 300.0, 50.0, 60.0) is None
    assert rounds.passed(taken(65), 300.0, 60.0, 70.0) == Round(300.0, 30.0, Round(100.0, 5.0, None))


def test_once_barriers_were_quick_again_there_is_no_round_before() -> None:
    rounds = Rounds(1)
    rounds.passed(taken(10), 100.0, 10.0, 30.0)
    rounds.end()
    assert rounds.passed(taken(50), 200.0, 40.0, 60.0) == Round(200.0, 10.0, None)


def test_small_steps_add_up() -> None:
    rounds, before = Rounds(1), Round(100.0, 10.0, None)
    for n, span in enumerate((100.0, 94.0, 88.0)):
        assert rounds.passed(taken(10.0 * n + 10), span, 10.0 * n, 10.0 * n + 10) == Round(span, span / 10, None)
    assert rounds.passed(taken(40), 82.0, 30.0, 40.0) == Round(82.0, 8.2, before)


def test_at_one_span_the_newest_rate_counts() -> None:
    rounds = Rounds(1)
    rounds.passed(taken(10), 100.0, 0.0, 10.0)
    rounds.passed(taken(30), 100.0, 10.0, 30.0)
    assert rounds.passed(taken(40), 200.0, 30.0, 40.0) == Round(200.0, 20.0, Round(100.0, 5.0, None))


@pytest.mark.parametrize(("span", "last", "now"), [(0.0, 10.0, 30.0), (100.0, 30.0, 30.0)])
def test_what_processed_nothing_or_took_no_time_is_no_round(span: float, last: float, now: float) -> None:
    assert Rounds(1).passed(taken(10), span, last, now) is None


@pytest.mark.parametrize(
    ("span", "rate", "goes", "vain"),
    [
        (200.0, 20.0, True, False),
        (200.0, 14.0, True, False),  # 2 ** 0.49
        (200.0, 13.0, False, True),  # 2 ** 0.38
        (200.0, 29.0, False, True),  # the operators have become quicker
        (50.0, 5.0, True, False),
        (50.0, 10.0, False, False),
        (50.0, 3.0, False, False),  # slower
        (200.0, 0.0, False, True),
    ],
)
def test_whether_the_rate_goes_with_the_span(span: float, rate: float, goes: bool, vain: bool) -> None:
    done = Round(span, rate, Round(100.0, 10.0, None))
    assert (done.rate_goes_with_span, done.vain) == (goes, vain)


def test_the_first_round_says_neither() -> None:
    done = Round(100.0, 10.0, None)
    assert (done.rate_goes_with_span, done.vain) == (False, False)
