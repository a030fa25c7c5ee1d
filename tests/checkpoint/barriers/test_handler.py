"""When a subtask takes its snapshot, what it captures, and what it holds back meanwhile (see also
`test_barriers_properties.py`)."""

from __future__ import annotations

import pytest

from checkpoint.barriers.events import (
    Action,
    Barrier,
    BarrierAnnounced,
    BarrierArrived,
    BlockChannel,
    CancelArrived,
    CaptureChannel,
    CheckpointAborted,
    EndOfInputArrived,
    Event,
    ForwardCancel,
    HoldInput,
    ReleaseInput,
    TakeSnapshot,
    Tick,
    UnblockChannel,
)
from checkpoint.barriers.handler import BarrierHandler
from checkpoint.checkpoint_kind import CheckpointKind


def arrived(channel: int, checkpoint_id: int, timeout: float | None = None, age: float = 0.0) -> BarrierArrived:
    return BarrierArrived(channel, Barrier(checkpoint_id, alignment_timeout=timeout, age=age))


def announced(channel: int, checkpoint_id: int, timeout: float | None = None, age: float = 0.0) -> BarrierAnnounced:
    return BarrierAnnounced(channel, Barrier(checkpoint_id, alignment_timeout=timeout, age=age))


def play(handler: BarrierHandler, *events: Event) -> list[Action]:
    return [action for event in events for action in handler.handle(event, 0.0)]


def cancelled(actions: list[Action]) -> list[int]:
    return [action.checkpoint_id for action in actions if isinstance(action, ForwardCancel)]


def snapshots(actions: list[Action]) -> list[int]:
    return [action.barrier.checkpoint_id for action in actions if isinstance(action, TakeSnapshot)]


def unaligned(checkpoint_id: int, age: float = 0.0, seconds: float = 0.0) -> TakeSnapshot:
    return TakeSnapshot(Barrier(checkpoint_id, alignment_timeout=0.0, age=age), True, alignment_seconds=seconds)


def captured(actions: list[Action], checkpoint_id: int) -> list[int]:
    return [a.channel for a in actions if isinstance(a, CaptureChannel) and a.checkpoint_id == checkpoint_id]


# -- alignment ----------------------------------------------------------------------------------------------------


def test_with_one_channel_every_barrier_is_a_snapshot_at_once() -> None:
    handler = BarrierHandler(1, 0.0)
    assert handler.handle(arrived(0, 1), 1.0) == [TakeSnapshot(Barrier(1), unaligned=False, alignment_seconds=0.0)]
    assert handler.blocked == frozenset()


def test_a_channel_is_blocked_from_its_barrier_until_all_have_delivered() -> None:
    handler = BarrierHandler(3, 0.0)
    assert play(handler, arrived(1, 5)) == [BlockChannel(1)]
    assert play(handler, arrived(0, 5)) == [BlockChannel(0)]
    assert (handler.pending, sorted(handler.blocked)) == (5, [0, 1])
    snapshot, *rest = play(handler, arrived(2, 5))
    assert isinstance(snapshot, TakeSnapshot)
    assert rest == [UnblockChannel(0), UnblockChannel(1)]  # behind the snapshot, or it would miss its cut
    assert (handler.pending, handler.blocked) == (None, frozenset())


def test_the_forwarded_barrier_carries_the_largest_age_brought_up_to_now() -> None:
    handler = BarrierHandler(3, 0.0)
    handler.handle(arrived(0, 1, age=2.0), 10.0)  # triggered at 8
    handler.handle(arrived(1, 1, age=9.0), 14.0)  # triggered at 5: the other host measured longer
    (snapshot, *_) = handler.handle(arrived(2, 1, age=0.5), 20.0)
    assert snapshot == TakeSnapshot(Barrier(1, age=15.0), unaligned=False, alignment_seconds=10.0)


def test_a_savepoints_barrier_is_forwarded_as_one() -> None:
    handler = BarrierHandler(1, 0.0)
    (snapshot,) = play(handler, BarrierArrived(0, Barrier(3, CheckpointKind.SAVEPOINT)))
    assert isinstance(snapshot, TakeSnapshot)
    assert snapshot.barrier.kind is CheckpointKind.SAVEPOINT


