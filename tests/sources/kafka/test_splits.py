"""Which partitions a subtask reads, and from where to where."""

from __future__ import annotations

import pytest

from sources.kafka.errors import DataLoss
from sources.kafka.splits import (
    Split,
    check_ends,
    check_named,
    check_position,
    from_states,
    lost_with_topic,
    owner,
    positions_in,
    to_state,
)
from sources.source import Position


def split(position: int, end: int | None = None, partition: int = 0) -> Split:
    return Split("t", partition, "id", position, end)


def test_a_split_that_has_nothing_left_to_read_may_lie_anywhere() -> None:
    for low, high in ((0, 5), (20, 30)):
        at_end = split(10, end=10)
        assert check_position(at_end, low, high, "the offset", "fail") is None
        assert at_end.position == 10


def test_a_position_beyond_the_log_is_an_error_whatever_the_policy() -> None:
    assert check_position(split(10), 0, 10, "the offset", "fail") is None  # the next record will be 10
    for policy in ("fail", "earliest"):
        with pytest.raises(DataLoss, match="the offset is 11, but the topic ends at 10"):
            check_position(split(11), 0, 10, "the offset", policy)


@pytest.mark.parametrize(("end", "goes_on_at"), [(None, 8), (20, 8), (8, 8), (5, 5)])
def test_what_is_lost_is_left_out_but_never_more_than_was_to_be_read(end: int | None, goes_on_at: int) -> None:
    lost = split(3, end)
    warning = check_position(lost, 8, 30, "the offset", "earliest")
    assert warning is not None
    assert f"offsets 3 to {goes_on_at - 1} ({goes_on_at - 3} offsets) are gone" in warning
    assert lost.position == goes_on_at
    with pytest.raises(DataLoss, match=rf"offsets 3 to {goes_on_at - 1} "):
        check_position(split(3, end), 8, 30, "the offset", "fail")


def test_the_states_of_all_old_subtasks_are_needed_each_once() -> None:
    states = [to_state([split(i, partition=i)], i, 3) for i in range(3)]
    assert sorted(from_states(states, "in")) == [("t", 0), ("t", 1), ("t", 2)]
    for missing in range(3):
        with pytest.raises(RuntimeError, match=r"of 3\. A subtask needs the state of all old ones"):
            from_states(states[:missing] + states[missing + 1 :], "in")
    with pytest.raises(RuntimeError, match=r"t\[0\] is in the restored state of two subtasks"):
        from_states([*states, states[0]], "in")
    with pytest.raises(ValueError, match="another kind or version of source"):
        from_states([{**states[0], "version": 2}], "in")
    assert from_states([], "in") == {}


def test_partitions_of_a_topic_are_spread_evenly() -> None:
    assert sorted(owner(("t", number), 4) for number in range(8)) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_explicit_offsets_name_partitions_that_exist_and_ends_name_all() -> None:
    existing = [("t", 0), ("t", 1)]
    check_named("start", {"t": 3, ("t", 1): 0}, existing)
    for wrong in ("u", ("t", 2)):
        with pytest.raises(ValueError, match="start names"):
            check_named("start", {wrong: 0}, existing)
    check_ends({("t", 0): 0, ("t", 1): 5}, existing)
    check_ends({"t": 5}, existing)
    with pytest.raises(ValueError, match=r"end names no offset for t\[1\], which"):
        check_ends({("t", 0): 0}, existing)
    with pytest.raises(ValueError, match=r"t\[4\] and 2 more partitions"):
        check_ends({}, [("t", number) for number in range(7)])
    with pytest.raises(ValueError, match=r"t\[3\], t\[4\], which"):
        check_ends({}, [("t", number) for number in range(5)])


@pytest.mark.parametrize(
    ("end", "ended", "lost"),
    [
        (None, False, "what was not read by then, from offset 10 on, is lost"),
        (12, False, "offsets 10 to 11 (2 offsets) are lost"),
        (10, False, None),
        (9, False, None),
        (12, True, None),
    ],
)
def test_what_is_lost_with_a_topic_is_what_was_to_be_read(end: int | None, ended: bool, lost: str | None) -> None:
    assert lost_with_topic(Split("t", 0, "id", 10, end, ended)) == lost


def test_positions_are_shown_by_partition() -> None:
    state = to_state([split(5, partition=1), Split("t", 0, "id", 7, 7, ended=True)], 0, 1)
    assert positions_in(state) == [Position("t[0]", 7, 7, True), Position("t[1]", 5, None, False)]
    assert positions_in({**state, "version": 2}) is None
    assert positions_in([1]) is None
