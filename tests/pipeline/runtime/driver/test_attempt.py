"""What an attempt makes of what its processes, Spark and users tell it; on a clock that stands still, without Spark."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attempt_parts import attempt_context
from checkpoint_folders import metadata_of
from messages import example_of
from virtual_attempt import METRICS, VirtualAttempt

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator_events import FailureReason
from checkpoint.storage.metadata import SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.restore import RestorePoint
from checkpoint.waiting import WaitKind
from pipeline import Pipeline
from pipeline.runtime import protocol
from pipeline.runtime.driver.attempt_context import CheckpointRequest, NotTriggered
from pipeline.runtime.driver.attempt_events import (
    CancelRequested,
    CheckpointRequestedByUser,
    Connected,
    Fenced,
    Misunderstood,
)
from pipeline.runtime.driver.failures import AttemptFailed
from pipeline.runtime.driver.spark.spark_job import SparkJobFailed
from pipeline.runtime.driver.status.waits import THE_JOB
from pipeline.runtime.protocol import TO_DRIVER, FailureKind
from pipeline.runtime.topology_changes import snapshot_edges
from pipeline.testing import TestingSink, TestingSource

SNAPSHOT = SubtaskSnapshot({})
ZERO, ONE = (f"in → out → copy[{i}]" for i in (0, 1))
"""Names of the subtasks of `job`."""


def one_vertex() -> Pipeline:
    """Two subtasks, each with a source and two sinks."""
    p = Pipeline("job", parallelism=2)
    source = p.source("in", TestingSource())
    source.sink("out", TestingSink())
    source.sink("copy", TestingSink())
    return p


def two_vertices() -> Pipeline:
    """Subtasks 0 and 1 read, 2 and 3 write."""
    p = Pipeline("job", parallelism=2)
    p.source("in", TestingSource()).rebalance().sink("out", TestingSink())
    return p


@pytest.fixture
def job(tmp_path: Path) -> VirtualAttempt:
    return VirtualAttempt(attempt_context(one_vertex().plan(), str(tmp_path)))


@pytest.fixture
def wide(tmp_path: Path) -> VirtualAttempt:
    return VirtualAttempt(attempt_context(two_vertices().plan(), str(tmp_path)))


def failed(kind: FailureKind, message: str, **fields: Any) -> protocol.Failed:
    return protocol.Failed(
        **{"kind": kind, "message": message, "traceback": "", "where": "in partition 0", "step": None, **fields}
    )


def failure(job: VirtualAttempt, seconds: float = 1.0) -> AttemptFailed:
    with pytest.raises(AttemptFailed) as caught:
        job.tick(seconds)
    return caught.value


# -- start ------------------------------------------------------------------------------------------------------------


def test_subtasks_are_deployed_once_all_processes_are_up(wide: VirtualAttempt) -> None:
    for subtask in range(3):
        wide.connect(subtask)
        wide.hello(subtask)
    assert [one.said for one in wide.subtasks] == [[]] * 4
    wide.connect(3)
    wide.hello(3)
    deployed = [one.heard(protocol.Deploy)[0].deployment for one in wide.subtasks]
    assert [one.subtask for one in deployed] == [0, 1, 2, 3]
    assert all(one.peers == {i: ("here", 5000 + i) for i in range(4)} for one in deployed)
    assert wide.progress.pids == {"in[0]": 100, "in[1]": 101, "out[0]": 102, "out[1]": 103}


def test_sources_begin_once_all_subtasks_run(job: VirtualAttempt) -> None:
    job.deploy()
    job.say(0, protocol.Running())
    assert job.subtasks[0].heard(protocol.Heartbeat) == []
    job.say(1, protocol.Running())
    assert [len(one.heard(protocol.Heartbeat)) for one in job.subtasks] == [1, 1]
    assert job.progress.running_at == job.system.now


def test_checkpoint_ids_are_larger_than_any_that_a_sink_knows_of(job: VirtualAttempt) -> None:
    job.deploy()
    job.say(0, protocol.Running(highest_checkpoint=41))
    job.say(1, protocol.Running(highest_checkpoint=7))
    job.handle(CheckpointRequestedByUser(CheckpointRequest(), lambda result: None))
    assert [one.checkpoint_id for one in job.subtasks[0].heard(protocol.Trigger)] == [42]


def test_who_comes_first_is_told_which_job_it_is_and_nobody_before(job: VirtualAttempt) -> None:
    def run() -> None:
        assert job.transport.job is not None
        assert (job.transport.job.versions, job.transport.state) == (job.context.spec.versions, "listening")
        assert job.spark.started
        job.handle(CancelRequested())

    with pytest.raises(AttemptFailed, match="cancelled"):
        job.run(run, job.spark_ends)
    assert job.transport.state == "closed"


def test_a_report_before_hello_is_ignored(job: VirtualAttempt) -> None:
    job.connect(0)
    job.say(0, protocol.Quiet())
    job.tick()


def test_processes_that_do_not_come_fail_the_attempt_and_those_that_come_one_by_one_do_not(job: VirtualAttempt) -> None:
    for _ in range(100):
        job.tick(1.0)
    job.connect(0)
    job.hello(0)
    for _ in range(100):
        job.tick(1.0)
    for _ in range(19):
        job.tick(1.0)
    text = str(failure(job))
    assert "only 1 of 2 subtasks came up, and none for 120 s" in text
    assert "they reach driver:4711" in text


def test_what_takes_long_in_a_start_is_told_with_how_long_it_has(job: VirtualAttempt) -> None:
    def told(seconds: int) -> list[tuple[str, WaitKind, int]]:
        for _ in range(seconds):
            job.tick(1.0)
        return [(one.what, one.kind, round((time.time() - one.since) / 10)) for one in job.context.waits.now()]

    job.tick()
    assert told(8) == []
    assert told(20) == [("2 of 2 processes, which Spark has not brought up", WaitKind.PROCESSES, 3)]
    job.connect(0)
    job.hello(0)
    assert told(8) == []
    assert told(20) == [("1 of 2 processes, which Spark has not brought up", WaitKind.PROCESSES, 3)]
    job.connect(1)
    job.hello(1)
    job.say(1, protocol.PhaseEntered("is in open() of 'model'"))
    assert told(8) == []
    assert told(20) == [(f"{ONE}, which is in open() of 'model'", WaitKind.SUBTASK, 3)]
    job.say_all(protocol.Running())
    assert told(20) == []


def test_what_a_subtask_did_last_before_it_ran_is_no_longer_told(job: VirtualAttempt) -> None:
    job.deploy()
    job.say(1, protocol.PhaseEntered("is in open() of 'model'"))
    job.say_all(protocol.Running())
    job.lose(1)
    assert "The last that is known" not in str(failure(job))


def first_checkpoints(job: VirtualAttempt) -> list[int]:
    return [one.checkpoint_id for one in job.subtasks[0].heard(protocol.Trigger)]


def test_the_first_checkpoint_is_taken_as_soon_as_there_is_output(tmp_path: Path) -> None:
    job = VirtualAttempt(attempt_context(one_vertex().plan(), str(tmp_path), interval=60.0))
    job.start()
    job.tick()
    assert first_checkpoints(job) == []
    job.say(1, protocol.OutputBegan())
    job.tick(0.2)
    assert first_checkpoints(job) == [1]


# -- what is waited for -----------------------------------------------------------------------------------------------


def waiting(seconds: float) -> protocol.Metrics:
    waits = [["brokers", seconds, "brokers"]] if seconds else []
    return protocol.Metrics({**METRICS, "waits": waits, "waitingMs": 1000 * seconds})


def waited_for(job: VirtualAttempt) -> list[tuple[str, str]]:
    return [(wait.who, wait.what) for wait in job.context.waits.now()]


def test_what_subtasks_wait_for_is_told_until_they_have_it_or_leave(job: VirtualAttempt) -> None:
    job.start()
    for subtask in (0, 1):
        job.say(subtask, waiting(5.0))
    assert sorted(waited_for(job)) == [(ZERO, "brokers"), (ONE, "brokers")]
    job.say(0, waiting(0.0))
    assert waited_for(job) == [(ONE, "brokers")]
    job.say(1, protocol.Closed(METRICS))
    assert waited_for(job) == []


def test_who_has_closed_is_waited_for_no_longer_and_its_last_figures_stay(job: VirtualAttempt) -> None:
    job.start()
    for subtask in (0, 1):
        job.say(subtask, protocol.PhaseEntered("is closing"))
    job.say(0, protocol.Closed({**METRICS, "recordsIn": 7}))
    for _ in range(20):
        job.tick(1.0)
    assert waited_for(job) == [(THE_JOB, f"{ONE}, which is closing")]
    assert job.progress.metrics[ZERO]["recordsIn"] == 7


def test_who_has_failed_is_told_nothing_more(job: VirtualAttempt) -> None:
    job.start()
    job.say(0, failed(FailureKind.ERROR, "ValueError: no"))
    job.handle(CheckpointRequestedByUser(CheckpointRequest(), lambda result: None))
    assert [len(one.heard(protocol.Trigger)) for one in job.subtasks] == [0, 1]


def test_with_the_attempt_all_waits_end(job: VirtualAttempt) -> None:
    before: list[list[str]] = []

    def come() -> None:
        job.connect(0)
        job.hello(0)
        job.say(0, waiting(5.0))

    def look() -> None:
        job.context.waits.report(THE_JOB, [("processes", 5.0, "processes")])
        before.append(sorted(who for who, _ in waited_for(job)))

    with pytest.raises(AttemptFailed):
        job.run(come, look, job.attempt.cancel, job.spark_ends, lambda: job.lose(0))
    assert before == [["in partition 0", THE_JOB]]
    assert waited_for(job) == []


def expire(job: VirtualAttempt) -> None:
    """A checkpoint that nobody acknowledges."""
    job.handle(CheckpointRequestedByUser(CheckpointRequest(), lambda result: None))
    for _ in range(12):
        job.tick(10.0)


def test_a_checkpoint_that_expires_while_a_subtask_waits_for_something_outside_does_not_fail_the_job(
    tmp_path: Path,
) -> None:
    job = VirtualAttempt(attempt_context(one_vertex().plan(), str(tmp_path), timeout=100.0))
    job.start()
    for seconds in (0.0, 5.0, 6.0):
        job.say(0, waiting(seconds))
    expire(job)
    job.say(0, waiting(0.0))
    assert [row.status for row in job.context.history.rows()] == ["failed"]
    with pytest.raises(AttemptFailed, match="tolerable_failures is 0"):
        expire(job)


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_process_that_is_gone_before_it_is_ready_is_named(job: VirtualAttempt) -> None:
    job.connect(0)
    job.lose(0)
    assert "the process in partition 0 is gone before it was ready (the connection was closed)" in str(failure(job))


def test_a_subtask_that_is_gone_is_named_with_what_it_did_last(job: VirtualAttempt) -> None:
    job.deploy()
    job.say(1, protocol.PhaseEntered("is in open() of 'model'"))
    job.lose(1)
    text = str(failure(job))
    assert f"subtask {ONE} is gone (process 101 on here: the connection was closed)" in text
    assert "The last that is known of it: it is in open() of 'model'." in text


def test_a_subtask_that_is_gone_after_its_last_word_is_no_failure(job: VirtualAttempt) -> None:
    job.start()
    job.say(0, protocol.Closed(METRICS))
    job.lose(0)
    job.tick(1.0)
    job.lose(1)
    assert f"subtask {ONE} is gone" in str(failure(job))


def test_sending_to_a_subtask_that_is_gone_is_a_sign_of_it(job: VirtualAttempt) -> None:
    job.start()
    job.subtasks[1].broken = True
    job.tick(1.0)
    job.tick()
    assert f"subtask {ONE} is gone (process 101 on here: broken pipe)" in str(failure(job))


def test_a_subtask_that_says_nothing_is_given_up_though_it_is_connected(job: VirtualAttempt) -> None:
    job.start()
    for _ in range(120):
        job.system.now += 1.0
        job.subtasks[1].heard_at = job.system.now
        job.attempt.tick(job.system.now)
    told = f"subtask {ZERO} is gone (process 100 on here: not heard of for 120 s, though its host answers)"
    assert told in str(failure(job))


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_best_informed_sign_of_a_failure_is_the_cause_whichever_comes_first(
    job: VirtualAttempt, first: int
) -> None:
    """The subtask that failed says so; its neighbour only that it has lost it, and Spark that a task has failed."""
    job.start()
    signs = [
        lambda: job.say(1, failed(FailureKind.PEER, "lost in[0]")),
        lambda: job.spark_ends(SparkJobFailed("a task failed")),
        lambda: job.lose(0),
    ]
    for sign in (*signs[first:], *signs[:first]):
        sign()
    job.tick(0.05)
    job.say(0, failed(FailureKind.ERROR, "ValueError: no", step="in", traceback="line 5"))
    assert str(failure(job, 0.0)) == f"subtask {ZERO} failed: ValueError: no\nin step 'in'\nline 5"


def test_without_a_better_explanation_the_first_sign_counts_after_a_moment(job: VirtualAttempt) -> None:
    job.start()
    job.say(1, failed(FailureKind.PEER, "lost in[0]"))
    job.tick(0.2)
    assert f"subtask {ONE} failed: lost in[0]" in str(failure(job, 0.11))


def test_a_failure_before_the_deployment_names_the_process(job: VirtualAttempt) -> None:
    job.connect(0)
    job.say(0, failed(FailureKind.PERMANENT, "no Weir", where="in partition 0 on host a"))
    cause = failure(job)
    assert (str(cause), cause.permanent) == ("subtask in partition 0 on host a failed: no Weir", True)


@pytest.mark.parametrize("complete", [False, True])
def test_damage_is_the_restored_checkpoints_until_a_newer_one_is_complete(job: VirtualAttempt, complete: bool) -> None:
    job.start()
    if complete:
        job.handle(CheckpointRequestedByUser(CheckpointRequest(), lambda result: None))
        job.acknowledge(1, SNAPSHOT)
    job.say(0, failed(FailureKind.DAMAGED, "chk-1: bad checksum"))
    assert failure(job).damaged == (None if complete else "chk-1: bad checksum")


def test_spark_ending_before_the_job_is_a_failure(job: VirtualAttempt) -> None:
    job.start()
    job.spark_ends()
    assert str(failure(job)) == "the Spark job ended before the pipeline did"


def test_a_failure_that_spark_calls_hopeless_is_permanent(job: VirtualAttempt) -> None:
    job.spark_ends(SparkJobFailed("no Weir there", permanent=True))
    assert failure(job).permanent


def test_a_fenced_attempt_does_not_come_back(job: VirtualAttempt) -> None:
    job.start()
    job.handle(Fenced("attempt 2 owns the job"))
    cause = failure(job)
    assert (str(cause), cause.permanent) == ("attempt 2 owns the job", True)


@pytest.mark.parametrize("deployed", [False, True])
def test_a_message_of_another_version_fails_the_attempt_with_what_is_wrong(job: VirtualAttempt, deployed: bool) -> None:
    if deployed:
        job.deploy()
    else:
        job.connect(0)
    error = "the message 'Hello' can't be read: field 'copies' is missing (this side has Weir 2, the other one Weir 1)"
    job.handle(Misunderstood(job.subtasks[0], error))
    name = ZERO if deployed else "in partition 0"
    cause = failure(job)
    assert (str(cause), cause.permanent) == (f"subtask {name}: {error}", True)


def test_behind_a_message_of_another_version_nothing_more_is_said_to_who_sent_it(job: VirtualAttempt) -> None:
    job.start()
    job.handle(Misunderstood(job.subtasks[0], "no message"))
    job.handle(CheckpointRequestedByUser(CheckpointRequest(), lambda result: None))
    assert [len(one.heard(protocol.Trigger)) for one in job.subtasks] == [0, 1]


def test_a_message_of_another_version_is_no_reason_to_give_up_a_job_that_has_run(tmp_path: Path) -> None:
    """A host may have been upgraded meanwhile, and the next attempt may come where all are alike."""
    context = attempt_context(one_vertex().plan(), str(tmp_path))
    job = VirtualAttempt(replace(context, spec=replace(context.spec, first_attempt=False)))
    job.deploy()
    job.handle(Misunderstood(job.subtasks[0], "no message"))
    assert not failure(job).permanent


@pytest.mark.parametrize(("asynchronous", "reason"), [(False, FailureReason.DECLINED), (True, FailureReason.ASYNC)])
def test_a_checkpoint_that_a_subtask_declines_names_it(
    job: VirtualAttempt, asynchronous: bool, reason: FailureReason
) -> None:
    answers: list[int | Exception] = []
    job.start()
    job.handle(CheckpointRequestedByUser(CheckpointRequest(), answers.append))
    job.say(1, protocol.Declined(1, "the sink is busy", asynchronous=asynchronous))
    assert [str(one) for one in answers] == [f"checkpoint 1 failed: subtask 1: {ONE}: the sink is busy"]
    assert f"checkpoint 1 failed ({reason}): subtask 1" in str(failure(job))


def test_an_attempt_looks_again_when_the_first_thing_is_due(job: VirtualAttempt) -> None:
    job.start()
    now, pace = job.system.now, job.context.spec.limits.pace
    assert job.attempt.tick(now) == now + pace
    assert job.attempt.tick(now + 0.25 * pace) == now + pace
    job.lose(0)
    assert job.attempt.tick(now) == now + 0.1, "until then the subtask's own word may come"


# -- replay -----------------------------------------------------------------------------------------------------------


def restored(folder: Path, replaying: bool) -> VirtualAttempt:
    """An attempt at `two_vertices` that restores checkpoint 7, in which nothing was in flight."""
    plan = two_vertices().plan()
    context = attempt_context(plan, str(folder), interval=60.0)
    vertices = {vertex.name: VertexSnapshot((SNAPSHOT, SNAPSHOT)) for vertex in plan.vertices}
    fields = {"vertices": vertices, "edges": snapshot_edges(plan), "replaying": replaying}
    checkpoint = metadata_of(CheckpointRef(7, 1), pipeline="job", **fields)
    point = RestorePoint(context.start.storage, checkpoint.ref, checkpoint, context.start.storage.uri)
    return VirtualAttempt(replace(context, start=replace(context.start, point=point)))


def test_where_nothing_was_in_flight_nothing_is_replayed(tmp_path: Path) -> None:
    wide = restored(tmp_path, replaying=False)
    wide.start()
    assert [one.heard(protocol.Deploy)[0].deployment.replay for one in wide.subtasks] == [False] * 4
    wide.say(2, protocol.OutputBegan())
    wide.tick(0.2)
    assert len(first_checkpoints(wide)) == 1


@pytest.mark.parametrize("output", [True, False])
def test_sources_go_on_once_the_replay_has_reached_every_subtask_without_outputs(tmp_path: Path, output: bool) -> None:
    wide = restored(tmp_path, replaying=True)
    wide.start()
    assert [one.heard(protocol.Deploy)[0].deployment.replay for one in wide.subtasks] == [True] * 4
    wide.say(2, protocol.RestoreBarrierArrived())
    if output:
        wide.say(2, protocol.OutputBegan())
    assert wide.subtasks[0].heard(protocol.ReplayEnded) == []
    wide.tick(0.2)
    assert first_checkpoints(wide) == [], "whoever restored it would replay again"
    wide.say(3, protocol.RestoreBarrierArrived())
    assert [len(one.heard(protocol.ReplayEnded)) for one in wide.subtasks] == [1, 1, 0, 0]
    wide.tick(0.2)
    assert len(first_checkpoints(wide)) == (1 if output else 0)


# -- commits, and the end of the job ----------------------------------------------------------------------------------

SINKS = [(subtask, step) for subtask in (0, 1) for step in ("out", "copy")]


def stop(job: VirtualAttempt) -> None:
    """Up to the last checkpoint's trigger."""
    job.start()
    request = CheckpointRequest(CheckpointKind.FINAL, stop=True)
    job.handle(CheckpointRequestedByUser(request, lambda result: None))


