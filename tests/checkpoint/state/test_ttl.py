from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from checkpoint.state import TTL, AggregatingState, ListState, MapState, ReducingState, ValueState
from checkpoint.state.ttl import UNKNOWN, EventClock, Lifetime, ProcessingClock


def test_a_time_to_live_is_seconds_a_timedelta_or_an_object_with_more() -> None:
    assert ValueState[int](ttl=90).ttl == TTL(90)
    assert ListState[int](ttl=timedelta(hours=1)).ttl == TTL(timedelta(hours=1))
    assert MapState[int, int](ttl=TTL(1.5, time="event")).ttl == TTL(1.5, time="event")
    assert ReducingState(max, ttl=1).ttl == AggregatingState(list, lambda a, b: a, len, ttl=1).ttl == TTL(1)
    assert ValueState(5).ttl is None
    assert [TTL(1.5).milliseconds, TTL(timedelta(days=1)).milliseconds, TTL(0.001).milliseconds] == [
        1500,
        86_400_000,
        1,
    ]
    assert (TTL(1).time, TTL(1).refresh) == ("processing", "write")


@pytest.mark.parametrize("after", [0, -1, 0.0001, math.inf, math.nan, True, "1h", timedelta(0), [1]])
def test_what_is_no_time_to_live_is_refused(after: Any) -> None:
    with pytest.raises(ValueError, match="after must be"):
        TTL(after)
    for make in (lambda given: ValueState(ttl=given), lambda given: ListState(ttl=given)):
        with pytest.raises(ValueError, match="ttl must be"):
            make(after)


def test_misspelt_options_are_told() -> None:
    with pytest.raises(ValueError, match="time of a TTL must be one of processing, event, not 'evnt'"):
        TTL(1, time="evnt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="refresh of a TTL must be one of write, read_and_write, not 'read'"):
        TTL(1, refresh="read")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="TTL has no option 'refres'; did you mean 'refresh'"):
        TTL(1, refres="write")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="ListState has no option 'tll'; did you mean 'ttl'"):
        ListState(tll=1)  # type: ignore[call-arg]


def lifetimes(clock: ProcessingClock | EventClock, *seconds: float) -> list[Lifetime]:
    return [clock.lifetime(TTL(one)) for one in seconds]


def test_nothing_is_over_before_the_time_is_known() -> None:
    (life,) = lifetimes(EventClock(), 1)
    assert not life.over(UNKNOWN)
    assert not life.over(UNKNOWN + 1)


def test_states_of_one_clock_have_their_own_times_to_live() -> None:
    clock = ProcessingClock()
    short, long = lifetimes(clock, 1, 2)
    clock.read(1500)
    assert [life.over(0) for life in (short, long)] == [True, False]
    assert [life.over(500) for life in (short, long)] == [True, False]
    assert [life.over(501) for life in (short, long)] == [False, False]
    (late,) = lifetimes(clock, 1)
    assert late.over(500)


def test_behind_a_restart_the_clock_goes_from_timer_to_timer_until_all_have_fired() -> None:
    clock = ProcessingClock()
    (life,) = lifetimes(clock, 1)
    clock.begin(9000, timers_due=True)
    assert not life.over(0)
    clock.fires(800)
    assert not life.over(0)
    assert clock.stamp() == 9000, "what is written now is written now"
    clock.fires(1000)
    assert life.over(0)
    assert not life.over(1)
    clock.read(9500)
    assert not life.over(1)
    clock.all_fired()
    assert life.over(8500)
    assert not life.over(8501)
    clock.fires(20_000)
    clock.read(10_000)
    assert life.over(9000)
    assert not life.over(9001)


def test_a_frozen_lifetime_doesnt_move() -> None:
    clock = ProcessingClock()
    (life,) = lifetimes(clock, 1)
    clock.read(500)
    frozen = life.frozen()
    clock.read(5000)
    assert life.over(0)
    assert not frozen.over(0)
    assert not frozen.over(UNKNOWN)
    assert frozen.packed((UNKNOWN, 7)) == (500).to_bytes(8, "little") + (7).to_bytes(8, "little")
