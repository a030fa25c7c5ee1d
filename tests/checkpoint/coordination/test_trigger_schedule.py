"""When the next checkpoint is wanted, and when it may be triggered."""

from __future__ import annotations

import math

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.trigger_schedule import TriggerSchedule


def started(interval: float | None = 10.0, min_pause: float = 0.0) -> TriggerSchedule:
    schedule = TriggerSchedule(interval, min_pause)
    schedule.start(0.0)
    return schedule


def test_a_periodic_checkpoint_is_due_an_interval_after_the_start_and_after_each_trigger() -> None:
    schedule = TriggerSchedule(10.0, 0.0)
    assert schedule.ready_at == math.inf
    schedule.start(5.0)
    assert schedule.ready_at == 15.0
    schedule.triggered(1, 17.0)
    assert schedule.ready_at == 27.0
    schedule.completed(18.0)
    assert schedule.ready_at == 27.0


def test_without_an_interval_nothing_is_due_until_somebody_asks() -> None:
    schedule = started(None)
    assert schedule.ready_at == math.inf
    schedule.ask(0)
    assert schedule.ready_at == -math.inf


def test_an_ask_counts_once_and_only_with_the_newest_barrier() -> None:
    schedule = started()
    schedule.ask(0)
    assert schedule.ready_at == -math.inf
    schedule.triggered(3, 1.0)
    assert schedule.ready_at == 11.0
    schedule.ask(2)
    assert schedule.ready_at == 11.0
    schedule.ask(3)
    assert schedule.ready_at == -math.inf


def test_after_a_failure_what_sources_ask_for_waits_for_the_interval() -> None:
    schedule = started()
    schedule.triggered(1, 1.0)
    schedule.failed(CheckpointKind.CHECKPOINT, 2.0)
    schedule.ask(1)
    assert schedule.ready_at == 11.0
    assert schedule.put_off(4.0) == "the last checkpoint failed, so the next one waits for the interval: 7.0 s left"
    schedule.completed(5.0)
    assert schedule.ready_at == 5.0  # the end of the pause of no length


def test_after_a_failure_without_an_interval_it_is_tried_again_a_second_later() -> None:
    schedule = started(None)
    schedule.triggered(1, 1.0)
    schedule.failed(CheckpointKind.CHECKPOINT, 2.0)
    assert schedule.ready_at == math.inf
    schedule.ask(1)
    assert schedule.ready_at == 3.0


def test_the_min_pause_counts_from_the_end_good_or_bad() -> None:
    schedule = started(1.0, min_pause=5.0)
    schedule.triggered(1, 0.0)
    schedule.completed(2.0)
    assert schedule.ready_at == 7.0
    assert schedule.put_off(4.0) == "min pause: 3.0 s left"
    assert schedule.put_off(0.5) is None, "nothing is wanted yet"
    assert schedule.put_off(7.0) is None, "it may be triggered"
    schedule.triggered(2, 7.0)
    schedule.failed(CheckpointKind.CHECKPOINT, 8.0)
    assert schedule.ready_at == 13.0


def test_requests_are_answered_by_the_next_trigger_in_their_order() -> None:
    schedule = started()
    schedule.request(CheckpointKind.CHECKPOINT, "a")
    schedule.request(CheckpointKind.SAVEPOINT, "s1")
    schedule.request(CheckpointKind.CHECKPOINT, "b")
    schedule.request(CheckpointKind.SAVEPOINT, "s2")
    assert schedule.ready_at == -math.inf
    assert schedule.triggered(1, 1.0) == ("a", "b")
    assert schedule.triggered(2, 2.0) == ()
    assert schedule.savepoint_waits
    assert [schedule.take_savepoint(), schedule.take_savepoint()] == ["s1", "s2"]
    assert not schedule.savepoint_waits


def test_requests_that_will_not_be_served_are_given_back_once() -> None:
    schedule = started()
    schedule.request(CheckpointKind.CHECKPOINT, "a")
    schedule.request(CheckpointKind.SAVEPOINT, "s")
    assert schedule.take_requests() == ["s", "a"]
    assert schedule.take_requests() == []
    assert not schedule.savepoint_waits
    assert schedule.ready_at == 10.0


def test_once_input_has_ended_only_the_final_checkpoint_is_wanted() -> None:
    schedule = started(10.0, min_pause=3.0)
    assert schedule.next_kind is CheckpointKind.CHECKPOINT
    schedule.end_input()
    assert schedule.next_kind is CheckpointKind.FINAL
    assert schedule.ready_at == -math.inf
    schedule.triggered(1, 1.0)
    assert schedule.ready_at == math.inf
    schedule.end_input()
    assert schedule.ready_at == math.inf, "it is in progress"
    schedule.failed(CheckpointKind.FINAL, 2.0)
    assert schedule.ready_at == 5.0
    assert schedule.put_off(4.0) == "the final checkpoint has failed and is tried again in 1.0 s"


def test_the_final_checkpoint_is_tried_again_no_sooner_than_after_a_second() -> None:
    schedule = started()
    schedule.end_input()
    schedule.triggered(1, 1.0)
    schedule.failed(CheckpointKind.CHECKPOINT, 2.0)  # an older one that is given up changes nothing
    assert schedule.ready_at == math.inf
    schedule.failed(CheckpointKind.FINAL, 2.0)
    assert schedule.ready_at == 3.0