def commit(job: VirtualAttempt, subtask: int, step: str, checkpoint_id: int = 1, records: bool = True) -> None:
    job.say(subtask, protocol.Committed(step, checkpoint_id, records))


def quiesced(job: VirtualAttempt) -> list[int]:
    return [len(one.heard(protocol.Quiesce)) for one in job.subtasks]


@pytest.mark.parametrize("late", SINKS)
def test_a_job_ends_once_every_sink_has_committed_its_last_checkpoint(
    job: VirtualAttempt, late: tuple[int, str]
) -> None:
    stop(job)
    job.acknowledge(1, SNAPSHOT)
    for subtask, step in SINKS:
        if (subtask, step) != late:
            commit(job, subtask, step)
    job.tick(10.0)
    assert quiesced(job) == [0, 0]
    assert job.progress.committed == 0
    for _ in range(2):
        commit(job, *late)
        assert quiesced(job) == [1, 1]
    assert job.progress.committed == 1


def test_commits_of_an_earlier_checkpoint_are_not_enough(job: VirtualAttempt) -> None:
    job.start()
    job.handle(CheckpointRequestedByUser(CheckpointRequest(), lambda result: None))
    job.acknowledge(1, SNAPSHOT)
    request = CheckpointRequest(CheckpointKind.FINAL, stop=True)
    job.handle(CheckpointRequestedByUser(request, lambda result: None))
    job.acknowledge(2, SNAPSHOT)
    job.system.now += 7
    for subtask, step in SINKS:
        assert [row.commit for row in job.context.history.rows()] == [None, None]
        commit(job, subtask, step, 1)
    assert (quiesced(job), job.progress.committed) == ([0, 0], 1)
    assert [row.commit for row in job.context.history.rows()] == [7, None]
    for subtask, step in SINKS:
        commit(job, subtask, step, 2)
    assert (quiesced(job), job.progress.committed) == ([1, 1], 2)


