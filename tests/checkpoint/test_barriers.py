"""Aligned barriers: one consistent cut a checkpoint, and no channel stays blocked for nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkpoint.barrier_events import (
    Action,
    Barrier,
    BarrierAnnounced,
    BarrierArrived,
    BlockChannel,
    CancelArrived,
    CheckpointAborted,
    EndOfInputArrived,
    Event,
    ForwardCancel,
    TakeSnapshot,
    Tick,
    UnblockChannel,
)
from checkpoint.barriers import BarrierHandler
from checkpoint.coordinator_events import CheckpointKind


def arrived(channel: int, checkpoint_id: int, age: float = 0.0) -> BarrierArrived:
    return BarrierArrived(channel, Barrier(checkpoint_id, age=age))


def play(handler: BarrierHandler, *events: Event) -> list[Action]:
    return [action for event in events for action in handler.handle(event, 0.0)]


def cancelled(actions: list[Action]) -> list[int]:
    return [action.checkpoint_id for action in actions if isinstance(action, ForwardCancel)]


def snapshots(actions: list[Action]) -> list[int]:
    return [action.barrier.checkpoint_id for action in actions if isinstance(action, TakeSnapshot)]


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


def test_time_does_nothing_to_an_aligned_checkpoint() -> None:
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


# -- announcements, diagnosis, misuse -----------------------------------------------------------------------------


def test_tells_which_channels_hold_a_checkpoint_up_and_where_its_barrier_is_queued() -> None:
    handler = BarrierHandler(3, 0.0)
    assert handler.missing(1) == (0, 1, 2)
    assert play(handler, BarrierAnnounced(2, Barrier(1)), BarrierAnnounced(0, Barrier(1))) == []
    play(handler, arrived(0, 1))
    assert handler.missing(1) == (1, 2)
    assert handler.queued(1) == (2,)
    play(handler, arrived(1, 1), arrived(2, 1))
    assert (handler.missing(1), handler.queued(1)) == ((), ())


def test_announcements_of_aligned_barriers_change_nothing() -> None:
    announced, plain = BarrierHandler(2, 0.0), BarrierHandler(2, 0.0)
    play(announced, *(BarrierAnnounced(c, Barrier(n)) for n in (1, 2, 3) for c in (0, 1)))
    events = (arrived(0, 1), arrived(1, 1), CheckpointAborted(2), arrived(0, 2), CancelArrived(1, 3))
    assert play(announced, *events) == play(plain, *events)


@pytest.mark.parametrize("event", [BarrierArrived, BarrierAnnounced])
@pytest.mark.parametrize("timeout", [0.0, 1.0])
def test_a_barrier_that_may_become_unaligned_is_refused(
    event: type[BarrierArrived] | type[BarrierAnnounced], timeout: float
) -> None:
    with pytest.raises(NotImplementedError, match="checkpoint 4 may become unaligned"):
        BarrierHandler(1, 0.0).handle(event(0, Barrier(4, alignment_timeout=timeout)), 0.0)


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


# -- every order --------------------------------------------------------------------------------------------------

Element = tuple[str, int]
"""("data", –), ("barrier", id), ("cancel", id), ("end", –)."""


@dataclass
class Subtask:
    """A subtask with its input queues, which does what the handler says."""

    scripts: list[list[Element]]
    snapshots: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Rows consumed of each channel at each snapshot."""
    cancelled: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    emitted: list[int] = field(default_factory=list)
    """Ids of the barriers and cancel markers sent downstream."""

    def __post_init__(self) -> None:
        self.handler = BarrierHandler(len(self.scripts), 0.0)
        self.queues = [deque(script) for script in self.scripts]
        self.consumed = [0] * len(self.scripts)
        self.blocked: set[int] = set()
        self.ended: set[int] = set()
        self.now = 0.0

    def ready(self) -> list[int]:
        return [c for c, queue in enumerate(self.queues) if queue and c not in self.blocked]

    def take(self, channel: int) -> None:
        kind, n = self.queues[channel].popleft()
        match kind:
            case "data":
                self.consumed[channel] += 1
            case "barrier":
                self.tell(arrived(channel, n))
            case "cancel":
                self.tell(CancelArrived(channel, n))
            case _:
                self.ended.add(channel)
                self.tell(EndOfInputArrived(channel))

    def abort(self, checkpoint_id: int) -> None:
        if checkpoint_id not in self.snapshots and checkpoint_id not in self.cancelled:
            self.aborted.add(checkpoint_id)
        self.tell(CheckpointAborted(checkpoint_id))

    def announce(self, channel: int) -> None:
        for kind, n in self.queues[channel]:
            if kind == "barrier":
                self.tell(BarrierAnnounced(channel, Barrier(n)))
                return

    def tell(self, event: Event) -> None:
        self.now += 1.0
        for action in self.handler.handle(event, self.now):
            match action:
                case BlockChannel(channel):
                    assert channel not in self.blocked
                    self.blocked.add(channel)
                case UnblockChannel(channel):
                    self.blocked.remove(channel)
                case TakeSnapshot(barrier):
                    n = barrier.checkpoint_id
                    assert n not in self.snapshots, "one snapshot a checkpoint"
                    assert n not in self.cancelled, "never both snapshot and cancel"
                    assert n not in self.aborted
                    self.snapshots[n] = tuple(self.consumed)
                    self.emitted.append(n)
                case ForwardCancel(n, _):
                    assert n not in self.cancelled, "cancelled once"
                    assert n not in self.snapshots, "never both snapshot and cancel"
                    assert n not in self.aborted, "the coordinator knows already"
                    self.cancelled.add(n)
                    self.emitted.append(n)
                case _:
                    pytest.fail(f"not an action of aligned checkpoints: {action}")
        assert self.handler.blocked == self.blocked
        assert (self.handler.pending is None) == (not self.blocked), "blocked for nothing"

    def rows_before_barrier(self, n: int) -> tuple[int, ...]:
        return tuple(
            sum(kind == "data" for kind, _ in script[: script.index(("barrier", n))]) for script in self.scripts
        )


