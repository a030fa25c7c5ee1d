from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.failure_rate import AtMost, Exceeded, FailureRate, at_most_of


def outcome(at_most: AtMost, records: list[tuple[float, bool]]) -> tuple[int, Exceeded] | None:
    """The record that is one too many, and what is told."""
    rate = FailureRate(at_most)
    for i, (now, fails) in enumerate(records):
        rate.record(now)
        exceeded = rate.failure() if fails else None
        if exceeded is not None:
            return i, exceeded
    return None


def test_the_first_record_of_a_stream_may_fail() -> None:
    assert outcome(AtMost(0.01, minimum=2), [(0, True)]) is None
    assert outcome(AtMost(0.01, minimum=2), [(0, True), (1, True)]) == (1, Exceeded(2, 2, AtMost(0.01, minimum=2)))


def test_a_share_within_the_bound_may_fail_for_ever_and_more_may_not() -> None:
    bound = AtMost(0.1, within=60)
    seldom = [(i / 10, i % 10 == 9) for i in range(10_000)]
    assert outcome(bound, seldom) is None
    often = [(1000 + i / 10, i % 5 == 0) for i in range(1000)]
    found = outcome(bound, seldom + often)
    assert found is not None
    assert found[1].failed / found[1].records > 0.1
    assert "within 60 s" in str(found[1])


def test_what_lies_behind_the_window_does_not_count() -> None:
    bound = AtMost(0.5, within=60, minimum=3)
    assert outcome(bound, [(0, True), (1, True), (62, True), (63, False)]) is None
    assert outcome(bound, [(0, True), (1, True), (30, True)]) is not None


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=200),
    st.floats(0, 0.9),
    st.integers(1, 5),
)
def test_it_counts_what_a_list_of_all_would(steps: list[tuple[int, bool]], share: float, minimum: int) -> None:
    at_most, rate = AtMost(share, within=60, minimum=minimum), FailureRate(AtMost(share, within=60, minimum=minimum))
    seen: list[tuple[int, bool]] = []
    now = 0
    for step, fails in steps:
        now += step
        seen.append((now, fails))
        rate.record(now)
        if fails:
            window = [bad for at, bad in seen if at > now - 60]
            failed, records = sum(window), len(window)
            expected = Exceeded(failed, records, at_most) if failed >= minimum and failed > share * records else None
            assert rate.failure() == expected


@pytest.mark.parametrize("given", [1, -0.1, True, "1 %", (1,), (0.1, 0), (0.1, 60, 0)])
def test_what_is_no_bound_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"share|at_most|within|minimum"):
        at_most_of(given)


def test_a_pair_is_a_bound() -> None:
    assert at_most_of((0.01, 30)) == AtMost(0.01, within=30)
    assert at_most_of(None) is None