def test_a_checkpoint_that_is_not_the_last_ends_nothing(job: VirtualAttempt) -> None:
    job.start()
    job.handle(CheckpointRequestedByUser(CheckpointRequest(), lambda result: None))
    job.acknowledge(1, SNAPSHOT)
    for subtask, step in SINKS:
        commit(job, subtask, step)
    assert quiesced(job) == [0, 0]


def test_the_first_commit_that_has_records_is_when_output_came(job: VirtualAttempt) -> None:
    job.start()
    for phase in ("first record", "checkpoint"):
        assert job.progress.start.reach(phase, job.system.now)
    commit(job, 0, "out", records=False)
    assert job.progress.first_commit_at is None
    assert "commit" not in job.progress.start.seconds()
    job.system.now += 3
    commit(job, 1, "out")
    first = job.system.now
    assert job.progress.first_commit_at == first
    assert job.progress.start.seconds()["commit"] == 3
    job.system.now += 5
    commit(job, 0, "copy")
    assert job.progress.first_commit_at == first


@pytest.mark.parametrize("last", [0, 1])
def test_input_has_ended_once_it_has_in_every_subtask(job: VirtualAttempt, last: int) -> None:
    job.start()
    job.say(1 - last, protocol.InputEnded())
    assert job.subtasks[0].heard(protocol.Trigger) == []
    job.say(last, protocol.InputEnded())
    assert [one.kind for one in job.subtasks[0].heard(protocol.Trigger)] == [CheckpointKind.FINAL]