@st.composite
def scripts(draw: st.DrawFn, fates: tuple[str, ...]) -> list[list[Element]]:
    """What up to three channels carry: ids ascend, each with a barrier, a cancel marker or nothing; some strays."""
    channels = draw(st.integers(1, 3))
    last_id = draw(st.integers(1, 4))
    result = []
    for _ in range(channels):
        end_before = draw(st.integers(1, last_id + 1))  # the end of input lies in front of this checkpoint's barrier
        script: list[Element] = []
        for n in range(1, last_id + 2):
            if n <= end_before:
                script += [("data", 0)] * draw(st.integers(0, 2))
            if n == end_before:
                script.append(("end", 0))
            fate = draw(st.sampled_from(fates))
            if n <= last_id and fate != "nothing":
                script.append((fate, n))
                if draw(st.integers(0, 7)) == 0:
                    script.append(("barrier", draw(st.integers(1, n))) if fate == "cancel" else ("cancel", n))
        result.append(script)
    return result


def has_barrier_everywhere(channels: list[list[Element]], n: int) -> bool:
    return all(("barrier", n) in script for script in channels)


def run(subtask: Subtask, choices: list[tuple[int, int]], aborts: bool) -> None:
    """Play the script in the order that `choices` says, then to its end."""
    last_id = max((n for script in subtask.scripts for _, n in script), default=0)
    for what, which in choices:
        if what == 0 and aborts:
            subtask.abort(1 + which % (last_id + 1))
        elif what == 1:
            subtask.announce(which % len(subtask.queues))
        elif ready := subtask.ready():
            subtask.take(ready[which % len(ready)])
    while any(subtask.queues):
        if ready := subtask.ready():
            subtask.take(ready[0])
        else:  # what some channel does not carry at all is given up by the coordinator in the end: it expires
            assert subtask.handler.pending is not None
            subtask.abort(subtask.handler.pending)
    if subtask.handler.pending is not None:
        subtask.abort(subtask.handler.pending)


choices = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 11)), max_size=40)


@given(scripts(("barrier",)), choices)
@settings(max_examples=150, deadline=None)
def test_barriers_on_all_channels_give_one_consistent_cut_each_in_any_order(
    channels: list[list[Element]], order: list[tuple[int, int]]
) -> None:
    channels = [[e for e in script if e[0] != "cancel"] for script in channels]
    subtask = Subtask(channels)
    run(subtask, order, aborts=False)
    assert list(subtask.snapshots) == sorted({n for kind, n in channels[0] if kind == "barrier"})
    assert all(cut == subtask.rows_before_barrier(n) for n, cut in subtask.snapshots.items())
    assert not subtask.cancelled


@given(scripts(("barrier", "barrier", "barrier", "cancel", "nothing")), choices)
@example([[("barrier", 1), ("data", 0), ("end", 0)], [("barrier", 2), ("data", 0), ("end", 0)]], [(2, 0)] * 6)
@example([[("barrier", 1), ("barrier", 2), ("end", 0)], [("cancel", 2), ("data", 0), ("end", 0)]], [(2, 0)] * 6)
@settings(max_examples=400, deadline=None)
def test_any_order_of_barriers_data_cancels_ends_and_aborts(
    channels: list[list[Element]], order: list[tuple[int, int]]
) -> None:
    subtask = Subtask(channels)
    run(subtask, order, aborts=True)
    assert not subtask.blocked
    assert subtask.consumed == [sum(kind == "data" for kind, _ in script) for script in channels], "all data consumed"
    assert len(subtask.ended) == len(channels)
    for n, cut in subtask.snapshots.items():
        assert cut == subtask.rows_before_barrier(n), "the cut is consistent"
    for n in range(1, 6):
        regular = all([kind for kind, i in script if i == n] == ["barrier"] for script in channels)
        if regular and n not in subtask.aborted:
            assert n in subtask.snapshots, "nothing but an abort stops a checkpoint whose barriers are everywhere"
        if not has_barrier_everywhere(channels, n):
            assert n not in subtask.snapshots
        first_on_all = [next((kind for kind, i in script if i == n), None) for script in channels]
        if "cancel" in first_on_all and n not in subtask.aborted:
            later = [m for m in subtask.cancelled | subtask.snapshots.keys() if m > n]
            assert n in subtask.cancelled or later, "a cancelled checkpoint is given up downstream as well"


@given(scripts(("barrier", "barrier", "cancel", "nothing")), choices)
@settings(max_examples=150, deadline=None)
def test_ids_ascend_downstream_without_strays(channels: list[list[Element]], order: list[tuple[int, int]]) -> None:
    seen: list[list[Element]] = []
    for script in channels:
        kept: list[Element] = []
        for kind, n in script:
            if kind in ("data", "end") or n > max((i for k, i in kept if k in ("barrier", "cancel")), default=0):
                kept.append((kind, n))
        seen.append(kept)
    subtask = Subtask(seen)
    run(subtask, order, aborts=True)
    assert subtask.emitted == sorted(set(subtask.emitted))
