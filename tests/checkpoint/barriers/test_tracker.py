"""At least once: barriers are counted, no channel is ever blocked."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.barriers.events import (
    Action,
    Barrier,
    BarrierAnnounced,
    BarrierArrived,
    CancelArrived,
    CheckpointAborted,
    EndOfInputArrived,
    Event,
    ForwardCancel,
    TakeSnapshot,
    Tick,
)
from checkpoint.barriers.tracker import BarrierTracker
from checkpoint.checkpoint_kind import CheckpointKind


def arrived(channel: int, checkpoint_id: int, age: float = 0.0) -> BarrierArrived:
    return BarrierArrived(channel, Barrier(checkpoint_id, age=age))


def play(tracker: BarrierTracker, *events: Event) -> list[Action]:
    return [action for event in events for action in tracker.handle(event, 0.0)]


def taken(checkpoint_id: int) -> TakeSnapshot:
    return TakeSnapshot(Barrier(checkpoint_id), unaligned=False, alignment_seconds=0.0)


def test_the_last_channels_barrier_is_the_snapshot() -> None:
    tracker = BarrierTracker(3, 0.0)
    assert play(tracker, arrived(1, 5), arrived(0, 5)) == []
    assert (tracker.pending, tracker.missing(5)) == (5, (2,))
    assert play(tracker, arrived(2, 5)) == [taken(5)]
    assert (tracker.pending, tracker.missing(5)) == (None, ())


def test_no_channel_is_ever_blocked_or_held() -> None:
    tracker = BarrierTracker(2, 0.0)
    play(tracker, arrived(0, 1), arrived(0, 2), arrived(0, 3))
    assert (tracker.blocked, tracker.holding) == (frozenset(), False)


def test_several_checkpoints_are_counted_at_once() -> None:
    tracker = BarrierTracker(2, 0.0)
    assert play(tracker, arrived(0, 1), arrived(0, 2)) == []
    assert play(tracker, arrived(1, 1)) == [taken(1)]
    assert play(tracker, arrived(1, 2)) == [taken(2)]


def test_the_forwarded_barrier_carries_the_largest_age_brought_up_to_now_and_its_kind() -> None:
    tracker = BarrierTracker(2, 0.0)
    tracker.handle(BarrierArrived(0, Barrier(1, CheckpointKind.SAVEPOINT, age=2.0)), 10.0)  # triggered at 8
    (snapshot,) = tracker.handle(BarrierArrived(1, Barrier(1, CheckpointKind.SAVEPOINT, age=9.0)), 14.0)  # at 5
    expected = Barrier(1, CheckpointKind.SAVEPOINT, age=9.0)
    assert snapshot == TakeSnapshot(expected, unaligned=False, alignment_seconds=4.0)


def test_a_checkpoint_that_a_channel_skipped_is_cancelled_in_front_of_the_newer_one() -> None:
    tracker = BarrierTracker(2, 0.0)
    cancel, snapshot = play(tracker, arrived(0, 1), arrived(0, 2), arrived(1, 2))
    assert cancel == ForwardCancel(1, "an input channel went on to checkpoint 2 without a barrier of 1")
    assert snapshot == taken(2)


def test_a_cancel_marker_gives_the_checkpoint_up_once() -> None:
    tracker = BarrierTracker(3, 0.0)
    actions = play(tracker, arrived(0, 1), CancelArrived(1, 1), CancelArrived(2, 1), arrived(2, 1))
    assert actions == [ForwardCancel(1, "input channel 1 cancelled it")]
    assert tracker.pending is None


def test_a_cancel_marker_leaves_other_checkpoints_alone() -> None:
    tracker = BarrierTracker(2, 0.0)
    play(tracker, arrived(0, 1), arrived(0, 2), CancelArrived(0, 3))
    assert play(tracker, arrived(1, 1), arrived(1, 2)) == [taken(1), taken(2)]


def test_an_abort_is_not_reported_back_and_its_barriers_are_ignored() -> None:
    tracker = BarrierTracker(2, 0.0)
    actions = play(tracker, arrived(0, 1), CheckpointAborted(1), arrived(1, 1), CancelArrived(1, 1))
    assert actions == []
    assert tracker.missing(1) == ()


def test_obsolete_barriers_and_markers_are_swallowed() -> None:
    tracker = BarrierTracker(1, 0.0)
    assert play(tracker, arrived(0, 5)) == [taken(5)]
    assert play(tracker, arrived(0, 4), arrived(0, 5), CancelArrived(0, 3), CheckpointAborted(5)) == []


def test_announcements_time_and_ends_change_nothing() -> None:
    tracker = BarrierTracker(2, 0.0)
    events = (BarrierAnnounced(0, Barrier(1, alignment_timeout=5.0)), EndOfInputArrived(0), Tick())
    assert [action for event in events for action in tracker.handle(event, 1e6)] == []
    assert tracker.next_deadline(1e6) is None
    assert tracker.pending is None


@pytest.mark.parametrize("event", [arrived(2, 1), CancelArrived(-1, 1)])
def test_wrong_channels_are_refused(event: Event) -> None:
    with pytest.raises(ValueError, match="no input channel"):
        BarrierTracker(2, 0.0).handle(event, 0.0)
    with pytest.raises(ValueError, match="at least one channel"):
        BarrierTracker(0, 0.0)


fates = st.lists(st.sampled_from(["barrier", "barrier", "barrier", "cancel", "nothing"]), min_size=4, max_size=4)


@given(
    st.lists(fates, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 11)), max_size=30),
)
@settings(max_examples=300)
def test_in_any_order_each_checkpoint_is_taken_once_behind_all_its_barriers(
    channels: list[list[str]], order: list[tuple[int, int]]
) -> None:
    tracker = BarrierTracker(len(channels), 0.0)
    queues = [[(fate, n) for n, fate in enumerate(fates, start=1) if fate != "nothing"] for fates in channels]
    delivered: set[tuple[int, int]] = set()
    taken: list[int] = []
    cancelled: set[int] = set()
    aborted: set[int] = set()

    def tell(event: Event) -> None:
        for action in tracker.handle(event, 0.0):
            match action:
                case TakeSnapshot(barrier):
                    n = barrier.checkpoint_id
                    assert all((channel, n) in delivered for channel in range(len(channels)))
                    assert n not in cancelled | aborted
                    taken.append(n)
                case ForwardCancel(n):
                    assert n not in cancelled | aborted | set(taken)
                    cancelled.add(n)
                case _:
                    raise AssertionError(f"{action} isn't for at least once")

    for what, which in [*order, *((9, 0) for _ in range(16))]:
        if what == 0:
            n = 1 + which % 4
            aborted |= {n} - cancelled - set(taken)
            tell(CheckpointAborted(n))
        elif waiting := [c for c, queue in enumerate(queues) if queue]:
            channel = waiting[which % len(waiting)]
            fate, n = queues[channel].pop(0)
            if fate == "barrier":
                delivered.add((channel, n))
            tell(arrived(channel, n) if fate == "barrier" else CancelArrived(channel, n))
    assert taken == sorted(set(taken))
    for n in range(1, 5):
        if all(fates[n - 1] == "barrier" for fates in channels) and n not in aborted:
            assert n in taken
