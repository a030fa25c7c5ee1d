"""The end of a replay: counted exactly, once, whatever the order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.in_flight.replay import ReplayTracker, RestoreBarrierCounter

# -- driver ---------------------------------------------------------------------------------------------------


def test_without_a_replay_nothing_is_waited_for() -> None:
    tracker = ReplayTracker([3, 4], replays=False)
    assert not tracker.replaying
    assert not tracker.arrived(3)


@given(st.permutations([3, 4, 7]))
def test_the_replay_ends_with_the_last_subtask_without_outputs(order: list[int]) -> None:
    tracker = ReplayTracker([3, 4, 7], replays=True)
    for subtask in order[:-1]:
        assert not tracker.arrived(subtask)
        assert not tracker.arrived(subtask)
        assert tracker.replaying
    assert tracker.arrived(order[-1])
    assert not tracker.replaying
    assert not tracker.arrived(order[-1])


def test_a_subtask_with_outputs_must_not_report() -> None:
    with pytest.raises(ValueError, match="subtask 1 has outputs"):
        ReplayTracker([3], replays=True).arrived(1)


# -- subtask --------------------------------------------------------------------------------------------------


@given(st.permutations(["a", "b", "c", "restored"]))
def test_the_barrier_goes_on_once_all_channels_have_delivered_it_and_the_restored_sequence_is_used_up(
    order: list[str],
) -> None:
    counter = RestoreBarrierCounter(["a", "b", "c"])
    goes_on = [counter.restored_used_up() if what == "restored" else counter.delivered(what) for what in order]
    assert goes_on == [False, False, False, True]
    assert not counter.restored_used_up()


def test_a_source_passes_it_on_as_soon_as_its_restored_sequence_is_used_up() -> None:
    counter = RestoreBarrierCounter([])
    assert counter.restored_used_up()
    assert not counter.restored_used_up()


def test_a_barrier_that_comes_twice_on_a_channel_is_an_error() -> None:
    counter = RestoreBarrierCounter(["a", "b"])
    counter.delivered("a")
    with pytest.raises(ValueError, match="came twice"):
        counter.delivered("a")
    with pytest.raises(ValueError, match="isn't there: x"):
        counter.delivered("x")