def test_a_clock_read_by_another_thread_may_lag_a_little() -> None:
    handler = BarrierHandler(2, 0.0)
    handler.handle(arrived(0, 1), 5.0)
    snapshot = handler.handle(arrived(1, 1), 4.9)[0]
    assert snapshot == TakeSnapshot(Barrier(1), unaligned=False, alignment_seconds=0.0)


def test_the_end_of_a_channels_data_does_not_exempt_it_from_barriers() -> None:
    handler = BarrierHandler(2, 0.0)
    assert play(handler, EndOfInputArrived(0), arrived(1, 1)) == [BlockChannel(1)]
    assert snapshots(play(handler, arrived(0, 1))) == [1]


def test_time_does_nothing_to_a_checkpoint_without_a_timeout() -> None:
    handler = BarrierHandler(2, 0.0)
    handler.handle(arrived(0, 1), 1.0)
    assert handler.next_deadline(1.0) is None
    assert handler.handle(Tick(), 1e6) == []


# -- checkpoints that are given up --------------------------------------------------------------------------------


def test_a_newer_barrier_on_a_channel_without_the_pending_one_cancels_the_pending_one() -> None:
    handler = BarrierHandler(2, 0.0)
    actions = play(handler, arrived(0, 1), arrived(1, 2))
    assert actions == [
        BlockChannel(0),
        ForwardCancel(1, "input channel 1 went on to checkpoint 2 without a barrier of 1"),
        UnblockChannel(0),
        BlockChannel(1),
    ]
    assert snapshots(play(handler, arrived(0, 2))) == [2]


def test_a_cancel_marker_unblocks_and_goes_downstream_once() -> None:
    handler = BarrierHandler(3, 0.0)
    actions = play(handler, arrived(0, 1), CancelArrived(1, 1), CancelArrived(2, 1))
    assert cancelled(actions) == [1]
    assert UnblockChannel(0) in actions


def test_a_cancel_marker_of_a_checkpoint_never_seen_makes_its_barriers_ignored() -> None:
    handler = BarrierHandler(2, 0.0)
    assert cancelled(play(handler, CancelArrived(0, 1))) == [1]
    assert play(handler, arrived(1, 1)) == []


def test_a_cancel_marker_of_a_newer_checkpoint_cancels_the_pending_one_too() -> None:
    handler = BarrierHandler(2, 0.0)
    assert cancelled(play(handler, arrived(0, 1), CancelArrived(1, 2))) == [1, 2]
    assert handler.blocked == frozenset()
    assert play(handler, arrived(0, 2)) == []


def test_a_checkpoint_older_than_the_pending_one_is_cancelled_once_and_blocks_nothing() -> None:
    handler = BarrierHandler(3, 0.0)
    actions = play(handler, arrived(0, 2), arrived(1, 1), CancelArrived(2, 1))
    assert cancelled(actions) == [1]
    assert handler.blocked == {0}
    assert snapshots(play(handler, arrived(1, 2), arrived(2, 2))) == [2]


def test_a_late_cancel_marker_of_an_older_checkpoint_leaves_the_pending_one_alone() -> None:
    handler = BarrierHandler(2, 0.0)
    assert cancelled(play(handler, arrived(0, 2), CancelArrived(1, 1))) == [1]
    assert handler.blocked == {0}
    assert snapshots(play(handler, arrived(1, 2))) == [2]


def test_an_abort_by_the_coordinator_unblocks_and_is_not_reported_back() -> None:
    handler = BarrierHandler(3, 0.0)
    assert play(handler, arrived(0, 1), CheckpointAborted(1)) == [BlockChannel(0), UnblockChannel(0)]
    assert play(handler, arrived(1, 1), CancelArrived(2, 1), CheckpointAborted(1)) == []
    assert (handler.pending, handler.blocked) == (None, frozenset())


def test_an_abort_of_a_newer_checkpoint_leaves_the_pending_one_alone() -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, arrived(0, 1))
    assert play(handler, CheckpointAborted(2)) == []
    assert snapshots(play(handler, arrived(1, 1))) == [1]
    assert play(handler, arrived(0, 2), arrived(1, 2)) == []


