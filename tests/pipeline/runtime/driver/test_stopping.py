"""From a signal to a job's end: the order of things, with a clock of the test's."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.runtime.driver.stopping import AskToStop, CancelJob, Leave, Stopping, seconds_to_end


def test_signals_stop_then_cancel_then_leave() -> None:
    stopping = Stopping(30)
    assert stopping.signalled(0) == [AskToStop()]
    assert stopping.signalled(1) == [CancelJob("")]
    assert stopping.tick(1000) == []
    assert stopping.signalled(2) == [Leave()]


def test_a_signal_that_comes_twice_at_once_counts_once() -> None:
    """`timeout` sends it to the process, and then to its group."""
    stopping = Stopping(30)
    assert [stopping.signalled(now) for now in (7, 7, 7.001)] == [[AskToStop()], [], []]
    assert [stopping.signalled(now) for now in (8, 8.2)] == [[CancelJob("")], []]
    assert stopping.signalled(9) == [Leave()]


def test_when_the_grace_time_is_over_the_job_is_cancelled_once() -> None:
    stopping = Stopping(30)
    stopping.signalled(5)
    assert (stopping.next_deadline, stopping.tick(34.9)) == (35, [])
    assert stopping.tick(35) == [CancelJob("it did not end within 30 s")]
    assert (stopping.next_deadline, stopping.tick(36)) == (None, [])


def test_the_grace_time_covers_the_commit_behind_the_last_checkpoint() -> None:
    stopping = Stopping(30)
    stopping.signalled(0)
    stopping.accepted()
    assert stopping.tick(30) == [CancelJob("it did not end within 30 s")]


def test_a_stop_that_failed_is_tried_again_while_there_is_time() -> None:
    stopping = Stopping(2)
    stopping.signalled(0)
    stopping.refused("checkpoint 4 failed: disk full", 1)
    assert (stopping.next_deadline, stopping.tick(1.1)) == (1.5, [])
    assert stopping.tick(1.5) == [AskToStop()]
    stopping.refused("checkpoint 5 failed: disk full", 1.8)
    assert stopping.tick(2) == [CancelJob("it did not end within 2 s")]
    assert stopping.trouble == "checkpoint 5 failed: disk full"


def test_without_grace_the_first_signal_cancels() -> None:
    assert Stopping(0).signalled(0) == [CancelJob("")]


@pytest.mark.parametrize(("graces", "seconds"), [((), 60), ((0,), 60), ((30, 2), 90), ((2, math.inf), math.inf)])
def test_the_end_of_the_process_waits_for_the_most_patient_job(graces: tuple[float, ...], seconds: float) -> None:
    assert seconds_to_end(map(Stopping, graces)) == seconds


def test_an_endless_grace_has_no_deadline() -> None:
    stopping = Stopping(math.inf)
    assert stopping.signalled(0) == [AskToStop()]
    assert stopping.next_deadline is None


def test_what_comes_after_the_end_does_nothing() -> None:
    stopping = Stopping(30)
    stopping.signalled(0)
    stopping.ended()
    stopping.refused("the job has ended", 1)
    assert (stopping.signalled(1), stopping.tick(100), stopping.next_deadline) == ([], [], None)


_events = st.lists(st.sampled_from(["signal", "refused", "accepted", "wait", "tick"]), max_size=40)


@given(_events, st.sampled_from([0.0, 0.3, 5.0]))
def test_a_job_is_cancelled_at_most_once_asked_first_and_never_left_waiting(events: list[str], grace: float) -> None:
    stopping, now, done = Stopping(grace), 0.0, []
    first: float | None = None
    for event in events:
        actions: list[Any] = []
        match event:
            case "signal":
                first = now if first is None else first
                actions = stopping.signalled(now)
            case "refused":
                stopping.refused("no", now)
            case "accepted":
                stopping.accepted()
            case "wait":
                now += 0.4
            case "tick":
                actions = stopping.tick(now)
        done += actions
    cancels = [action for action in done if isinstance(action, CancelJob)]
    assert len(cancels) <= 1
    if grace and cancels:
        assert done.index(AskToStop()) < done.index(cancels[0])
    if Leave() in done:
        assert cancels
        assert done.index(cancels[0]) < done.index(Leave())
    if first is not None:
        assert not stopping.tick(first + grace) or cancels == []  # whatever happened, the deadline cancels
        assert stopping.cancelled


@pytest.mark.parametrize("value", [-1, "soon", True, math.nan])
def test_a_grace_that_cannot_be_is_refused(value: Any) -> None:
    from pipeline import Pipeline, PipelineError

    with pytest.raises(PipelineError, match="stop_grace must be"):
        Pipeline("job", stop_grace=value)
