"""What a sink's subtask commits, in which order, and what travels with checkpoints until then."""

from __future__ import annotations

import ormsgpack
import pytest

from checkpoint.commit_log import CommitLog, CommitOrder
from checkpoint.committables import Committable, CommittableName
from checkpoint.storage.handles import FileHandle


def segments(epoch: int, *payloads: object) -> list[Committable]:
    return [Committable(CommittableName(epoch, index), payload) for index, payload in enumerate(payloads)]


def fresh(own: int = 0) -> CommitLog:
    """That of a start without restore."""
    log = CommitLog(own, {})
    log.release_new()
    return log


def commit(log: CommitLog) -> CommitOrder:
    order = log.next_commit()
    assert order is not None
    log.committed(order)
    return order


# -- committables ---------------------------------------------------------------------------------------------


def test_committables_survive_the_wire():
    committable = Committable(
        CommittableName(7, 2), {"rows": 3, "raw": b"\0\xff"}, (FileHandle("shared/2-out-0-17.arrow", 512, "ab"),)
    )
    wire = ormsgpack.unpackb(ormsgpack.packb(committable.to_wire()))
    assert Committable.from_wire(wire) == committable


def test_segment_names_are_ordered_by_epoch_and_then_index():
    names = [CommittableName(10, 0), CommittableName(9, 11), CommittableName(9, 2)]
    assert sorted(names) == [CommittableName(9, 2), CommittableName(9, 11), CommittableName(10, 0)]
    assert CommittableName.from_wire(CommittableName(9, 2).to_wire()) == CommittableName(9, 2)


# -- commit log: completions ----------------------------------------------------------------------------------


def test_an_epoch_is_committed_once_its_checkpoint_is_complete():
    log = fresh(own=3)
    log.add(1, segments(1, "a", "b"))
    assert log.next_commit() is None
    log.complete(1)
    assert log.next_commit() == CommitOrder(3, 1, tuple(segments(1, "a", "b")))
    commit(log)
    assert log.next_commit() is None
    assert log.idle


def test_the_same_order_is_handed_out_until_it_is_committed():
    log = fresh()
    log.add(1, segments(1, "a"))
    log.complete(1)
    first = log.next_commit()
    log.add(2, segments(2, "b"))
    log.complete(2)
    assert log.next_commit() == first


def test_every_completed_checkpoint_yields_an_order_even_when_empty():
    log = fresh()
    for epoch in (1, 2):
        log.add(epoch, [])
        log.complete(epoch)
    assert commit(log) == CommitOrder(0, 1, ())
    assert commit(log) == CommitOrder(0, 2, ())


def test_segments_of_aborted_checkpoints_go_out_with_the_next_completed_one_under_their_own_names():
    log = fresh()
    log.add(1, segments(1, "a"))
    log.add(2, segments(2, "b"))
    log.add(3, segments(3, "c"))
    log.complete(2)  # 1 was aborted
    assert commit(log) == CommitOrder(0, 2, (*segments(1, "a"), *segments(2, "b")))
    log.complete(3)
    assert commit(log) == CommitOrder(0, 3, tuple(segments(3, "c")))


def test_a_completed_epoch_is_never_merged_with_another():
    log = fresh()
    for epoch in (1, 2):
        log.add(epoch, segments(epoch, f"of {epoch}"))
        log.complete(epoch)
    assert commit(log) == CommitOrder(0, 1, tuple(segments(1, "of 1")))
    assert commit(log) == CommitOrder(0, 2, tuple(segments(2, "of 2")))


def test_notifications_may_come_twice_late_or_not_at_all():
    log = fresh()
    for epoch in (1, 2, 3):
        log.add(epoch, segments(epoch, epoch))
    log.complete(2)  # that of 1 was lost
    log.complete(2)
    log.complete(1)
    assert commit(log).checkpoint_id == 2
    log.complete(2)
    assert log.next_commit() is None
    assert log.snapshot() == {0: segments(3, 3)}


def test_a_notification_of_a_checkpoint_from_before_the_restore_is_ignored():
    log = CommitLog(0, {0: segments(5, "a")})
    log.complete(5)
    assert log.waiting == 0


def test_barriers_out_of_order_are_refused():
    log = CommitLog(0, {0: segments(5, "a")})
    with pytest.raises(ValueError, match="barrier 5 came after barrier 5"):
        log.add(5, [])
    log.add(7, [])
    with pytest.raises(ValueError, match="barrier 6 came after barrier 7"):
        log.add(6, [])


@pytest.mark.parametrize(
    "wrong", [segments(2, "a"), segments(4, "a"), segments(3, "a", "b")[::-1], segments(3, "a") * 2]
)
def test_names_that_do_not_fit_their_barrier_are_refused(wrong: list[Committable]):
    with pytest.raises(ValueError, match="CommittableName"):
        fresh().add(3, wrong)


def test_an_order_that_was_not_handed_out_cannot_be_reported():
    log = fresh()
    log.add(1, segments(1, "a"))
    with pytest.raises(ValueError, match="was committed"):
        log.committed(CommitOrder(0, 1, tuple(segments(1, "a"))))


