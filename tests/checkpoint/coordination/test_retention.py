"""Which completed checkpoints are kept, and how long a deletion is waited for."""

from __future__ import annotations

from checkpoint.coordination.coordinator_events import DeleteCheckpoint
from checkpoint.coordination.retention import Retention


def test_the_newest_are_kept_and_each_older_one_is_deleted() -> None:
    retention = Retention(2, 10.0, [3])
    assert retention.add(4, 0.0) == []
    assert retention.add(5, 0.0) == [DeleteCheckpoint(3)]
    assert retention.add(7, 1.0) == [DeleteCheckpoint(4)]
    assert retention.kept == (5, 7)
    assert retention.deleting == (3, 4)


def test_more_that_were_there_at_the_start_go_with_the_first_one_that_completes() -> None:
    retention = Retention(1, 10.0, [1, 2, 3])
    assert retention.kept == (1, 2, 3)
    assert retention.add(4, 0.0) == [DeleteCheckpoint(1), DeleteCheckpoint(2), DeleteCheckpoint(3)]
    assert retention.kept == (4,)


def test_a_deletion_ends_when_it_is_reported_or_has_taken_too_long() -> None:
    retention = Retention(1, 10.0, [])
    assert retention.next_deadline is None
    retention.delete(1, 0.0)
    retention.delete(2, 3.0)
    assert retention.next_deadline == 10.0
    retention.give_up(9.9)
    assert retention.deleting == (1, 2)
    retention.give_up(10.0)
    assert (retention.deleting, retention.next_deadline) == ((2,), 13.0)
    retention.deleted(2)
    retention.deleted(7)
    assert (retention.deleting, retention.next_deadline) == ((), None)
