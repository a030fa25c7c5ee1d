"""The checkpoint coordinator, rule by rule, on a manual clock. Times are seconds."""

from __future__ import annotations

from typing import Any

import pytest
from option_values import checkpoint_config

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator import CheckpointCoordinator
from checkpoint.coordination.coordinator_events import (
    Acknowledged,
    Action,
    AllInputEnded,
    CheckpointAsked,
    CheckpointRequested,
    Declined,
    DeleteCheckpoint,
    DeletionDone,
    DiscardAcknowledgement,
    EndInput,
    FailJob,
    FailureReason,
    FinaliseCheckpoint,
    Finalised,
    FinaliseFailed,
    IdSeen,
    JobEnding,
    NotifyAborted,
    NotifyComplete,
    OutputBegan,
    RejectRequest,
    StopRequested,
    SubtasksRunning,
    Tick,
    TriggerCheckpoint,
    WaitsOutside,
)
from checkpoint.coordination.failure_manager import MIN_SPAN_SCALE
from checkpoint.coordination.pending_checkpoint import CheckpointInProgress
from checkpoint.coordination.trigger_schedule import FIRST_OUTPUT_PAUSE, RETRY_PAUSE

CHECKPOINT, SAVEPOINT, FINAL = CheckpointKind.CHECKPOINT, CheckpointKind.SAVEPOINT, CheckpointKind.FINAL
LENIENT = 1000
"""Tolerable failures where a test is about something else."""


def coordinator(
    *, subtasks: int = 2, first_id: int = 1, retained_ids: tuple[int, ...] = (), running: bool = True, **options: Any
) -> CheckpointCoordinator:
    """One with an interval of 10 s and a timeout of 100 s, whose subtasks run since 0."""
    options = {"interval": 10.0, "timeout": 100.0} | options
    c = CheckpointCoordinator(checkpoint_config(**options), subtasks, first_id, retained_ids)
    if running:
        c.handle(SubtasksRunning(), 0.0)
    return c


def acknowledge(c: CheckpointCoordinator, checkpoint_id: int, now: float, subtasks: int = 2) -> list[Action]:
    return [action for subtask in range(subtasks) for action in c.handle(Acknowledged(checkpoint_id, subtask), now)]


def complete(c: CheckpointCoordinator, checkpoint_id: int, now: float, subtasks: int = 2) -> list[Action]:
    """All acknowledge, `_metadata` is written: what follows from that."""
    assert FinaliseCheckpoint(checkpoint_id, _kind(c, checkpoint_id)) in acknowledge(c, checkpoint_id, now, subtasks)
    return c.handle(Finalised(checkpoint_id), now)


def decline(c: CheckpointCoordinator, checkpoint_id: int, now: float) -> list[Action]:
    return c.handle(Declined(checkpoint_id, 1, "no"), now)


def request(c: CheckpointCoordinator, kind: CheckpointKind, token: str, now: float) -> list[Action]:
    return c.handle(CheckpointRequested(kind, token), now)


def tick(c: CheckpointCoordinator, now: float) -> list[Action]:
    return c.handle(Tick(), now)


def in_progress(c: CheckpointCoordinator) -> list[int]:
    return [p.checkpoint_id for p in c.statistics().in_progress]


def trigger(checkpoint_id: int, kind: CheckpointKind = CHECKPOINT, *tokens: str) -> TriggerCheckpoint:
    return TriggerCheckpoint(checkpoint_id, kind, tokens)


