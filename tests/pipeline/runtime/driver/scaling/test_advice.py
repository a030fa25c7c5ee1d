"""Which parallelism is advised: it fits the load, and brings no other advice."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pipeline.runtime.driver.scaling.advice import advice_of, advise


def under(load: float, subtasks: int) -> tuple[dict[str, list[float]], list[float]]:
    """What is measured of a step with work for so many subtasks, and of the source in front of it."""
    return {"totals": [min(1.0, load / subtasks)] * subtasks}, [max(0.0, 1 - subtasks / load)]


@given(load=st.floats(0.01, 60.0), begin=st.integers(1, 100))
def test_a_constant_load_leads_to_one_parallelism_without_going_back_and_forth(load: float, begin: int) -> None:
    width, steps = begin, [begin]
    while found := advise(*under(load, width)):
        width = found[0].better
        steps.append(width)
        assert len(steps) <= 10
    assert steps in (sorted(steps), sorted(steps, reverse=True)), "it goes one way"
    assert width >= load * 0.999 / 0.86, "the work gets done, with some room"
    assert begin == width or width <= math.ceil(round(load / 0.75, 6))


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), st.lists(st.floats(0.0, 1.0), max_size=4))
def test_what_is_measured_may_be_anything(shares: list[float], held: list[float]) -> None:
    for one in advise({"totals": shares}, held):
        assert 1 <= one.better <= math.ceil(len(shares) * 2 / 0.75)
        assert one.better != one.now


def test_it_says_who_binds_the_job_and_why() -> None:
    gate = {"sourceGateReason": None}
    subtasks = {
        **{f"orders[{i}]": {"busyMsPerSecond": 200.0, "sourceGateClosedMsPerSecond": 120.0, **gate} for i in range(4)},
        **{f"totals[{i}]": {"busyMsPerSecond": 950.0, "backPressuredMsPerSecond": 0.0} for i in range(4)},
    }
    assert advice_of(subtasks, None) == advice_of(subtasks, 29.0) == []
    (one,) = advice_of(subtasks, 30.0)
    assert one.text == (
        "4 → 6: bound by totals: its subtasks are busy for 95% of their time, and sources are held up for 12%"
    )
    assert advise({"out": [0.0] * 8}, [0.0]) == [], "nothing is measured yet, or nothing comes"
    assert [each.text for each in advise({"out": [0.1] * 8}, [0.0])] == [
        "8 → 2 would do for out: its subtasks are busy for 10% of their time"
    ]