def quiesce(job: VirtualAttempt) -> None:
    stop(job)
    job.acknowledge(1, SNAPSHOT)
    for subtask, step in SINKS:
        commit(job, subtask, step)


def test_nobody_leaves_before_all_are_quiet_and_the_job_is_over_once_all_have_closed_and_spark_has_ended(
    job: VirtualAttempt,
) -> None:
    quiesce(job)
    job.say(1, protocol.Quiet())
    assert job.subtasks[0].heard(protocol.Finish) == []
    job.say(0, protocol.Quiet())
    assert [len(one.heard(protocol.Finish)) for one in job.subtasks] == [1, 1]
    beats = len(job.subtasks[0].heard(protocol.Heartbeat))
    job.say(0, protocol.Closed(METRICS))
    job.tick(1.0)
    job.spark_ends()
    job.tick(1.0)
    assert not job.finished
    assert len(job.subtasks[0].heard(protocol.Heartbeat)) == beats, "who leaves is told nothing more"
    job.say(1, protocol.Closed(METRICS))
    job.tick()
    assert job.finished


def test_a_close_that_fails_fails_the_attempt_though_everything_is_committed(job: VirtualAttempt) -> None:
    quiesce(job)
    job.say_all(protocol.Quiet())
    job.say(0, protocol.Closed(METRICS))
    job.spark_ends()
    job.say(1, failed(FailureKind.ERROR, "OSError: disk full"))
    assert "OSError: disk full" in str(failure(job, 0.0))