# -- commit log: snapshots ------------------------------------------------------------------------------------


def test_what_is_not_known_to_be_committed_travels_with_every_later_checkpoint():
    log = fresh(own=1)
    log.add(1, segments(1, "a"))
    assert log.snapshot() == {1: segments(1, "a")}
    log.complete(1)
    log.add(2, segments(2, "b"))
    assert log.snapshot() == {1: [*segments(1, "a"), *segments(2, "b")]}
    commit(log)
    assert log.snapshot() == {1: segments(2, "b")}
    log.complete(2)
    commit(log)
    assert log.snapshot() == {}


def test_inherited_committables_travel_under_their_writer():
    log = CommitLog(0, {0: segments(4, "own"), 2: segments(4, "inherited")})
    log.add(6, segments(6, "new"))
    assert log.snapshot() == {0: [*segments(4, "own"), *segments(6, "new")], 2: segments(4, "inherited")}


# -- commit log: backpressure ---------------------------------------------------------------------------------


def test_the_writer_takes_no_more_records_once_two_completed_epochs_wait():
    log = fresh()
    for epoch in (1, 2):
        log.add(epoch, segments(epoch, epoch))
        assert log.accepts_records
        log.complete(epoch)
    assert log.waiting == 2
    assert not log.accepts_records
    log.add(3, [])  # barriers are taken all the same
    commit(log)
    assert log.accepts_records


def test_a_sink_takes_records_again_however_many_checkpoints_come_while_commits_are_under_way():
    """Else it would not, once a commit takes longer than it is from one checkpoint to the next."""
    log = fresh()
    for epoch in (1, 2):
        log.add(epoch, segments(epoch, epoch))
        log.complete(epoch)
    assert not log.accepts_records
    for epoch in range(3, 100):
        log.add(epoch, [])
        log.complete(epoch)
        assert log.waiting <= 3
    done = []
    while (order := log.next_commit()) is not None:
        done.append((order.checkpoint_id, len(order.committables)))
        log.committed(order)
        assert log.accepts_records == (len(done) > 1)
    assert done == [(1, 1), (2, 1), (99, 0)]


def test_an_order_that_is_handed_out_stays_though_it_is_empty():
    log = fresh()
    for epoch in (1, 2, 3):
        log.add(epoch, [])
        log.complete(epoch)
        first = log.next_commit()
        assert first is not None
        assert first.checkpoint_id == 1
    log.committed(first)
    last = log.next_commit()
    assert last is not None
    assert last.checkpoint_id == 3


def test_only_completed_epochs_count_as_waiting():
    log = CommitLog(0, {0: [*segments(1, "a"), *segments(2, "b"), *segments(3, "c")]})
    for epoch in (11, 12, 13):
        log.add(epoch, segments(epoch, epoch))
    assert log.waiting == 0
    assert log.accepts_records


def test_a_log_is_idle_when_nothing_completed_or_restored_is_left():
    log = CommitLog(0, {0: segments(1, "a")})
    assert not log.idle
    log.release_restored(1)
    commit(log)
    assert log.idle
    log.add(2, segments(2, "b"))
    assert log.idle
    log.complete(2)
    assert not log.idle


# -- commit log: after a restore ------------------------------------------------------------------------------


def test_restored_epochs_go_out_one_by_one_as_they_are_released():
    log = CommitLog(0, {0: [*segments(4, "a"), *segments(5, "b")], 2: segments(5, "c")})
    assert log.restored_epochs() == [4, 5]
    assert log.next_commit() is None
    log.release_restored(4)
    assert commit(log) == CommitOrder(0, 4, tuple(segments(4, "a")))
    assert log.restored_done(4)
    assert not log.restored_done(5)
    assert log.next_commit() is None
    log.release_restored(5)
    log.release_restored(4)  # a repetition takes nothing back
    assert commit(log) == CommitOrder(0, 5, tuple(segments(5, "b")))
    assert not log.restored_done(5)
    assert commit(log) == CommitOrder(2, 5, tuple(segments(5, "c")))
    assert log.restored_done(5)
    assert log.restored_epochs() == []


def test_a_subtask_that_has_nothing_of_an_epoch_is_done_with_it_at_once():
    log = CommitLog(0, {0: segments(5, "b")})
    assert log.restored_done(4)
    assert not log.restored_done(5)


def test_no_new_epoch_is_committed_before_it_is_released_even_when_nothing_was_restored_here():
    log = CommitLog(0, {})
    log.add(7, segments(7, "new"))
    log.complete(7)
    assert log.next_commit() is None
    assert log.waiting == 1
    log.release_new()
    assert commit(log).checkpoint_id == 7


def test_new_epochs_can_not_be_released_while_restored_ones_are_left():
    log = CommitLog(0, {2: segments(5, "b")})
    with pytest.raises(ValueError, match=r"\[5\]"):
        log.release_new()


def test_restored_committables_out_of_order_are_refused():
    with pytest.raises(ValueError, match="in the order"):
        CommitLog(0, {0: [*segments(5, "b"), *segments(4, "a")]})
