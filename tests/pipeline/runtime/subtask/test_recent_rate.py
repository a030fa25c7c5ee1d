"""How fast a counter has grown lately."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.runtime.subtask.recent_rate import WINDOW, RecentRate


@given(st.lists(st.tuples(st.floats(0.01, 20), st.integers(0, 10_000)), min_size=1, max_size=60), st.floats(0, 1e6))
def test_the_rate_is_that_of_the_window_or_of_all_there_is(steps: list[tuple[float, int]], start: float) -> None:
    rate = RecentRate(start)
    now, count, looks = start, 0.0, [(start, 0.0)]
    for seconds, more in steps:
        now, count = now + seconds, count + more
        found = rate.at(now, count)
        looks.append((now, count))
        began, before = max((look for look in looks[:-1] if look[0] <= now - WINDOW), default=looks[0])
        assert found == pytest.approx((count - before) / (now - began))


def test_what_stands_still_has_no_rate_a_window_later() -> None:
    rate = RecentRate(0.0)
    assert rate.at(1.0, 500) == 500
    found = [rate.at(1.0 + n / 2, 500) for n in range(1, 40)]
    assert found[0] > found[10] > 0
    assert found[-1] == 0


def test_few_looks_are_kept() -> None:
    rate = RecentRate(0.0)
    for n in range(1000):
        rate.at(n / 2, n)
    assert len(rate._looks) <= 2 * WINDOW + 2