def test_spark_failing_at_the_end_is_a_failure_although_all_have_closed(job: VirtualAttempt) -> None:
    quiesce(job)
    job.say_all(protocol.Quiet())
    job.say_all(protocol.Closed(METRICS))
    job.spark_ends(SparkJobFailed("a task failed"))
    job.tick()
    assert not job.finished
    assert "the Spark job failed: a task failed" in str(failure(job))


# -- restored output --------------------------------------------------------------------------------------------------


def test_restored_epochs_are_released_one_after_the_other_over_all_subtasks(job: VirtualAttempt) -> None:
    job.start(out=(3, 4), copy=())
    released = [one.heard(protocol.ReleaseEpoch) for one in job.subtasks]
    assert released == [[protocol.ReleaseEpoch("out", 3)]] * 2
    assert [one.heard(protocol.ReleaseNew) for one in job.subtasks] == [[protocol.ReleaseNew("copy")]] * 2
    job.say(0, protocol.RestoredEpochCommitted("out", 3))
    assert len(job.subtasks[0].heard(protocol.ReleaseEpoch)) == 1
    job.say(1, protocol.RestoredEpochCommitted("out", 3))
    assert job.subtasks[1].heard(protocol.ReleaseEpoch)[-1] == protocol.ReleaseEpoch("out", 4)
    for subtask in (0, 1):
        job.say(subtask, protocol.RestoredEpochCommitted("out", 4))
    assert [one.heard(protocol.ReleaseNew)[-1] for one in job.subtasks] == [protocol.ReleaseNew("out")] * 2
    assert quiesced(job) == [0, 0], "what is new is still to come"


