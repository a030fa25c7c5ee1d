"""One checkpoint that is triggered and not resolved."""

from __future__ import annotations

import pytest

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator_events import FinaliseCheckpoint
from checkpoint.coordination.pending_checkpoint import PendingCheckpoint


def pending(kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> PendingCheckpoint:
    return PendingCheckpoint(3, kind, 10.0, 60.0, (0, 2), {0: frozenset({0, 2})}, held_up=False)


def test_it_is_finalised_with_the_last_acknowledgement_and_repetitions_change_nothing() -> None:
    one = pending()
    assert one.acknowledged(2) is None
    assert one.missing == (0,)
    assert one.acknowledged(2) is None
    assert one.missing == (0,)
    assert one.acknowledged(0) == FinaliseCheckpoint(3, CheckpointKind.CHECKPOINT)
    assert one.acknowledged(0) is None


def test_only_its_subtasks_have_to_acknowledge() -> None:
    assert pending().acknowledges(2)
    assert not pending().acknowledges(1)


def test_it_expires_at_its_timeout_and_says_what_was_not_done() -> None:
    one = pending()
    assert one.expiry(69.9) is None
    assert one.expiry(70.0) == "not acknowledged by every subtask 60 s after the trigger"
    for subtask in (0, 2):
        one.acknowledged(subtask)
    assert one.expiry(70.0) == "_metadata not written 60 s after the trigger"


def test_metadata_that_was_never_to_be_written_is_an_error_that_names_who_is_missing() -> None:
    one = pending()
    one.acknowledged(0)
    with pytest.raises(ValueError, match=r"checkpoint 3 is reported as finalised: subtasks \{2\} are missing"):
        one.require_acknowledged("is reported as finalised")
    one.acknowledged(2)
    one.require_acknowledged("is reported as finalised")


def test_of_a_savepoints_barrier_no_source_is_told() -> None:
    for kind, told in ((CheckpointKind.CHECKPOINT, True), (CheckpointKind.SAVEPOINT, False)):
        one = pending(kind)
        assert one.snapshot_taken(0, 5, False, 11.0) == []
        assert bool(one.snapshot_taken(2, None, False, 12.0)) is told
