"""Time doesn't go back for a key group, however often a job is rescaled: against a plain dict of all groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from checkpoint.event_time.group_watermarks import GroupWatermarks
from checkpoint.key_groups import range_of

GROUPS = 12


@dataclass
class Subtask:
    """As `InputTime` and `EventTime` use it."""

    groups: range
    states: list[Any] = field(default_factory=list)
    watermark: int | None = None

    def __post_init__(self) -> None:
        self.known = GroupWatermarks(self.groups)
        self.known.restore(self.states, self.watermark)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 5),
            st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 20)), max_size=6),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_a_group_has_come_as_far_as_any_of_its_subtasks_ever_had(runs: list[Any]) -> None:
    furthest: dict[int, int | None] = dict.fromkeys(range(GROUPS))
    states: list[Any] = []
    lowest: int | None = None
    for parallelism, moves, between in runs:
        subtasks = [Subtask(range_of(i, parallelism, GROUPS), states, lowest) for i in range(parallelism)]
        for i, to in moves:
            one = subtasks[i % parallelism]
            if one.watermark is None or to > one.watermark:
                one.watermark = to
                one.known.passed(to)
                for group in one.groups:
                    before = furthest[group]
                    furthest[group] = to if before is None else max(before, to)
        for one in subtasks:
            for group in one.groups:
                assert one.known.of(group, one.watermark) == furthest[group]
            if one.watermark is not None:
                known = [furthest[group] for group in one.groups]
                ahead = any(reached is not None and reached > one.watermark for reached in known)
                assert one.known.passed(one.watermark) is ahead
        # A checkpoint may come while timers up to the next watermark fire.
        reached = {i: (one.watermark or 0) + 3 for i, one in enumerate(subtasks)} if between else {}
        for i, to in reached.items():
            for group in subtasks[i].groups:
                before = furthest[group]
                furthest[group] = to if before is None else max(before, to)
        states = [one.known.snapshot(reached.get(i, one.watermark)) for i, one in enumerate(subtasks)]
        told = [one.watermark for one in subtasks]
        lowest = None if None in told else min(one for one in told if one is not None)


def test_groups_of_other_subtasks_are_left_out() -> None:
    known = GroupWatermarks(range(4, 8))
    known.restore([[[0, 6, 50]], [[6, 12, 20]]], 10)
    assert [known.of(group, 10) for group in range(4, 8)] == [50, 50, 20, 20]
    assert known.snapshot(10) == [[4, 6, 50], [6, 8, 20]]


def test_what_the_subtask_has_passed_is_forgotten() -> None:
    known = GroupWatermarks(range(8))
    known.restore([[[0, 4, 50], [4, 8, 20]]], 10)
    assert known.passed(20)
    assert known.snapshot(20) == [[0, 4, 50], [4, 8, 20]]
    assert not known.passed(50)
    assert known.of(0, 60) == 60


def test_before_the_first_watermark_there_is_what_was_before() -> None:
    known = GroupWatermarks(range(4))
    assert known.of(1, None) is None
    assert known.snapshot(None) == []
    known.restore([[[0, 2, 30]]], None)
    assert (known.of(1, None), known.of(2, None)) == (30, None)
    assert known.snapshot(None) == [[0, 2, 30]]