@pytest.fixture
def stopped(tmp_path: Path) -> VirtualAttempt:
    """A job that has been stopped already, and whose last output is to be committed."""
    return VirtualAttempt(attempt_context(one_vertex().plan(), str(tmp_path), commit_only=True))


def test_an_attempt_that_only_commits_ends_once_everything_restored_is_committed(stopped: VirtualAttempt) -> None:
    stopped.start(out=(3,), copy=())
    assert stopped.subtasks[0].heard(protocol.Heartbeat) == [], "nothing is read"
    stopped.say(0, protocol.RestoredEpochCommitted("out", 3))
    assert quiesced(stopped) == [0, 0]
    stopped.say(1, protocol.RestoredEpochCommitted("out", 3))
    assert quiesced(stopped) == [1, 1]


def test_an_attempt_that_has_nothing_to_commit_ends_when_all_run_and_not_before(stopped: VirtualAttempt) -> None:
    stopped.deploy()
    stopped.say(0, protocol.Running(0, {"out": (), "copy": ()}))
    assert quiesced(stopped) == [0, 0]
    stopped.say(1, protocol.Running(0, {"out": (), "copy": ()}))
    assert quiesced(stopped) == [1, 1]


def test_nobody_is_told_to_leave_while_a_subtask_without_sinks_still_begins(tmp_path: Path) -> None:
    stopped = VirtualAttempt(attempt_context(two_vertices().plan(), str(tmp_path), commit_only=True))
    stopped.deploy()
    for subtask in (2, 3):
        stopped.say(subtask, protocol.Running(0, {"out": ()}))
    assert quiesced(stopped) == [0] * 4
    for subtask in (0, 1):
        stopped.say(subtask, protocol.Running())
    assert quiesced(stopped) == [1] * 4