def test_the_barrier_of_an_aborted_checkpoint_still_shows_that_an_older_one_will_not_come() -> None:
    handler = BarrierHandler(2, 0.0)
    actions = play(handler, arrived(0, 1), CheckpointAborted(2), arrived(1, 2))
    assert cancelled(actions) == [1]
    assert handler.blocked == frozenset()


def test_obsolete_barriers_and_markers_are_swallowed() -> None:
    handler = BarrierHandler(1, 0.0)
    play(handler, arrived(0, 5))
    assert play(handler, arrived(0, 4), arrived(0, 5), CancelArrived(0, 3), CheckpointAborted(5)) == []
    assert snapshots(play(handler, arrived(0, 6))) == [6]


# -- unaligned ----------------------------------------------------------------------------------------------------


def test_the_first_sight_of_an_unaligned_barrier_is_a_snapshot_that_captures_every_channel() -> None:
    handler = BarrierHandler(3, 0.0)
    actions = play(handler, announced(1, 7, timeout=0.0))
    assert actions == [unaligned(7), CaptureChannel(7, 0), CaptureChannel(7, 1), CaptureChannel(7, 2)]
    assert (handler.pending, handler.blocked, handler.holding) == (None, frozenset(), False)
    assert play(handler, announced(0, 7, timeout=0.0), announced(2, 7, timeout=0.0)) == []


def test_a_barrier_that_is_taken_before_its_announcement_is_read_exempts_its_channel_from_the_capture() -> None:
    handler = BarrierHandler(2, 0.0)
    assert play(handler, arrived(0, 1, timeout=0.0)) == [unaligned(1), CaptureChannel(1, 1)]
    assert play(handler, announced(0, 1, timeout=0.0), announced(1, 1, timeout=0.0)) == []


def test_with_one_channel_a_barrier_that_is_taken_captures_nothing() -> None:
    assert play(BarrierHandler(1, 0.0), arrived(0, 1, timeout=0.0)) == [unaligned(1)]


def test_an_unaligned_barrier_from_upstream_turns_a_checkpoint_that_is_being_aligned() -> None:
    handler = BarrierHandler(3, 0.0)
    play(handler, arrived(0, 1, timeout=60.0), announced(1, 1, timeout=60.0))
    actions = play(handler, announced(1, 1, timeout=0.0))
    assert actions == [unaligned(1), CaptureChannel(1, 1), CaptureChannel(1, 2), UnblockChannel(0)]


def test_a_barrier_turned_upstream_turns_an_aligned_one_without_timeout_too() -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, arrived(0, 1))
    assert captured(play(handler, announced(1, 1, timeout=0.0)), 1) == [1]


def test_a_newer_unaligned_barrier_turns_an_older_aligned_savepoint_first() -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, BarrierArrived(0, Barrier(4, CheckpointKind.SAVEPOINT)))
    play(handler, BarrierAnnounced(1, Barrier(4, CheckpointKind.SAVEPOINT)))
    first, *rest = play(handler, announced(1, 5, timeout=0.0))
    assert first == TakeSnapshot(Barrier(4, CheckpointKind.SAVEPOINT, alignment_timeout=0.0), True, 0.0)
    assert rest == [CaptureChannel(4, 1), unaligned(5), CaptureChannel(5, 0), CaptureChannel(5, 1), UnblockChannel(0)]


def test_a_newer_checkpoint_that_reaches_its_deadline_turns_the_older_ones_first() -> None:
    handler = BarrierHandler(2, 0.0)
    for n in (1, 2, 3):
        handler.handle(announced(0, n, timeout={1: None, 2: 100.0, 3: 5.0}[n]), 0.0)
    actions = handler.handle(Tick(), 5.0)
    assert snapshots(actions) == [1, 2, 3]
    assert all(a.unaligned for a in actions if isinstance(a, TakeSnapshot))


def test_an_older_unaligned_barrier_does_not_turn_a_newer_aligned_one() -> None:
    handler = BarrierHandler(2, 0.0)
    assert snapshots(play(handler, announced(0, 1), announced(0, 2), announced(0, 1, timeout=0.0))) == [1]
    assert snapshots(play(handler, arrived(0, 2), arrived(1, 2))) == [2]