def of(kind: type, actions: list[Action]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def _kind(c: CheckpointCoordinator, checkpoint_id: int) -> CheckpointKind:
    return next(p.kind for p in c.statistics().in_progress if p.checkpoint_id == checkpoint_id)


# -- the way of a checkpoint ----------------------------------------------------------------------------------


def test_a_checkpoint_is_triggered_acknowledged_finalised_and_notified():
    c = coordinator()
    assert tick(c, 10.0) == [trigger(1)]
    assert c.handle(Acknowledged(1, 0), 10.1) == []
    assert c.handle(Acknowledged(1, 1), 10.2) == [FinaliseCheckpoint(1, CHECKPOINT)]
    assert c.handle(Finalised(1), 10.3) == [NotifyComplete(1, CHECKPOINT)]
    assert c.statistics().in_progress == ()
    assert c.statistics().retained == (1,)


def test_nothing_is_triggered_before_every_subtask_runs():
    c = coordinator(running=False)
    assert tick(c, 50.0) == []
    assert c.handle(CheckpointAsked(0), 51.0) == []
    assert request(c, SAVEPOINT, "s", 52.0) == []
    assert c.next_deadline(52.0) is None
    assert "not every subtask runs" in str(c.heartbeat(52.0).held_back)
    assert c.handle(SubtasksRunning(), 60.0) == [trigger(1, SAVEPOINT, "s"), trigger(2)]


def test_the_first_checkpoint_is_taken_as_soon_as_there_is_output_and_then_the_interval_counts():
    c = coordinator()
    assert c.handle(OutputBegan(), 2.0) == []
    first = 2.0 + FIRST_OUTPUT_PAUSE
    assert c.next_deadline(2.0) == first
    assert tick(c, first) == [trigger(1)]
    complete(c, 1, first + 0.1)
    assert c.handle(OutputBegan(), first + 0.2) == [], "another sink has its first record"
    assert c.next_deadline(first + 0.2) == first + 10.0
    assert tick(c, first + 9.9) == []
    assert tick(c, first + 10.0) == [trigger(2)]


def test_output_before_every_subtask_runs_has_the_first_checkpoint_taken_once_they_do():
    c = coordinator(running=False)
    c.handle(OutputBegan(), 2.0)
    assert c.next_deadline(2.0) is None
    assert c.handle(SubtasksRunning(), 9.0) == [trigger(1)]
    complete(c, 1, 9.5)
    assert c.next_deadline(9.5) == 19.0


def test_output_that_begins_behind_the_first_barrier_waits_for_the_interval():
    c = coordinator()
    tick(c, 10.0)
    complete(c, 1, 10.1)
    c.handle(OutputBegan(), 11.0)
    assert c.next_deadline(11.0) == 20.0


def test_output_never_puts_the_first_checkpoint_off():
    c = coordinator(interval=0.05)
    c.handle(OutputBegan(), 0.0)
    assert tick(c, 0.05) == [trigger(1)]


def test_the_first_checkpoint_waits_for_the_interval_where_the_options_say_so():
    c = coordinator(first="interval")
    c.handle(OutputBegan(), 1.0)
    assert c.next_deadline(1.0) == 10.0


def test_without_an_interval_output_triggers_nothing():
    c = coordinator(interval=None)
    c.handle(OutputBegan(), 1.0)
    assert c.next_deadline(1.0) is None


def test_a_first_checkpoint_that_fails_is_followed_by_one_an_interval_later():
    c = coordinator(min_pause=3.0, tolerable_failures=LENIENT)
    c.handle(OutputBegan(), 1.0)
    first = 1.0 + FIRST_OUTPUT_PAUSE
    assert tick(c, first) == [trigger(1)]
    decline(c, 1, first + 0.5)
    c.handle(OutputBegan(), first + 0.6)
    assert c.next_deadline(first + 0.6) == first + 10.0


def test_the_first_checkpoint_comes_one_interval_after_every_subtask_runs():
    c = coordinator(running=False)
    c.handle(SubtasksRunning(), 5.0)
    c.handle(SubtasksRunning(), 9.0)
    assert c.next_deadline(5.0) == 15.0
    assert tick(c, 14.9) == []
    assert tick(c, 15.0) == [trigger(1)]


def test_ids_go_on_from_the_first_and_skip_those_seen_elsewhere():
    c = coordinator(first_id=8, retained_ids=(5, 7), max_concurrent=5)
    assert tick(c, 10.0) == [trigger(8)]
    c.handle(IdSeen(20), 11.0)
    c.handle(IdSeen(3), 11.0)
    assert tick(c, 20.0) == [trigger(21)]


def test_a_first_id_that_repeats_a_retained_one_is_refused():
    with pytest.raises(ValueError, match="must be larger"):
        coordinator(first_id=7, retained_ids=(5, 7))


def test_a_job_without_subtasks_is_refused():
    with pytest.raises(ValueError, match="without subtasks"):
        coordinator(subtasks=0)


def test_subtasks_may_be_given_by_name():
    c = CheckpointCoordinator(checkpoint_config(interval=10.0), [3, 9], 1)
    c.handle(SubtasksRunning(), 0.0)
    tick(c, 10.0)
    c.handle(Acknowledged(1, 9), 10.0)
    assert c.handle(Acknowledged(1, 3), 10.0) == [FinaliseCheckpoint(1, CHECKPOINT)]


def test_idle_and_finished_subtasks_have_to_acknowledge_like_all_others():
    c = coordinator(subtasks=5)
    tick(c, 10.0)
    for subtask in (0, 1, 2, 4):
        assert c.handle(Acknowledged(1, subtask), 11.0) == []
    assert c.statistics().in_progress == (CheckpointInProgress(1, CHECKPOINT, 10.0, (3,)),)
    assert c.handle(Acknowledged(1, 3), 12.0) == [FinaliseCheckpoint(1, CHECKPOINT)]


# -- interval, max concurrent, min pause ----------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 5])
def test_never_more_than_max_concurrent_are_in_progress(most: int):
    c = coordinator(max_concurrent=most, timeout=10_000.0)
    for k in range(1, most + 1):
        assert tick(c, 10.0 * k) == [trigger(k)]
    assert tick(c, 10.0 * (most + 1)) == []
    assert c.next_deadline(10.0 * (most + 1)) == 10_010.0  # only the timeout of the first
    assert trigger(most + 1) in complete(c, most, 10.0 * (most + 1) + 3)


def test_a_periodic_checkpoint_that_was_put_off_is_triggered_as_soon_as_one_resolves_and_only_once():
    c = coordinator()
    tick(c, 10.0)
    for late in (20.0, 30.0, 40.0, 50.0):
        assert tick(c, late) == []
    assert complete(c, 1, 51.0) == [NotifyComplete(1, CHECKPOINT), trigger(2)]
    complete(c, 2, 52.0)
    assert tick(c, 60.9) == []
    assert tick(c, 61.0) == [trigger(3)]  # one interval after the trigger that was put off


def test_a_coordinator_that_stood_still_triggers_once_and_not_for_every_interval_missed():
    c = coordinator(max_concurrent=5)
    assert tick(c, 95.0) == [trigger(1)]
    assert tick(c, 96.0) == []
    assert c.next_deadline(96.0) == 105.0


def test_min_pause_counts_from_the_last_success():
    c = coordinator(min_pause=8.0)
    tick(c, 10.0)
    complete(c, 1, 15.0)
    assert c.next_deadline(15.0) == 23.0
    assert tick(c, 22.9) == []
    assert tick(c, 23.0) == [trigger(2)]


def test_min_pause_counts_from_the_last_failure():
    c = coordinator(min_pause=8.0, tolerable_failures=LENIENT)
    tick(c, 10.0)
    assert of(NotifyAborted, decline(c, 1, 18.0))
    assert tick(c, 25.9) == []
    assert tick(c, 26.0) == [trigger(2)]
    assert of(TriggerCheckpoint, tick(c, 126.0)) == []  # expired just now
    assert tick(c, 134.0) == [trigger(3)]


def test_min_pause_counts_from_the_last_of_several_concurrent_ones():
    c = coordinator(min_pause=8.0, max_concurrent=2, tolerable_failures=LENIENT)
    tick(c, 10.0)
    tick(c, 20.0)
    decline(c, 2, 25.0)
    assert tick(c, 32.0) == []
    complete(c, 1, 32.5)
    assert tick(c, 40.0) == []
    assert tick(c, 40.5) == [trigger(3)]


def test_a_min_pause_shorter_than_what_is_left_of_the_interval_changes_nothing():
    c = coordinator(min_pause=3.0)
    tick(c, 10.0)
    complete(c, 1, 11.0)
    assert tick(c, 19.9) == []
    assert tick(c, 20.0) == [trigger(2)]


def test_without_an_interval_only_what_is_requested_asked_for_or_final_is_taken():
    c = coordinator(interval=None)
    assert tick(c, 10_000.0) == []
    assert c.next_deadline(10_000.0) is None
    assert c.heartbeat(10_000.0).held_back is None
    assert request(c, CHECKPOINT, "r", 10_001.0) == [trigger(1, CHECKPOINT, "r")]
    complete(c, 1, 10_002.0)
    assert c.handle(CheckpointAsked(1), 10_003.0) == [trigger(2)]
    complete(c, 2, 10_004.0)
    assert c.handle(AllInputEnded(), 10_005.0) == [trigger(3, FINAL)]


# -- failures -------------------------------------------------------------------------------------------------


def test_a_checkpoint_expires_and_says_who_had_not_acknowledged():
    c = coordinator(subtasks=3, tolerable_failures=LENIENT)
    tick(c, 10.0)
    c.handle(Acknowledged(1, 1), 11.0)
    assert c.next_deadline(11.0) == 110.0
    assert of(NotifyAborted, tick(c, 109.9)) == []
    (aborted,) = of(NotifyAborted, tick(c, 110.0))
    assert (aborted.checkpoint_id, aborted.reason, aborted.missing) == (1, FailureReason.EXPIRED, (0, 2))
    assert "100 s after the trigger" in aborted.message


@pytest.mark.parametrize(
    ("waits", "counts"),
    [
        ([], True),
        ([(5, True)], False),  # before the trigger and ever since
        ([(50, True)], False),
        ([(50, True), (60, False)], False),  # what has piled up meanwhile takes its time
        ([(2, True), (5, False)], True),
        ([(50, False)], True),
    ],
)
def test_checkpoints_that_expire_while_a_subtask_waits_for_brokers_are_no_failures(
    waits: list[tuple[float, bool]], counts: bool
):
    c = coordinator()
    failed: list[Action] = []
    for time in range(131):  # one checkpoint, triggered at 10
        for at, waiting in waits:
            if at == time:
                failed += of(FailJob, c.handle(WaitsOutside(1, waiting), float(time)))
        failed += of(FailJob, tick(c, float(time)))
    assert bool(failed) == counts
    assert c.statistics().consecutive_failures == int(counts)


def test_metadata_that_is_not_written_counts_whatever_subtasks_wait_for():
    c = coordinator()
    c.handle(WaitsOutside(1, True), 5.0)
    tick(c, 10.0)
    acknowledge(c, 1, 11.0)
    assert of(FailJob, tick(c, 110.0))


def test_an_acknowledgement_at_the_timeout_is_late():
    c = coordinator(tolerable_failures=LENIENT)
    tick(c, 10.0)
    c.handle(Acknowledged(1, 0), 11.0)
    actions = c.handle(Acknowledged(1, 1), 110.0)
    assert of(FinaliseCheckpoint, actions) == []
    assert DiscardAcknowledgement(1, 1) in actions


def test_a_durable_checkpoint_completes_even_if_the_report_comes_after_the_timeout():
    c = coordinator(max_concurrent=2)
    tick(c, 10.0)
    tick(c, 20.0)
    acknowledge(c, 2, 21.0)
    actions = c.handle(Finalised(2), 500.0)
    assert NotifyComplete(2, CHECKPOINT) in actions
    assert [a.reason for a in of(NotifyAborted, actions)] == [FailureReason.SUBSUMED]
    assert of(FailJob, actions) == []


def test_a_decline_gives_the_checkpoint_up_at_once():
    c = coordinator(tolerable_failures=LENIENT)
    tick(c, 10.0)
    c.handle(Acknowledged(1, 0), 11.0)
    assert decline(c, 1, 12.0) == [NotifyAborted(1, CHECKPOINT, FailureReason.DECLINED, "subtask 1: no", (1,))]
    assert in_progress(c) == []


@pytest.mark.parametrize("reason", [FailureReason.DECLINED, FailureReason.ASYNC])
def test_declined_and_async_failures_fail_the_job_when_none_is_tolerated(reason: FailureReason):
    c = coordinator()
    tick(c, 10.0)
    (fail,) = of(FailJob, c.handle(Declined(1, 0, "disk is full", reason), 11.0))
    assert "disk is full" in fail.message
    assert "tolerable_failures is 0" in fail.message


def test_an_expiry_fails_the_job_when_none_is_tolerated():
    c = coordinator()
    tick(c, 10.0)
    assert of(FailJob, tick(c, 110.0))


def test_a_storage_that_fails_at_metadata_fails_the_checkpoint_and_counts():
    c = coordinator()
    tick(c, 10.0)
    acknowledge(c, 1, 11.0)
    actions = c.handle(FinaliseFailed(1, "no space left"), 12.0)
    assert of(NotifyAborted, actions) == [NotifyAborted(1, CHECKPOINT, FailureReason.FINALISE, "no space left", ())]
    assert of(FailJob, actions)
    assert c.statistics().retained == ()


def test_failures_are_tolerated_in_a_row_and_a_success_resets_the_count():
    c = coordinator(tolerable_failures=2)
    for k in (1, 2):
        tick(c, 10.0 * k)
        assert of(FailJob, decline(c, k, 10.0 * k + 1)) == []
    tick(c, 30.0)
    complete(c, 3, 31.0)
    for k in (4, 5):
        tick(c, 10.0 * k)
        assert of(FailJob, decline(c, k, 10.0 * k + 1)) == []
    tick(c, 60.0)
    assert of(FailJob, decline(c, 6, 61.0))


def test_a_failed_checkpoint_counts_once_however_many_subtasks_decline():
    c = coordinator(subtasks=3, tolerable_failures=1)
    tick(c, 10.0)
    for subtask in range(3):
        c.handle(Declined(1, subtask, "no"), 11.0)
    c.handle(FinaliseFailed(1, "late"), 11.0)
    tick(c, 110.0)
    assert c.statistics().consecutive_failures == 1


def test_a_job_that_fails_is_failed_once_and_triggers_no_more():
    c = coordinator(max_concurrent=3)
    for k in (1, 2):
        tick(c, 10.0 * k)
    request(c, SAVEPOINT, "runs", 25.0)
    request(c, SAVEPOINT, "waits", 25.0)
    actions = decline(c, 1, 25.5) + decline(c, 2, 26.0) + tick(c, 40.0)
    assert len(of(FailJob, actions)) == 1
    assert of(TriggerCheckpoint, actions) == []
    assert [r.token for r in of(RejectRequest, actions)] == ["waits"]
    assert "too many checkpoints have failed" in str(c.heartbeat(40.0).held_back)


def test_subsumed_checkpoints_do_not_count_as_failures():
    c = coordinator(max_concurrent=3)
    for k in (1, 2, 3):
        tick(c, 10.0 * k)
    assert of(FailJob, complete(c, 3, 31.0)) == []
    assert c.statistics().consecutive_failures == 0


# -- acknowledgements out of turn -----------------------------------------------------------------------------


def test_a_repeated_acknowledgement_is_ignored_and_its_files_stay():
    c = coordinator()
    tick(c, 10.0)
    c.handle(Acknowledged(1, 0), 11.0)
    assert c.handle(Acknowledged(1, 0), 11.1) == []
    assert c.handle(Acknowledged(1, 1), 11.2) == [FinaliseCheckpoint(1, CHECKPOINT)]
    assert c.handle(Acknowledged(1, 1), 11.3) == []
    assert c.handle(Finalised(1), 11.4) == [NotifyComplete(1, CHECKPOINT)]


@pytest.mark.parametrize("kind", [CHECKPOINT, SAVEPOINT])
def test_an_acknowledgement_repeated_after_completion_deletes_nothing(kind: CheckpointKind):
    c = coordinator()
    request(c, kind, "r", 1.0)
    complete(c, 1, 2.0)
    assert c.handle(Acknowledged(1, 0), 3.0) == []


def test_a_late_acknowledgement_has_its_files_deleted():
    c = coordinator(tolerable_failures=LENIENT)
    tick(c, 10.0)
    decline(c, 1, 11.0)
    assert c.handle(Acknowledged(1, 0), 12.0) == [DiscardAcknowledgement(1, 0)]


def test_a_late_acknowledgement_of_a_subsumed_checkpoint_has_its_files_deleted():
    c = coordinator(max_concurrent=2)
    tick(c, 10.0)
    tick(c, 20.0)
    complete(c, 2, 21.0)
    assert c.handle(Acknowledged(1, 0), 22.0) == [DiscardAcknowledgement(1, 0)]


def test_unknown_acknowledgements_have_their_files_deleted():
    c = coordinator()
    tick(c, 10.0)
    assert c.handle(Acknowledged(77, 0), 11.0) == [DiscardAcknowledgement(77, 0)]
    assert c.handle(Acknowledged(1, 77), 11.0) == [DiscardAcknowledgement(1, 77)]
    assert acknowledge(c, 1, 12.0) == [FinaliseCheckpoint(1, CHECKPOINT)]


def test_a_late_decline_changes_nothing():
    c = coordinator()
    tick(c, 10.0)
    complete(c, 1, 11.0)
    assert decline(c, 1, 12.0) == []
    assert decline(c, 99, 12.0) == []


def test_metadata_reported_for_a_checkpoint_that_is_not_acknowledged_is_an_error():
    c = coordinator()
    tick(c, 10.0)
    with pytest.raises(ValueError, match="missing"):
        c.handle(Finalised(1), 11.0)
    with pytest.raises(ValueError, match="missing"):
        c.handle(FinaliseFailed(1, "?"), 11.0)


# -- completion, subsumption, retention -----------------------------------------------------------------------


def test_a_completion_subsumes_older_ordinary_checkpoints_but_no_newer_one_and_no_savepoint():
    c = coordinator(max_concurrent=5)
    tick(c, 10.0)
    request(c, SAVEPOINT, "s", 11.0)
    tick(c, 20.0)
    tick(c, 30.0)
    c.handle(Acknowledged(1, 0), 31.0)
    assert complete(c, 3, 32.0) == [
        NotifyAborted(1, CHECKPOINT, FailureReason.SUBSUMED, "checkpoint 3 is complete", (1,)),
        NotifyComplete(3, CHECKPOINT),
    ]
    assert in_progress(c) == [2, 4]
    assert NotifyComplete(2, SAVEPOINT) in complete(c, 2, 33.0)


def test_two_that_are_finalised_in_order_are_notified_in_order():
    c = coordinator(max_concurrent=2, retained=2)
    tick(c, 10.0)
    tick(c, 20.0)
    acknowledge(c, 1, 21.0)
    acknowledge(c, 2, 21.0)
    actions = c.handle(Finalised(1), 22.0) + c.handle(Finalised(2), 23.0)
    assert actions == [NotifyComplete(1, CHECKPOINT), NotifyComplete(2, CHECKPOINT)]


@pytest.mark.parametrize("report", [Finalised(1), FinaliseFailed(1, "fsync failed after the rename")])
def test_of_two_being_finalised_the_older_is_subsumed_and_deleted_once_its_writer_is_done(report: Any):
    c = coordinator(max_concurrent=2)
    tick(c, 10.0)
    tick(c, 20.0)
    acknowledge(c, 1, 21.0)
    acknowledge(c, 2, 21.0)
    first = c.handle(Finalised(2), 22.0)
    assert [(a.checkpoint_id, a.reason, a.missing) for a in of(NotifyAborted, first)] == [
        (1, FailureReason.SUBSUMED, ())
    ]
    assert of(DeleteCheckpoint, first) == []  # its writer would write into what is being deleted
    assert c.handle(Acknowledged(1, 0), 22.5) == []
    assert c.handle(report, 23.0) == [DeleteCheckpoint(1)]
    assert c.handle(report, 24.0) == []
    assert c.statistics().retained == (2,)


def test_a_checkpoint_whose_metadata_hangs_expires_and_is_deleted_if_it_turns_up_later():
    c = coordinator(tolerable_failures=LENIENT)
    tick(c, 10.0)
    acknowledge(c, 1, 11.0)
    actions = tick(c, 110.0)
    assert [(a.reason, a.missing) for a in of(NotifyAborted, actions)] == [(FailureReason.EXPIRED, ())]
    assert "_metadata" in of(NotifyAborted, actions)[0].message
    assert trigger(2) in actions
    assert c.handle(Finalised(1), 120.0) == [DeleteCheckpoint(1)]
    assert NotifyComplete(2, CHECKPOINT) in complete(c, 2, 121.0)


def test_completions_beyond_the_retained_number_delete_the_oldest():
    c = coordinator(first_id=6, retained_ids=(3, 5), retained=2)
    tick(c, 10.0)
    assert complete(c, 6, 11.0) == [NotifyComplete(6, CHECKPOINT), DeleteCheckpoint(3)]
    assert c.statistics().retained == (5, 6)
    tick(c, 20.0)
    assert complete(c, 7, 21.0) == [NotifyComplete(7, CHECKPOINT), DeleteCheckpoint(5)]


def test_more_restored_checkpoints_than_are_retained_are_deleted_with_the_first_completion():
    c = coordinator(first_id=9, retained_ids=(1, 2, 3), retained=1)
    tick(c, 10.0)
    assert of(DeleteCheckpoint, complete(c, 9, 11.0)) == [DeleteCheckpoint(1), DeleteCheckpoint(2), DeleteCheckpoint(3)]


def test_retention_neither_counts_nor_deletes_savepoints():
    c = coordinator(retained=1)
    tick(c, 10.0)
    complete(c, 1, 11.0)
    request(c, SAVEPOINT, "s", 12.0)
    assert complete(c, 2, 13.0) == [NotifyComplete(2, SAVEPOINT)]
    assert c.statistics().retained == (1,)
    tick(c, 20.0)
    assert of(DeleteCheckpoint, complete(c, 3, 21.0)) == [DeleteCheckpoint(1)]


# -- the deleter ----------------------------------------------------------------------------------------------


def with_backlog(most: int = 1, **options: Any) -> CheckpointCoordinator:
    """One with one deletion more than max concurrent, at 31 + 10 × (most − 1)."""
    c = coordinator(max_concurrent=most, retained=1, **options)
    for k in range(1, most + 3):
        tick(c, 10.0 * k)
        complete(c, k, 10.0 * k + 1)
    assert len(c.statistics().deleting) == most + 1
    return c


@pytest.mark.parametrize("most", [1, 2])
def test_a_slow_deleter_holds_triggers_back_once_more_than_max_concurrent_wait(most: int):
    c = with_backlog(most)
    late = 10.0 * (most + 3)
    assert tick(c, late) == []
    assert f"{most + 1} old checkpoints wait to be deleted" in str(c.heartbeat(late).held_back)
    assert request(c, SAVEPOINT, "s", late + 1) == []
    assert c.handle(DeletionDone(1), late + 2) == [trigger(most + 3, SAVEPOINT, "s"), trigger(most + 4)]


def test_as_many_deletions_as_max_concurrent_hold_nothing_back():
    c = coordinator(max_concurrent=1, retained=1)
    for k in (1, 2):
        tick(c, 10.0 * k)
        complete(c, k, 10.0 * k + 1)
    assert c.statistics().deleting == (1,)
    assert tick(c, 30.0) == [trigger(3)]


def test_a_hung_deletion_is_given_up_after_the_timeout():
    c = with_backlog()  # 1 since 21, 2 since 31
    assert tick(c, 120.9) == []
    assert c.next_deadline(120.9) == 121.0
    assert tick(c, 121.0) == [trigger(4)]
    assert c.statistics().deleting == (2,)
    assert c.handle(DeletionDone(1), 122.0) == []


# -- asks of sources ------------------------------------------------------------------------------------------


def test_an_ask_triggers_before_the_interval_is_over_and_restarts_it():
    c = coordinator()
    assert c.handle(CheckpointAsked(0), 4.0) == [trigger(1)]
    complete(c, 1, 5.0)
    assert c.next_deadline(5.0) == 14.0


def test_a_stale_ask_is_ignored():
    c = coordinator(max_concurrent=2)
    tick(c, 10.0)
    assert c.handle(CheckpointAsked(0), 11.0) == []
    complete(c, 1, 12.0)
    assert c.handle(CheckpointAsked(0), 13.0) == []
    assert c.handle(CheckpointAsked(1), 14.0) == [trigger(2)]


def test_an_ask_after_a_savepoints_barrier_is_not_stale():
    c = coordinator()
    tick(c, 10.0)
    complete(c, 1, 11.0)
    request(c, SAVEPOINT, "s", 12.0)
    assert c.handle(CheckpointAsked(1), 13.0) == [trigger(3)]  # of a source that has not taken the savepoint's yet
    complete(c, 3, 14.0)
    assert c.handle(CheckpointAsked(3), 15.0) == [trigger(4)]


def test_an_ask_waits_for_max_concurrent_and_is_answered_as_soon_as_one_resolves():
    c = coordinator()
    tick(c, 10.0)
    assert c.handle(CheckpointAsked(1), 11.0) == []
    assert "maximum of 1 (1)" in str(c.heartbeat(11.0).held_back)
    assert trigger(2) in complete(c, 1, 12.0)


def test_an_ask_waits_for_min_pause():
    c = coordinator(min_pause=3.0)
    tick(c, 10.0)
    complete(c, 1, 11.0)
    assert c.handle(CheckpointAsked(1), 12.0) == []
    assert c.heartbeat(12.0).held_back == "min pause: 2.0 s left"
    assert c.next_deadline(12.0) == 14.0
    assert tick(c, 14.0) == [trigger(2)]


def test_after_a_failure_asks_wait_for_the_interval():
    c = coordinator(tolerable_failures=LENIENT)
    tick(c, 10.0)
    c.handle(CheckpointAsked(1), 11.0)  # before the failure
    assert of(TriggerCheckpoint, decline(c, 1, 12.0)) == []
    assert c.handle(CheckpointAsked(1), 13.0) == []  # and after it
    assert "waits for the interval: 7.0 s left" in str(c.heartbeat(13.0).held_back)
    assert tick(c, 20.0) == [trigger(2)]
    assert c.handle(CheckpointAsked(2), 21.0) == []
    complete(c, 2, 22.0)
    assert c.handle(CheckpointAsked(2), 22.5) == []  # stale: 3 was triggered by the ask at 21
    assert in_progress(c) == [3]


def test_asks_after_a_failure_that_took_longer_than_the_interval_are_answered_at_once():
    c = coordinator(tolerable_failures=LENIENT)
    tick(c, 10.0)
    c.handle(CheckpointAsked(1), 11.0)
    assert trigger(2) in decline(c, 1, 25.0)


def test_without_an_interval_an_ask_after_a_failure_waits_for_a_pause():
    c = coordinator(interval=None, tolerable_failures=LENIENT)
    c.handle(CheckpointAsked(0), 5.0)
    decline(c, 1, 6.0)
    assert c.handle(CheckpointAsked(1), 6.1) == []
    assert c.next_deadline(6.1) == 6.0 + RETRY_PAUSE
    assert tick(c, 6.0 + RETRY_PAUSE) == [trigger(2)]


# -- requests and savepoints ----------------------------------------------------------------------------------


def test_a_requested_checkpoint_does_not_wait_for_the_interval_and_answers_all_requests_so_far():
    c = coordinator()
    tick(c, 10.0)
    request(c, CHECKPOINT, "a", 11.0)
    request(c, CHECKPOINT, "b", 12.0)
    assert trigger(2, CHECKPOINT, "a", "b") in complete(c, 1, 13.0)
    complete(c, 2, 14.0)
    assert tick(c, 22.9) == []
    assert tick(c, 23.0) == [trigger(3)]


def test_a_requested_checkpoint_waits_for_min_pause():
    c = coordinator(min_pause=5.0)
    tick(c, 10.0)
    complete(c, 1, 11.0)
    assert request(c, CHECKPOINT, "a", 12.0) == []
    assert tick(c, 16.0) == [trigger(2, CHECKPOINT, "a")]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_savepoint_is_taken_while_as_many_as_allowed_are_running(most: int):
    c = coordinator(max_concurrent=most)
    for k in range(1, most + 1):
        tick(c, 10.0 * k)
    assert request(c, SAVEPOINT, "s", 10.0 * most + 1) == [trigger(most + 1, SAVEPOINT, "s")]


def test_a_savepoint_in_progress_takes_no_place_of_a_checkpoint():
    c = coordinator()
    request(c, SAVEPOINT, "s", 9.0)
    assert tick(c, 10.0) == [trigger(2)]


def test_a_savepoint_goes_first():
    c = coordinator()
    tick(c, 10.0)
    complete(c, 1, 11.0)
    assert request(c, SAVEPOINT, "s", 20.0) == [trigger(2, SAVEPOINT, "s"), trigger(3)]


def test_savepoints_are_taken_one_at_a_time_in_the_order_of_their_requests():
    c = coordinator(interval=None)
    assert request(c, SAVEPOINT, "a", 1.0) == [trigger(1, SAVEPOINT, "a")]
    assert request(c, SAVEPOINT, "b", 2.0) == []
    assert request(c, SAVEPOINT, "c", 3.0) == []
    assert complete(c, 1, 4.0) == [NotifyComplete(1, SAVEPOINT), trigger(2, SAVEPOINT, "b")]
    assert trigger(3, SAVEPOINT, "c") in decline(c, 2, 5.0)


def test_a_savepoint_does_not_wait_for_min_pause_and_does_not_restart_it():
    c = coordinator(min_pause=8.0)
    tick(c, 10.0)
    complete(c, 1, 15.0)
    assert request(c, SAVEPOINT, "s", 16.0) == [trigger(2, SAVEPOINT, "s")]
    complete(c, 2, 22.0)
    assert tick(c, 23.0) == [trigger(3)]


def test_a_savepoint_does_not_restart_the_interval():
    c = coordinator()
    request(c, SAVEPOINT, "s", 9.0)
    complete(c, 1, 9.5)
    assert tick(c, 10.0) == [trigger(2)]


def test_a_savepoint_that_completes_subsumes_nothing():
    c = coordinator(max_concurrent=2)
    tick(c, 10.0)
    request(c, SAVEPOINT, "s", 11.0)
    assert complete(c, 2, 12.0) == [NotifyComplete(2, SAVEPOINT)]
    assert in_progress(c) == [1]


def test_a_failed_savepoint_neither_counts_against_the_job_nor_changes_spans_or_asks():
    c = coordinator()
    request(c, SAVEPOINT, "s", 1.0)
    assert decline(c, 1, 2.0) == [NotifyAborted(1, SAVEPOINT, FailureReason.DECLINED, "subtask 1: no", (0, 1))]
    request(c, SAVEPOINT, "t", 3.0)
    actions = c.handle(CheckpointAsked(0), 4.0)
    assert actions == [trigger(3)]
    complete(c, 3, 5.0)
    tick(c, 103.0)
    assert c.statistics().span_scale == 1.0
    assert c.statistics().consecutive_failures == 0


def test_a_request_for_a_final_checkpoint_is_an_error():
    with pytest.raises(ValueError, match="final"):
        request(coordinator(), FINAL, "f", 1.0)


# -- spans ----------------------------------------------------------------------------------------------------


def test_each_expiry_halves_the_span_and_each_completion_doubles_it_back():
    c = coordinator(tolerable_failures=LENIENT, retained=9)
    tick(c, 10.0)
    for k, scale in ((1, 0.5), (2, 0.25)):
        tick(c, 10.0 + 100.0 * k)
        assert c.heartbeat(10.0 + 100.0 * k).span_scale == scale
    for k, scale in ((3, 0.5), (4, 1.0), (5, 1.0)):
        complete(c, k, 210.0 + 10 * (k - 2) - 1)
        assert c.statistics().span_scale == scale
        assert tick(c, 210.0 + 10 * (k - 2)) == [trigger(k + 1)]


def test_a_decline_leaves_the_span_as_it_is():
    c = coordinator(tolerable_failures=LENIENT)
    tick(c, 10.0)
    decline(c, 1, 11.0)
    assert c.statistics().span_scale == 1.0


def test_spans_are_not_shortened_without_end():
    c = coordinator(tolerable_failures=LENIENT)
    for k in range(30):
        tick(c, 10.0 + 100.0 * k)
    assert c.statistics().span_scale == MIN_SPAN_SCALE > 0


# -- end of input and of the job ------------------------------------------------------------------------------


def test_the_final_checkpoint_waits_for_neither_interval_nor_min_pause():
    c = coordinator(min_pause=50.0)
    tick(c, 10.0)
    complete(c, 1, 11.0)
    assert c.handle(AllInputEnded(), 11.5) == [trigger(2, FINAL)]


def test_the_final_checkpoint_waits_for_max_concurrent_and_then_outranks_the_periodic_one():
    c = coordinator()
    tick(c, 10.0)
    assert c.handle(AllInputEnded(), 11.0) == []
    assert tick(c, 30.0) == []
    assert complete(c, 1, 31.0) == [NotifyComplete(1, CHECKPOINT), trigger(2, FINAL)]


def test_the_final_checkpoint_answers_requests_and_goes_before_savepoints():
    c = coordinator(running=False)
    request(c, SAVEPOINT, "s", 0.0)
    request(c, CHECKPOINT, "r", 0.0)
    c.handle(AllInputEnded(), 0.0)
    assert c.handle(SubtasksRunning(), 1.0) == [trigger(1, FINAL, "r"), trigger(2, SAVEPOINT, "s")]


def test_nothing_periodic_or_asked_for_is_triggered_after_the_end_of_input():
    c = coordinator(max_concurrent=3)
    c.handle(AllInputEnded(), 1.0)
    c.handle(AllInputEnded(), 2.0)
    assert c.handle(CheckpointAsked(1), 3.0) == []
    assert tick(c, 50.0) == []


def test_the_final_checkpoint_ends_triggering_when_it_is_complete():
    c = coordinator()
    c.handle(AllInputEnded(), 1.0)
    request(c, CHECKPOINT, "waits", 2.0)
    actions = complete(c, 1, 3.0)
    assert actions[0] == NotifyComplete(1, FINAL, last=True)
    assert [r.token for r in of(RejectRequest, actions)] == ["waits"]
    (rejected,) = request(c, SAVEPOINT, "late", 4.0)
    assert rejected == RejectRequest("late", "no savepoint is taken any more: the job's last checkpoint is complete")
    assert tick(c, 1000.0) == []
    assert c.statistics().retained == (1,)


def test_a_final_checkpoint_that_fails_within_tolerance_is_taken_again_after_a_pause():
    c = coordinator(tolerable_failures=1)
    c.handle(AllInputEnded(), 1.0)
    assert of(FailJob, decline(c, 1, 2.0)) == []
    assert c.next_deadline(2.0) == 2.0 + RETRY_PAUSE
    assert "tried again in 1.0 s" in str(c.heartbeat(2.0).held_back)
    assert tick(c, 2.0 + RETRY_PAUSE) == [trigger(2, FINAL)]
    assert of(FailJob, decline(c, 2, 4.0))
    assert tick(c, 100.0) == []


def test_the_retry_of_a_final_checkpoint_waits_for_min_pause():
    c = coordinator(tolerable_failures=1, min_pause=7.0)
    c.handle(AllInputEnded(), 1.0)
    decline(c, 1, 2.0)
    assert tick(c, 8.9) == []
    assert tick(c, 9.0) == [trigger(2, FINAL)]


def test_a_final_checkpoint_subsumes_older_ones():
    c = coordinator(max_concurrent=2)
    tick(c, 10.0)
    c.handle(AllInputEnded(), 11.0)
    assert [a.checkpoint_id for a in of(NotifyAborted, complete(c, 2, 12.0))] == [1]


def test_the_jobs_end_cancels_what_is_in_progress_and_rejects_what_waits():
    c = coordinator(max_concurrent=2)
    tick(c, 10.0)
    request(c, SAVEPOINT, "runs", 11.0)
    request(c, SAVEPOINT, "waits", 12.0)
    actions = c.handle(JobEnding(), 13.0)
    assert [(a.checkpoint_id, a.reason) for a in of(NotifyAborted, actions)] == [
        (1, FailureReason.CANCELLED),
        (2, FailureReason.CANCELLED),
    ]
    assert [r.token for r in of(RejectRequest, actions)] == ["waits"]
    assert of(FailJob, actions) == []
    assert c.handle(JobEnding(), 14.0) == []
    assert tick(c, 1000.0) == []
    assert c.next_deadline(1000.0) is None
    assert c.handle(Acknowledged(1, 0), 1001.0) == [DiscardAcknowledgement(1, 0)]


def test_metadata_that_turns_up_after_the_jobs_end_is_left_to_the_next_attempt():
    c = coordinator()
    tick(c, 10.0)
    acknowledge(c, 1, 11.0)
    (aborted,) = c.handle(JobEnding(), 12.0)
    assert (aborted.reason, aborted.missing) == (FailureReason.CANCELLED, ())
    assert c.handle(Finalised(1), 13.0) == []


# -- heartbeat ------------------------------------------------------------------------------------------------


def test_the_heartbeat_holds_all_that_is_in_progress_in_the_order_of_ids():
    c = coordinator(max_concurrent=2)
    tick(c, 10.0)
    request(c, SAVEPOINT, "s", 11.0)
    tick(c, 20.0)
    acknowledge(c, 3, 20.5)
    assert c.heartbeat(21.0).in_progress == ((1, CHECKPOINT), (2, SAVEPOINT), (3, CHECKPOINT))


def test_nothing_is_held_back_while_the_next_checkpoint_is_not_due():
    c = coordinator()
    tick(c, 10.0)
    assert c.heartbeat(15.0).held_back is None
    assert c.heartbeat(25.0).held_back == "checkpoints in progress are at their maximum of 1 (1)"


def test_min_pause_is_named_when_it_holds_a_due_checkpoint_back():
    c = coordinator(min_pause=9.0)
    tick(c, 10.0)
    complete(c, 1, 15.0)
    assert c.heartbeat(19.0).held_back is None
    assert c.heartbeat(21.5).held_back == "min pause: 2.5 s left"


def test_a_clock_that_another_thread_read_earlier_is_not_taken_back():
    c = coordinator(max_concurrent=2)
    tick(c, 10.0)
    complete(c, 1, 10.0)
    assert c.handle(CheckpointAsked(1), 9.0) == [trigger(2)]
    assert c.next_deadline(9.0) == 20.0


# -- stopping -------------------------------------------------------------------------------------------------


def stop(c: CheckpointCoordinator, kind: CheckpointKind, now: float, drain: bool = False) -> list[Action]:
    return c.handle(StopRequested(kind, "stop", drain), now)


@pytest.mark.parametrize("kind", [SAVEPOINT, FINAL])
def test_a_stop_takes_the_last_checkpoint_at_once_and_nothing_behind_it(kind: CheckpointKind):
    c = coordinator(min_pause=50.0)
    tick(c, 10.0)
    complete(c, 1, 10.0)
    assert stop(c, kind, 11.0) == [TriggerCheckpoint(2, kind, ("stop",), stop=True)]
    assert tick(c, 90.0) == []
    assert request(c, SAVEPOINT, "late", 91.0) == []
    assert c.heartbeat(91.0).held_back == "the job is stopping"
    complete_, *rest = complete(c, 2, 92.0)
    assert complete_ == NotifyComplete(2, kind, last=True)
    assert complete_.commits
    assert [r.token for r in of(RejectRequest, rest)] == ["late"]
    assert tick(c, 1000.0) == []


def test_a_savepoint_alone_commits_nothing():
    c = coordinator()
    request(c, SAVEPOINT, "s", 1.0)
    (done,) = complete(c, 1, 2.0)
    assert done == NotifyComplete(1, SAVEPOINT)
    assert not done.commits


def test_a_stop_by_checkpoint_waits_for_max_concurrent_and_one_by_savepoint_for_the_savepoint_in_progress():
    c = coordinator()
    tick(c, 10.0)
    assert stop(c, FINAL, 11.0) == []
    assert complete(c, 1, 12.0)[1:] == [TriggerCheckpoint(2, FINAL, ("stop",), stop=True)]
    c = coordinator()
    request(c, SAVEPOINT, "s", 1.0)
    assert stop(c, SAVEPOINT, 2.0) == []
    assert complete(c, 1, 3.0)[1:] == [TriggerCheckpoint(2, SAVEPOINT, ("stop",), stop=True)]


@pytest.mark.parametrize("kind", [SAVEPOINT, FINAL])
def test_a_stop_that_fails_leaves_the_job_going_on(kind: CheckpointKind):
    c = coordinator(tolerable_failures=LENIENT)
    stop(c, kind, 1.0)
    decline(c, 1, 2.0)
    assert tick(c, 12.0) == [trigger(2)]
    assert c.heartbeat(12.0).held_back is None or "stopping" not in str(c.heartbeat(12.0).held_back)
    complete(c, 2, 13.0)
    assert stop(c, kind, 14.0) == [TriggerCheckpoint(3, kind, ("stop",), stop=True)]


@pytest.mark.parametrize("kind", [SAVEPOINT, FINAL])
def test_a_drain_ends_all_input_first_and_checkpoints_go_on_meanwhile(kind: CheckpointKind):
    c = coordinator()
    assert stop(c, kind, 1.0, drain=True) == [EndInput()]
    assert tick(c, 10.0) == [trigger(1)]
    complete(c, 1, 11.0)
    assert c.handle(AllInputEnded(), 12.0) == [TriggerCheckpoint(2, kind, ("stop",), stop=True)]
    assert complete(c, 2, 13.0)[0] == NotifyComplete(2, kind, last=True)


def test_a_drain_asked_for_before_all_subtasks_run_begins_when_they_do():
    c = coordinator(running=False)
    assert stop(c, SAVEPOINT, 1.0, drain=True) == []
    assert c.handle(SubtasksRunning(), 2.0) == [EndInput()]


def test_a_drained_job_whose_savepoint_fails_goes_to_its_final_checkpoint():
    c = coordinator()
    stop(c, SAVEPOINT, 1.0, drain=True)
    c.handle(AllInputEnded(), 2.0)
    assert decline(c, 1, 3.0)[1:] == [trigger(2, FINAL)]
    assert complete(c, 2, 4.0)[0] == NotifyComplete(2, FINAL, last=True)


def test_a_second_stop_and_one_that_comes_too_late_are_refused():
    c = coordinator()
    stop(c, FINAL, 1.0)
    (refused,) = c.handle(StopRequested(SAVEPOINT, "again"), 2.0)
    assert refused == RejectRequest("again", "the job is stopping already")
    complete(c, 1, 3.0)
    (refused,) = c.handle(StopRequested(SAVEPOINT, "late"), 4.0)
    assert refused == RejectRequest("late", "the job can't be stopped any more: the job's last checkpoint is complete")


def test_a_stop_that_still_waits_when_the_job_ends_is_refused():
    c = coordinator()
    stop(c, SAVEPOINT, 1.0, drain=True)
    assert of(RejectRequest, c.handle(JobEnding(), 2.0)) == [
        RejectRequest("stop", "no checkpoint is taken any more: the attempt to run the job is ending")
    ]


def test_a_stop_by_an_ordinary_checkpoint_is_an_error():
    with pytest.raises(ValueError, match="a final checkpoint or a savepoint"):
        stop(coordinator(), CHECKPOINT, 1.0)
