"""Failures in a row, rule by rule."""

from __future__ import annotations

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator_events import FailureReason
from checkpoint.coordination.failure_manager import MIN_SPAN_SCALE, CheckpointFailureManager
from checkpoint.coordination.pending_checkpoint import PendingCheckpoint


def pending(held_up: bool = False) -> PendingCheckpoint:
    return PendingCheckpoint(7, CheckpointKind.CHECKPOINT, 10.0, 60.0, (0, 1), {}, held_up)


def test_the_job_fails_once_more_have_failed_in_a_row_than_may() -> None:
    failures = CheckpointFailureManager(tolerable=1)
    assert failures.failed(pending(), FailureReason.DECLINED, "no") is None
    failures.completed()
    assert failures.failed(pending(), FailureReason.FINALISE, "no") is None
    why = failures.failed(pending(), FailureReason.ASYNC, "disk full")
    assert why == "checkpoint 7 failed (async): disk full. 2 failed in a row, tolerable_failures is 1"


def test_one_that_an_outage_held_up_does_not_count_but_shortens_spans() -> None:
    failures = CheckpointFailureManager(tolerable=0)
    assert failures.failed(pending(held_up=True), FailureReason.EXPIRED, "late") is None
    assert (failures.in_a_row, failures.span_scale) == (0, 0.5)
    acknowledged = pending(held_up=True)
    for subtask in (0, 1):
        acknowledged.acknowledged(subtask)
    assert failures.failed(acknowledged, FailureReason.EXPIRED, "_metadata not written") is not None


def test_expiries_halve_spans_down_to_a_bound_and_completions_double_them() -> None:
    failures = CheckpointFailureManager(tolerable=100)
    for _ in range(30):
        failures.failed(pending(), FailureReason.EXPIRED, "late")
    assert failures.span_scale == MIN_SPAN_SCALE
    failures.failed(pending(), FailureReason.DECLINED, "no")
    assert failures.span_scale == MIN_SPAN_SCALE
    failures.completed()
    assert failures.span_scale == 2 * MIN_SPAN_SCALE