def test_several_unaligned_checkpoints_are_taken_at_once_each_with_its_own_captures() -> None:
    handler = BarrierHandler(2, 0.0)
    actions = play(handler, announced(0, 1, timeout=0.0), announced(0, 2, timeout=0.0), announced(0, 3, timeout=0.0))
    assert snapshots(actions) == [1, 2, 3]
    assert [captured(actions, n) for n in (1, 2, 3)] == [[0, 1]] * 3


def test_an_aligned_checkpoint_that_is_complete_is_taken_before_a_newer_one_can_turn_it() -> None:
    handler = BarrierHandler(1, 0.0)
    aligned, newer, *captures = play(handler, announced(0, 1), arrived(0, 1), announced(0, 2, timeout=0.0))
    assert aligned == TakeSnapshot(Barrier(1), unaligned=False, alignment_seconds=0.0)
    assert [newer, *captures] == [unaligned(2), CaptureChannel(2, 0)]


# -- aligned with timeout -----------------------------------------------------------------------------------------


def test_before_its_deadline_a_checkpoint_aligns() -> None:
    handler = BarrierHandler(2, 0.0)
    handler.handle(arrived(0, 1, timeout=5.0), 10.0)
    assert handler.next_deadline(10.0) == 15.0
    assert handler.handle(Tick(), 14.9) == []
    snapshot, *rest = handler.handle(arrived(1, 1, timeout=5.0, age=4.9), 14.9)
    assert snapshot == TakeSnapshot(Barrier(1, alignment_timeout=5.0, age=4.9), False, alignment_seconds=14.9 - 10.0)
    assert rest == [UnblockChannel(0)]
    assert handler.next_deadline(14.9) is None


def test_at_its_deadline_a_checkpoint_between_barriers_turns_unaligned() -> None:
    handler = BarrierHandler(3, 0.0)
    handler.handle(arrived(1, 1, timeout=5.0), 10.0)
    actions = handler.handle(Tick(), 15.0)
    assert actions == [unaligned(1, 5.0, 5.0), CaptureChannel(1, 0), CaptureChannel(1, 2), UnblockChannel(1)]


def test_a_barrier_older_than_its_timeout_is_unaligned_at_first_sight() -> None:
    handler = BarrierHandler(2, 0.0)
    assert handler.handle(announced(0, 1, timeout=5.0, age=5.0), 10.0)[0] == unaligned(1, age=5.0)


def test_a_deadline_that_no_tick_told_of_counts_at_the_next_event() -> None:
    handler = BarrierHandler(3, 0.0)
    handler.handle(arrived(0, 1, timeout=5.0), 10.0)
    assert captured(handler.handle(EndOfInputArrived(1), 12.0), 1) == []
    assert captured(handler.handle(arrived(1, 1, timeout=5.0), 20.0), 1) == [2]


def test_a_deadline_passed_when_the_last_barrier_arrives_lets_the_barrier_overtake_downstream() -> None:
    handler = BarrierHandler(2, 0.0)
    handler.handle(arrived(0, 1, timeout=5.0), 10.0)
    assert handler.handle(arrived(1, 1, timeout=5.0), 16.0) == [unaligned(1, 6.0, 6.0), UnblockChannel(0)]


def test_the_deadline_of_a_checkpoint_that_is_only_announced_counts() -> None:
    handler = BarrierHandler(2, 0.0)
    handler.handle(announced(0, 1, timeout=5.0, age=2.0), 10.0)
    assert handler.next_deadline(10.0) == 13.0
    assert captured(handler.handle(Tick(), 13.0), 1) == [0, 1]


def test_the_deadline_follows_the_oldest_age_seen() -> None:
    handler = BarrierHandler(3, 0.0)
    handler.handle(announced(0, 1, timeout=5.0, age=1.0), 10.0)
    assert handler.next_deadline(10.0) == 14.0
    handler.handle(announced(1, 1, timeout=5.0, age=3.0), 11.0)
    assert handler.next_deadline(11.0) == 13.0
    handler.handle(announced(2, 1, timeout=5.0, age=0.0), 11.0)
    assert handler.next_deadline(11.0) == 13.0


def test_the_next_deadline_is_the_earliest_of_all_checkpoints() -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, announced(0, 1, timeout=9.0), announced(0, 2, timeout=4.0), announced(0, 3))
    assert handler.next_deadline(0.0) == 4.0