def test_an_attempt_that_only_commits_takes_no_checkpoint(tmp_path: Path) -> None:
    context = attempt_context(one_vertex().plan(), str(tmp_path), commit_only=True, interval=1.0)
    stopped = VirtualAttempt(context)
    stopped.start(out=(3,), copy=())
    for _ in range(5):
        stopped.tick(1.0)
    assert first_checkpoints(stopped) == []


# -- the attempt's end ------------------------------------------------------------------------------------------------


def leave(job: VirtualAttempt) -> None:
    for subtask in range(len(job.subtasks)):
        job.lose(subtask)


@pytest.mark.parametrize("cancelled", [False, True])
def test_subtasks_are_told_whether_another_attempt_follows(job: VirtualAttempt, cancelled: bool) -> None:
    def end() -> None:
        job.handle(CancelRequested() if cancelled else Fenced("attempt 2 owns the job"))

    with pytest.raises(AttemptFailed):
        job.run(job.start, end, job.spark_ends, lambda: leave(job))
    assert [one.said[-1] for one in job.subtasks] == [protocol.Cancel(job_over=cancelled)] * 2
    assert job.transport.state == "closed"


def test_a_cancel_during_the_start_ends_it(job: VirtualAttempt) -> None:
    def come() -> None:
        job.connect(0)
        job.hello(0)
        job.connect(1)

    with pytest.raises(AttemptFailed, match="cancelled") as caught:
        job.run(come, job.attempt.cancel, job.spark_ends, lambda: job.lose(0))
    assert caught.value.permanent
    assert [one.said for one in job.subtasks] == [[protocol.Cancel(job_over=True)], []]


def test_the_end_is_awaited_until_spark_has_ended_and_everybody_has_left(job: VirtualAttempt) -> None:
    times: list[float] = []

    def at(seconds: float, then: Any) -> Any:
        def step() -> None:
            job.system.now += seconds
            then()
            times.append(job.system.now)

        return step

    began = job.system.now
    with pytest.raises(AttemptFailed):
        job.run(
            job.start,
            job.attempt.cancel,
            at(2.0, lambda: job.lose(0)),
            at(2.0, job.spark_ends),
            at(2.0, lambda: job.lose(1)),
        )
    assert times == [began + 2, began + 4, began + 6]
    assert job.spark.cancels == [began, began + 2], "not any more once it has ended"


