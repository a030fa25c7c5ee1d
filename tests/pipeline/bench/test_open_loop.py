"""When the records of an open loop are due, and what delays come to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.bench.arrivals import Delays
from pipeline.bench.open_loop import Schedule

_SECOND = 1_000_000_000
_SCHEDULES = st.builds(Schedule, st.integers(0, 10**15), st.floats(0.1, 1e6), st.integers(1, 1_000_000))


@given(_SCHEDULES, st.integers(0, 10**15))
def test_as_many_are_due_as_have_their_moment_behind_them(schedule: Schedule, after: int) -> None:
    now = schedule.begin + after
    due = schedule.due_by(now)
    assert 1 <= due <= schedule.count
    assert schedule.due_at(due - 1) <= now
    assert due == schedule.count or schedule.due_at(due) > now
    assert schedule.due_by(schedule.begin - 1) == 0


@given(_SCHEDULES, st.data())
def test_the_moments_do_not_depend_on_when_anybody_looks(schedule: Schedule, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, schedule.count - 1))
    assert schedule.due_at(number) - schedule.begin == pytest.approx(number * _SECOND / schedule.rate, abs=2)
    assert schedule.due_by(schedule.due_at(number)) >= number + 1


def test_a_delay_counts_from_the_moment_at_which_a_record_was_due() -> None:
    begin = 5 * _SECOND
    due = [begin + n * _SECOND // 10 for n in range(30)]  # 10 a second for 3 s
    came = [max(at, begin + 2 * _SECOND) + 1_000_000 for at in due]  # a stop of 2 s, in which 20 records wait
    delays = Delays.of(due, came, begin, warm_up=1.0)
    assert delays is not None
    assert delays.records == 20
    assert delays.max == pytest.approx(1.001)
    assert delays.p50 == pytest.approx(0.051)
    assert [round(most, 3) for _, most in delays.by_second] == [1.001, 0.001]
    assert Delays.of(due, came, begin, warm_up=3.0) is None