@pytest.mark.parametrize("epoch", [0.0, -1e7, 1e9])
def test_what_the_hosts_clocks_say_changes_nothing(epoch: float) -> None:
    handler = BarrierHandler(2, epoch)
    handler.handle(arrived(0, 1, timeout=5.0, age=2.0), epoch + 10.0)
    assert handler.handle(Tick(), epoch + 12.5) == []
    assert handler.handle(Tick(), epoch + 13.0)[0] == unaligned(1, age=5.0, seconds=3.0)


# -- given up while others are under way --------------------------------------------------------------------------


def test_a_cancel_marker_goes_downstream_behind_the_barriers_of_older_checkpoints() -> None:
    """In front of them it would tell the next subtask that those will never come."""
    handler = BarrierHandler(2, 0.0)
    play(handler, announced(0, 1), announced(1, 1), announced(1, 2))
    assert play(handler, announced(0, 3)) == []  # gives 2 up
    assert handler.missing(2) == ()
    actions = play(handler, arrived(0, 1), arrived(1, 1))
    assert [type(a) for a in actions if isinstance(a, TakeSnapshot | ForwardCancel)] == [TakeSnapshot, ForwardCancel]
    assert (snapshots(actions), cancelled(actions)) == ([1], [2])


def test_a_checkpoint_that_others_have_skipped_is_cancelled_behind_the_barriers_of_older_ones() -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, announced(0, 1), announced(0, 3), announced(1, 1))
    assert play(handler, announced(1, 2)) == []
    actions = play(handler, arrived(0, 1), arrived(1, 1))
    assert (snapshots(actions), cancelled(actions)) == ([1], [2])


def test_an_abort_makes_a_cancel_marker_that_waits_superfluous() -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, announced(0, 1), announced(0, 3), announced(1, 1), announced(1, 2), CheckpointAborted(2))
    assert cancelled(play(handler, arrived(0, 1), arrived(1, 1))) == []


def test_a_cancel_marker_that_waits_is_sent_when_the_older_checkpoint_is_aborted() -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, announced(0, 1), announced(0, 3), announced(1, 1), announced(1, 2))
    assert cancelled(play(handler, CheckpointAborted(1))) == [2]


def test_a_cancel_marker_does_not_stop_a_newer_checkpoint() -> None:
    handler = BarrierHandler(2, 0.0)
    assert cancelled(play(handler, announced(1, 2), CancelArrived(0, 1))) == [1]
    assert snapshots(play(handler, arrived(0, 2), arrived(1, 2))) == [2]


def test_a_cancel_marker_behind_an_unaligned_snapshot_is_no_news() -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, announced(0, 1, timeout=0.0))
    assert play(handler, CancelArrived(1, 1)) == []


@pytest.mark.parametrize("timeout", [None, 0.0, 5.0])
def test_barriers_of_an_aborted_checkpoint_do_nothing(timeout: float | None) -> None:
    handler = BarrierHandler(2, 0.0, broadcast=[0])
    assert play(handler, CheckpointAborted(3)) == []
    events = [event for c in (0, 1) for event in (announced(c, 3, timeout), arrived(c, 3, timeout))]
    assert play(handler, *events, Tick()) == []
    assert handler.next_deadline(0.0) is None


def test_an_abort_of_an_unaligned_checkpoint_that_was_taken_is_no_news() -> None:
    handler = BarrierHandler(2, 0.0)
    assert play(handler, announced(0, 1, timeout=0.0))
    assert play(handler, CheckpointAborted(1), announced(1, 1, timeout=0.0), arrived(1, 1, timeout=0.0)) == []


def test_an_abort_between_announcement_and_deadline_takes_the_deadline_away() -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, announced(0, 1, timeout=5.0), CheckpointAborted(1))
    assert handler.next_deadline(0.0) is None
    assert handler.handle(Tick(), 6.0) == []


def test_obsolete_announcements_of_unaligned_barriers_are_swallowed() -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, announced(0, 5, timeout=0.0))
    assert play(handler, announced(1, 4, timeout=0.0), announced(1, 5, timeout=0.0), arrived(0, 3, timeout=0.0)) == []