def test_whoever_does_not_leave_is_named_and_not_waited_for_any_longer(
    job: VirtualAttempt, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    began = job.system.now
    with pytest.raises(AttemptFailed):
        job.run(job.start, job.attempt.cancel, lambda: job.lose(0))
    assert job.spark.cancels == [began + second for second in range(10)], "a cancel may come before Spark knows the job"
    assert f"Spark's job has not ended; processes not gone: {ONE}" in caplog.text


def test_a_commit_that_ends_after_the_attempt_counts(job: VirtualAttempt) -> None:
    """Else a cancelled job would keep checkpoints whose output is committed."""

    def commits() -> None:
        for subtask, step in SINKS:
            commit(job, subtask, step, 5)

    with pytest.raises(AttemptFailed):
        job.run(job.start, job.attempt.cancel, commits, job.spark_ends, lambda: leave(job))
    assert job.progress.committed == 5


@pytest.mark.parametrize("when", ["before the end", "during the end", "after the end"])
def test_whoever_asks_for_a_checkpoint_gets_an_answer_however_late(job: VirtualAttempt, when: str) -> None:
    answers: list[int | Exception] = []

    def ask() -> None:
        job.attempt.request_checkpoint(CheckpointRequest(), answers.append)

    steps: list[Any] = [job.start, job.attempt.cancel, job.spark_ends, lambda: leave(job)]
    if when != "after the end":
        steps.insert(1 if when == "before the end" else 2, ask)
    with pytest.raises(AttemptFailed):
        job.run(*steps)
    if when == "after the end":
        ask()
    job.attempt.refuse_requests()
    assert len(answers) == 1
    assert isinstance(answers[0], Exception)


def test_a_request_that_came_too_late_was_never_triggered(job: VirtualAttempt) -> None:
    answers: list[int | Exception] = []
    job.attempt.request_checkpoint(CheckpointRequest(), answers.append)
    job.attempt.refuse_requests()
    assert [type(one) for one in answers] == [NotTriggered]


def test_what_earlier_attempts_left_is_cleaned_up_at_the_start_but_for_what_may_be_wanted_back(
    job: VirtualAttempt,
) -> None:
    cleaned: list[bool] = []
    object.__setattr__(job.context.start.cleanup, "run", cleaned.append)
    with pytest.raises(AttemptFailed):
        job.run(job.start, job.attempt.cancel, job.spark_ends, lambda: leave(job))
    assert cleaned == [False]


def test_nobody_who_comes_late_is_let_in_at_the_end(job: VirtualAttempt) -> None:
    states: list[str] = []
    with pytest.raises(AttemptFailed):
        job.run(
            job.start,
            job.attempt.cancel,
            lambda: states.append(job.transport.state),
            job.spark_ends,
            lambda: leave(job),
        )
    assert states == ["deaf"]


def test_an_attempt_has_failed_when_the_first_sign_came(job: VirtualAttempt) -> None:
    began = job.system.now

    def fail() -> None:
        job.system.now += 2.0
        job.say(1, failed(FailureKind.PEER, "lost in[0]"))

    with pytest.raises(AttemptFailed):
        job.run(job.start, fail, job.spark_ends, lambda: leave(job))
    assert job.system.now > began + 2.0
    assert job.progress.failed_at == began + 2.0


def test_spark_that_has_ended_by_itself_is_not_asked_to(job: VirtualAttempt, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AttemptFailed):
        job.run(job.start, lambda: job.spark_ends(SparkJobFailed("a task failed")), lambda: leave(job))
    assert job.spark.cancels == []
    assert "processes not gone" not in caplog.text


def test_with_the_attempt_its_checkpoints_end(job: VirtualAttempt) -> None:
    answers: list[int | Exception] = []

    def ask() -> None:
        job.attempt.request_checkpoint(CheckpointRequest(), answers.append)

    with pytest.raises(AttemptFailed):
        job.run(job.start, ask, job.attempt.cancel, job.spark_ends, lambda: leave(job))
    assert [str(one) for one in answers] == ["checkpoint 1 failed: the attempt to run the job is ending"]
    assert [row.status for row in job.context.history.rows()] == ["failed"]


# -- the protocol -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TO_DRIVER.classes.values(), ids=TO_DRIVER.classes)
def test_every_message_to_the_driver_is_understood(job: VirtualAttempt, kind: type[Any]) -> None:
    """`assert_never` would say that one isn't."""
    job.start(out=(6,), copy=())
    message = example_of(kind)
    if kind is protocol.Hello:
        job.handle(Connected(job.subtasks[0], "in partition 0"))
    if kind in (protocol.Metrics, protocol.Closed):
        message = kind(METRICS)
    job.say(0, message)