def test_an_ended_channel_is_captured_until_its_barrier_arrives() -> None:
    handler = BarrierHandler(2, 0.0)
    assert captured(play(handler, EndOfInputArrived(0), announced(1, 1, timeout=0.0)), 1) == [0, 1]


# -- broadcast channels -------------------------------------------------------------------------------------------


def test_an_unaligned_checkpoint_reads_the_broadcast_channels_up_to_their_barriers_and_nothing_else() -> None:
    handler = BarrierHandler(4, 0.0, broadcast=[0, 1])
    assert play(handler, announced(2, 1, timeout=0.0)) == [HoldInput(1), BlockChannel(2), BlockChannel(3)]
    assert (handler.pending, handler.holding) == (1, True)
    assert play(handler, arrived(1, 1, timeout=0.0)) == [BlockChannel(1)]
    actions = play(handler, arrived(0, 1, timeout=0.0))
    assert actions == [
        unaligned(1),
        CaptureChannel(1, 2),
        CaptureChannel(1, 3),
        ReleaseInput(1),
        UnblockChannel(1),
        UnblockChannel(2),
        UnblockChannel(3),
    ]
    assert not handler.holding


def test_an_announcement_on_a_broadcast_channel_is_no_delivery() -> None:
    handler = BarrierHandler(2, 0.0, broadcast=[0])
    assert play(handler, announced(0, 1, timeout=0.0)) == [HoldInput(1), BlockChannel(1)]
    assert snapshots(play(handler, arrived(0, 1, timeout=0.0))) == [1]


def test_nothing_is_held_if_the_broadcast_channels_have_delivered_already() -> None:
    handler = BarrierHandler(2, 0.0, broadcast=[0])
    assert play(handler, arrived(0, 1, timeout=5.0)) == [BlockChannel(0)]
    assert play(handler, announced(1, 1, timeout=0.0)) == [unaligned(1), CaptureChannel(1, 1), UnblockChannel(0)]


def test_an_aligned_checkpoint_with_broadcast_channels_aligns_as_others_do() -> None:
    with_broadcast, without = BarrierHandler(3, 0.0, broadcast=[1]), BarrierHandler(3, 0.0)
    events = (announced(1, 1), arrived(1, 1), arrived(0, 1), arrived(2, 1))
    assert play(with_broadcast, *events) == play(without, *events)


def test_a_switch_at_the_deadline_holds_for_the_broadcast_channels() -> None:
    handler = BarrierHandler(3, 0.0, broadcast=[2])
    handler.handle(arrived(0, 1, timeout=5.0), 0.0)
    assert handler.handle(Tick(), 5.0) == [HoldInput(1), BlockChannel(1)]
    actions = handler.handle(arrived(2, 1, timeout=5.0), 6.0)
    assert actions[:2] == [unaligned(1, 6.0, 6.0), CaptureChannel(1, 1)]


def test_a_checkpoint_that_turns_while_holding_for_an_older_one_is_held_for_next() -> None:
    handler = BarrierHandler(2, 0.0, broadcast=[0])
    handler.handle(announced(1, 1, timeout=0.0), 0.0)
    assert handler.handle(announced(1, 2, timeout=5.0), 0.0) == []
    assert handler.handle(Tick(), 5.0) == []
    first = handler.handle(arrived(0, 1, timeout=0.0), 6.0)
    assert (snapshots(first), captured(first, 1)) == ([1], [1])
    assert [a for a in first if isinstance(a, ReleaseInput | HoldInput)] == [ReleaseInput(1), HoldInput(2)]
    assert handler.blocked == {1}
    assert snapshots(handler.handle(arrived(0, 2, timeout=5.0), 7.0)) == [2]
    assert (handler.blocked, handler.holding) == (frozenset(), False)


def test_an_aligned_checkpoint_behind_the_one_held_for_goes_on_aligning() -> None:
    handler = BarrierHandler(2, 0.0, broadcast=[0])
    play(handler, announced(1, 1, timeout=0.0), announced(1, 2), arrived(0, 1, timeout=0.0))
    assert (handler.blocked, handler.holding) == (frozenset(), False)
    assert play(handler, arrived(0, 2)) == [BlockChannel(0)]
    (snapshot, _) = play(handler, arrived(1, 2))
    assert snapshot == TakeSnapshot(Barrier(2), unaligned=False, alignment_seconds=0.0)


def test_a_newer_unaligned_barrier_turns_an_older_aligned_one_and_holds_for_that_first() -> None:
    handler = BarrierHandler(2, 0.0, broadcast=[0])
    play(handler, announced(1, 1))
    assert play(handler, announced(1, 2, timeout=0.0)) == [HoldInput(1), BlockChannel(1)]
    actions = play(handler, arrived(0, 1), arrived(0, 2, timeout=0.0))
    assert (snapshots(actions), captured(actions, 1), captured(actions, 2)) == ([1, 2], [1], [1])


@pytest.mark.parametrize("end", [CheckpointAborted(1), CancelArrived(0, 1)])
def test_the_input_is_released_when_the_checkpoint_held_for_is_given_up(end: Event) -> None:
    handler = BarrierHandler(2, 0.0, broadcast=[0])
    play(handler, announced(1, 1, timeout=0.0))
    actions = play(handler, end)
    assert actions[-2:] == [ReleaseInput(1), UnblockChannel(1)]
    assert (handler.pending, handler.holding) == (None, False)


def test_a_broadcast_channel_that_skips_the_checkpoint_held_for_gives_it_up() -> None:
    handler = BarrierHandler(2, 0.0, broadcast=[0])
    play(handler, announced(1, 1, timeout=0.0))
    actions = play(handler, arrived(0, 2))
    assert cancelled(actions) == [1]
    assert (handler.blocked, handler.holding) == ({0}, False)


def test_with_nothing_but_broadcast_channels_an_unaligned_checkpoint_aligns() -> None:
    handler = BarrierHandler(2, 0.0, broadcast=[0, 1])
    assert play(handler, arrived(0, 1, timeout=0.0)) == [HoldInput(1), BlockChannel(0)]
    assert play(handler, arrived(1, 1, timeout=0.0)) == [unaligned(1), ReleaseInput(1), UnblockChannel(0)]


def test_taking_an_element_from_a_channel_that_is_held_back_is_an_error() -> None:
    handler = BarrierHandler(2, 0.0, broadcast=[0])
    play(handler, announced(1, 6, timeout=0.0))
    with pytest.raises(ValueError, match="checkpoint 6 blocks it"):
        handler.handle(arrived(1, 6, timeout=0.0), 0.0)


# -- announcements, diagnosis, misuse -----------------------------------------------------------------------------


def test_tells_which_channels_hold_a_checkpoint_up() -> None:
    handler = BarrierHandler(3, 0.0)
    assert handler.missing(1) == (0, 1, 2)
    assert play(handler, BarrierAnnounced(2, Barrier(1)), BarrierAnnounced(0, Barrier(1))) == []
    play(handler, arrived(0, 1))
    assert handler.missing(1) == (1, 2)
    play(handler, arrived(1, 1), arrived(2, 1))
    assert handler.missing(1) == ()


def test_announcements_of_aligned_barriers_change_nothing() -> None:
    announced, plain = BarrierHandler(2, 0.0), BarrierHandler(2, 0.0)
    play(announced, *(BarrierAnnounced(c, Barrier(n)) for n in (1, 2, 3) for c in (0, 1)))
    events = (arrived(0, 1), arrived(1, 1), CheckpointAborted(2), arrived(0, 2), CancelArrived(1, 3))
    assert play(announced, *events) == play(plain, *events)


@pytest.mark.parametrize("event", [arrived(0, 2), CancelArrived(0, 2), EndOfInputArrived(0)])
def test_taking_an_element_from_a_blocked_channel_is_an_error(event: Event) -> None:
    handler = BarrierHandler(2, 0.0)
    play(handler, arrived(0, 1))
    with pytest.raises(ValueError, match="checkpoint 1 blocks it"):
        handler.handle(event, 0.0)


def test_wrong_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one channel"):
        BarrierHandler(0, 0.0)
    with pytest.raises(ValueError, match="no input channel 2"):
        BarrierHandler(2, 0.0).handle(EndOfInputArrived(2), 0.0)
    with pytest.raises(ValueError, match=r"broadcast channels \[2\]"):
        BarrierHandler(2, 0.0, broadcast=[2])
