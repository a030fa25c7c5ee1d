"""A job from its start to its end, over a real folder, with attempts that do what a test says and no Spark."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attempt_parts import job_options
from checkpoint_folders import metadata_of
from deadlines import PATIENCE, eventually
from session_without_spark import FakeSession

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.committables import Committable, CommittableName
from checkpoint.config import CheckpointConfig
from checkpoint.storage import fencing
from checkpoint.storage.errors import StorageError
from checkpoint.storage.metadata import OperatorSnapshot, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.storage import CheckpointStorage
from pipeline import Pipeline, RestartStrategy
from pipeline.errors import NotEnoughSlots, PipelineError
from pipeline.runtime.driver import owner_liveness
from pipeline.runtime.driver.attempt_context import (
    Answer,
    AttemptContext,
    CheckpointRequest,
    NotTriggered,
    Progress,
)
from pipeline.runtime.driver.failures import AttemptFailed
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.runtime.packing import unpack_plan
from pipeline.testing import TestingSink, TestingSource


class Attempt:
    """One attempt; `work` is what it does."""

    def __init__(self, job: Job, context: AttemptContext, progress: Progress, work: Callable[[Attempt], None]) -> None:
        self.job, self.context, self.progress = job, context, progress
        self.cancelled = threading.Event()
        self.requests: list[tuple[CheckpointRequest, Answer]] = []
        self._work = work
        self._completed = 0

    def run(self) -> None:
        self._work(self)

    def cancel(self) -> None:
        self.cancelled.set()

    def request_checkpoint(self, request: CheckpointRequest, answer: Answer) -> None:
        self.requests.append((request, answer))

    def refuse_requests(self) -> None:
        for _, answer in self.requests:
            answer(NotTriggered("over"))

    def checkpoint(self, staged: int = 0) -> CheckpointRef:
        """Complete one, in which the sink has so many committables."""
        start, id = self.context.start, self.context.first_checkpoint + self._completed
        self._completed += 1
        self.context.history.triggered(id, CheckpointKind.CHECKPOINT, 0.0, 0.0)
        lineage, parent = start.lineage
        pending = [Committable(CommittableName(id, i), {}, ()).to_wire() for i in range(staged)]
        out = OperatorSnapshot({"sink": {"pending": [[0, pending]], "committers": []}} if staged else {})
        subtask = SubtaskSnapshot({"in": OperatorSnapshot({"source": None}), "out": out})
        (vertex,) = self.context.plan.vertices
        ref = CheckpointRef(id, start.ownership.attempt)
        metadata = metadata_of(
            ref,
            {},
            pipeline=self.context.spec.pipeline,
            lineage=lineage,
            lineage_parent=parent,
            vertices={vertex.name: VertexSnapshot((subtask,) * vertex.parallelism)},
        )
        return start.storage.write_metadata(id, ref.attempt, metadata)


def finish(attempt: Attempt) -> None:
    """The job has finished."""


def fail(message: str = "boom", **options: Any) -> Callable[[Attempt], None]:
    def work(attempt: Attempt) -> None:
        raise AttemptFailed(message, **options)

    return work


def checkpoint_and_fail(attempt: Attempt) -> None:
    attempt.checkpoint()
    raise AttemptFailed("boom")


def until_cancelled(attempt: Attempt) -> None:
    assert attempt.cancelled.wait(PATIENCE)
    raise AttemptFailed("cancelled", permanent=True)


class Job:
    def __init__(self, folder: Path | None, *works: Callable[[Attempt], None], **options: Any) -> None:
        p = Pipeline("job", parallelism=1)
        p.source("in", TestingSource()).sink("out", options.pop("sink", TestingSink()))
        config = options.pop("config", {})
        self.options = job_options(
            p.plan(),
            graph=p._graph,
            checkpoints=None if folder is None else CheckpointConfig(str(folder), **config),
            **{"restart": RestartStrategy.fixed_delay(attempts=5, delay=0), **options},
        )
        self.attempts: list[Attempt] = []
        self._works = list(works)
        self.master = JobMaster(self.options, session=FakeSession, attempt=self._make)
        self.session: Any = self.master._session
        self.over = threading.Event()
        self.master.on_ended = self.over.set

    def _make(self, context: AttemptContext, progress: Progress) -> Attempt:
        attempt = Attempt(self, context, progress, self._works[len(self.attempts)])
        self.attempts.append(attempt)
        return attempt

    def run(self) -> Job:
        self.master.start()
        assert self.over.wait(PATIENCE)
        return self

    @property
    def restored(self) -> list[int]:
        """What each attempt restored; 0 for nothing."""
        return [one.context.start.restored.id if one.context.start.restored else 0 for one in self.attempts]


def test_a_job_is_restarted_until_it_has_finished(tmp_path: Path) -> None:
    job = Job(tmp_path, checkpoint_and_fail, fail(), checkpoint_and_fail, finish).run()
    assert (job.master.status, job.master.restarts, job.master.failure) == ("finished", 3, None)
    assert job.restored == [0, 1, 1, 2]
    specs = [one.context.spec for one in job.attempts]
    assert [one.first_attempt for one in specs] == [True, False, False, False]
    assert [one.attempt for one in specs] == [1, 2, 3, 4]
    assert job.session.checked == [False, True, True, True]
    assert job.session.closed


def test_each_attempt_goes_on_where_ids_were_not_given_yet(tmp_path: Path) -> None:
    def failing_checkpoint(attempt: Attempt) -> None:
        attempt.context.history.triggered(7, CheckpointKind.CHECKPOINT, 0.0, 0.0)
        raise AttemptFailed("boom")

    job = Job(tmp_path, checkpoint_and_fail, failing_checkpoint, finish).run()
    assert [one.context.first_checkpoint for one in job.attempts] == [1, 2, 8]
    assert Job(tmp_path, finish).run().attempts[0].context.first_checkpoint == 2


def test_the_restart_strategy_says_when_it_is_enough(tmp_path: Path) -> None:
    job = Job(tmp_path, fail(), fail("bang"), restart=RestartStrategy.fixed_delay(attempts=1, delay=0)).run()
    assert job.master.status == "failed"
    assert job.master.failure is not None
    assert job.master.failure.startswith("bang\n(")
    assert job.master.restarts == 1


def test_a_permanent_failure_is_the_jobs(tmp_path: Path) -> None:
    job = Job(tmp_path, fail("wrong", permanent=True)).run()
    assert (job.master.status, job.master.failure, job.master.restarts) == ("failed", "wrong", 0)


def test_where_the_time_of_restarts_went_is_kept_in_order(tmp_path: Path) -> None:
    def failing_late(attempt: Attempt) -> None:
        attempt.progress.failed_at = 1.0
        raise AttemptFailed("boom")

    job = Job(tmp_path, failing_late, fail(), finish).run()
    first, second = job.master.recoveries
    assert first.failed_at == 1.0
    assert first.failed_at < first.ended_at <= first.submitted_at <= second.failed_at == second.ended_at


# -- what is restored -------------------------------------------------------------------------------------------


def damaged(attempt: Attempt) -> None:
    raise AttemptFailed("a file is damaged", damaged="a file is damaged")


def test_after_damage_the_one_before_is_restored_if_that_is_wanted(tmp_path: Path) -> None:
    def two_checkpoints(attempt: Attempt) -> None:
        attempt.checkpoint()
        checkpoint_and_fail(attempt)

    config = {"on_damaged": "previous", "retained": 2}
    # The strategy has nothing to say: it would allow one restart.
    restart = RestartStrategy.fixed_delay(attempts=1, delay=0)
    job = Job(tmp_path, two_checkpoints, damaged, finish, config=config, restart=restart).run()
    assert (job.master.status, job.restored) == ("finished", [0, 2, 1])


def test_without_that_damage_is_the_jobs_failure(tmp_path: Path) -> None:
    job = Job(tmp_path, checkpoint_and_fail, damaged).run()
    assert job.master.status == "failed"
    assert "a file is damaged" in str(job.master.failure)


def test_the_lineage_stays_the_same_over_attempts_and_starts(tmp_path: Path) -> None:
    job = Job(tmp_path, fail(), checkpoint_and_fail, finish).run()
    first, second, third = (one.context.start.lineage for one in job.attempts)
    assert first == second == third
    (fourth,) = [one.context.start.lineage for one in Job(tmp_path, finish).run().attempts]
    assert fourth == first


def test_a_rewind_branches_off_once(tmp_path: Path) -> None:
    (before,) = Job(tmp_path, checkpoint_and_fail, finish).run().attempts[:1]
    old = before.context.start.lineage[0]
    job = Job(tmp_path, fail(), checkpoint_and_fail, finish, rewind=True).run()
    starts = [one.context.start for one in job.attempts]
    assert [one.rewind for one in starts] == [True, True, False]
    assert len({one.lineage for one in starts}) == 1
    assert starts[0].lineage[1] == (old, 1)
    assert starts[0].lineage[0] != old


def test_a_fork_leaves_output_to_the_original_and_branches_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def staging(attempt: Attempt) -> None:
        attempt.checkpoint(staged=2)

    (original,) = Job(tmp_path, staging).run().attempts
    (ref,) = original.context.start.storage.list_checkpoints()
    uri = original.context.start.storage.uri_of(ref.path)
    fork = Job(tmp_path, fail(), finish, name="fork", restore=uri).run()
    assert (fork.master.status, fork.restored) == ("finished", [1, 1])
    for attempt in fork.attempts:
        start = attempt.context.start
        assert (start.claimed, start.rewind, start.retained) == (False, False, ())
        assert start.lineage[1] == (original.context.start.lineage[0], 1)
        assert start.restored_storage.location != start.storage.location
    assert "(2 parts); it is left to pipeline 'job'" in caplog.text


def test_an_older_checkpoint_that_is_damaged_stands_in_nobodys_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def two_checkpoints(attempt: Attempt) -> None:
        attempt.checkpoint()
        attempt.checkpoint()

    Job(tmp_path, two_checkpoints).run()
    storage = CheckpointStorage(str(tmp_path), "job")
    older, newer = storage.list_checkpoints()
    storage.put(f"{older.path}/_metadata", b"damaged")
    (attempt,) = Job(tmp_path, finish, config={"retained": 2}).run().attempts
    start = attempt.context.start
    assert (start.restored and start.restored.ref, start.cleanup.unreadable) == (newer, (older,))
    assert "an older checkpoint is damaged" in caplog.text


def test_records_that_are_left_out_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Job(tmp_path, checkpoint_and_fail, finish).run()
    Job(tmp_path, finish, ignore_in_flight=1).run()
    assert "checkpoint 1 is restored without its in-flight data; records dropped: none" in caplog.text


def test_a_start_of_a_job_that_runs_is_refused_unless_it_takes_it_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[str] = []
    checked: list[bool] = []

    def start_again(attempt: Attempt) -> None:
        jobs = [Job(tmp_path, finish, take_over=take_over).run() for take_over in (False, True)]
        outcomes.extend(str(job.master.failure) for job in jobs)
        checked.extend(jobs[0].session.checked)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        job = Job(tmp_path, start_again)
        job.master.address = f"127.0.0.1:{listener.getsockname()[1]}"
        # The listener stands for the server that a job has in this process.
        monkeypatch.setattr(owner_liveness, "OPEN_HERE", {job.master.address})
        job.run()
    assert "runs already" in outcomes[0]
    assert outcomes[1] == "None"
    assert checked == [], "it is refused before Spark starts, which takes seconds"


def test_what_others_have_left_is_known_to_the_attempt(tmp_path: Path) -> None:
    Job(tmp_path, checkpoint_and_fail, finish).run()
    start = Job(tmp_path, finish).run().attempts[0].context.start
    assert start.retained == tuple(start.storage.list_checkpoints()) != ()
    assert (start.claimed, start.probe is not None) == (True, True)


def test_a_job_without_checkpoints_has_a_folder_of_its_own_until_its_end() -> None:
    folders: list[Path] = []

    def look(attempt: Attempt) -> None:
        folders.append(Path(attempt.context.start.storage.location.removeprefix("file://")))
        assert folders[-1].exists()

    job = Job(None, look).run()
    assert job.master.status == "finished"
    config = job.attempts[0].context.spec.checkpoints
    assert (config.interval_s, config.alignment_timeout_s, config.slow_storage_span_s) == (None, None, 0.0)
    assert not folders[0].exists()


# -- what ends a job --------------------------------------------------------------------------------------------


def test_a_driver_whose_job_was_taken_over_does_not_take_it_back(tmp_path: Path) -> None:
    def taken_over(attempt: Attempt) -> None:
        fencing.take_ownership(attempt.context.start.storage)
        raise AttemptFailed("boom")

    job = Job(tmp_path, taken_over, finish).run()
    assert (job.master.status, len(job.attempts)) == ("failed", 1)
    assert "has a newer owner" in str(job.master.failure)


def test_slots_that_do_not_become_free_are_a_failure_that_a_restart_may_help(tmp_path: Path) -> None:
    def no_slots_meanwhile(attempt: Attempt) -> None:
        attempt.job.session.error = NotEnoughSlots("3 of 4")
        raise AttemptFailed("boom")

    job = Job(tmp_path, no_slots_meanwhile, restart=RestartStrategy.fixed_delay(attempts=2, delay=0)).run()
    assert (job.master.status, job.master.restarts) == ("failed", 2)
    assert str(job.master.failure).startswith("NotEnoughSlots: 3 of 4\n(")


def test_that_spark_is_gone_explains_more_than_what_came_of_it(tmp_path: Path) -> None:
    def lose(attempt: Attempt) -> None:
        attempt.job.session.is_lost = "the JVM is gone"
        raise AttemptFailed("a connection is lost")

    job = Job(tmp_path, lose, finish).run()
    assert (job.master.status, job.master.failure, len(job.attempts)) == ("failed", "the JVM is gone", 1)


def test_users_code_that_fails_is_told_with_its_place(tmp_path: Path) -> None:
    job = Job(tmp_path, lambda attempt: 1 // 0).run()  # type: ignore[arg-type,return-value]
    assert job.master.status == "failed"
    assert "ZeroDivisionError" in str(job.master.failure)
    assert "test_job_master.py" in str(job.master.failure)


# -- cancelling -------------------------------------------------------------------------------------------------


def test_a_cancelled_job_keeps_its_checkpoints(tmp_path: Path) -> None:
    def work(attempt: Attempt) -> None:
        attempt.checkpoint()
        attempt.job.master.cancel()
        until_cancelled(attempt)

    job = Job(tmp_path, work).run()
    assert (job.master.status, job.master.failure) == ("cancelled", None)
    assert len(CheckpointStorage(str(tmp_path), "job").list_checkpoints()) == 1


@pytest.mark.parametrize(("staged", "committed", "kept"), [(0, 0, False), (1, 0, True), (1, 1, False), (1, 2, False)])
def test_without_retain_on_cancel_they_go_unless_they_hold_uncommitted_output(
    tmp_path: Path, staged: int, committed: int, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def work(attempt: Attempt) -> None:
        attempt.checkpoint(staged)
        attempt.progress.committed = committed
        attempt.job.master.cancel()
        until_cancelled(attempt)

    job = Job(tmp_path, work, config={"retain_on_cancel": False}).run()
    assert job.master.status == "cancelled"
    assert bool(CheckpointStorage(str(tmp_path), "job").list_checkpoints()) is kept
    assert ("kept in spite of retain_on_cancel=False" in caplog.text) is kept


def test_a_driver_whose_job_was_taken_over_deletes_nothing_of_it(tmp_path: Path) -> None:
    def work(attempt: Attempt) -> None:
        attempt.checkpoint()
        attempt.progress.committed = 1
        fencing.take_ownership(CheckpointStorage(str(tmp_path), "job"))
        attempt.job.master.cancel()
        until_cancelled(attempt)

    Job(tmp_path, work, config={"retain_on_cancel": False}).run()
    assert len(CheckpointStorage(str(tmp_path), "job").list_checkpoints()) == 1


def test_a_job_that_is_cancelled_before_it_starts_has_no_attempt(tmp_path: Path) -> None:
    Job(tmp_path, checkpoint_and_fail, finish).run()
    job = Job(tmp_path, finish, config={"retain_on_cancel": False})
    job.master.cancel()
    job.run()
    assert (job.master.status, job.attempts) == ("cancelled", [])
    assert len(CheckpointStorage(str(tmp_path), "job").list_checkpoints()) == 1, "it never owned them"


def test_a_cancel_ends_the_wait_for_a_restart(tmp_path: Path) -> None:
    def work(attempt: Attempt) -> None:
        threading.Timer(0.05, attempt.job.master.cancel).start()
        raise AttemptFailed("boom")

    job = Job(tmp_path, work, restart=RestartStrategy.fixed_delay(delay=1000)).run()
    assert (job.master.status, job.master.restarts) == ("cancelled", 0)


def test_a_stop_ends_the_wait_for_a_restart_and_the_next_attempt_gets_it(tmp_path: Path) -> None:
    stop = CheckpointRequest(CheckpointKind.FINAL, stop=True)

    def ask_and_fail(attempt: Attempt) -> None:
        threading.Timer(0.05, attempt.job.master.request_checkpoint, (stop, lambda result: None)).start()
        raise AttemptFailed("boom")

    job = Job(tmp_path, ask_and_fail, finish, restart=RestartStrategy.fixed_delay(delay=1000)).run()
    assert (job.master.status, job.master.restarts) == ("finished", 1)
    assert [request for request, _ in job.attempts[1].requests] == [stop]


class StartsForLong(FakeSession):
    """Its Spark never comes up. `meanwhile` is what happens then."""

    meanwhile: Callable[[], None]

    def open(self, not_needed: Callable[[], bool]) -> bool:
        self.meanwhile()
        eventually(not_needed)
        return False


def while_spark_starts(job: Job, meanwhile: Callable[[], None]) -> Job:
    session = StartsForLong(job.options)
    session.meanwhile = meanwhile
    job.master._session = session
    return job.run()


def test_a_cancel_does_not_wait_for_spark(tmp_path: Path) -> None:
    job = Job(tmp_path, finish)
    while_spark_starts(job, job.master.cancel)
    assert (job.master.status, job.attempts) == ("cancelled", [])


SIGNAL = CheckpointRequest(CheckpointKind.FINAL, stop=True, or_not_begin=True)


def test_a_signal_ends_a_job_that_has_nothing_to_do_while_its_spark_starts(tmp_path: Path) -> None:
    Job(tmp_path, checkpoint_and_fail, finish).run()
    job, answers = Job(tmp_path, finish), []
    while_spark_starts(job, lambda: job.master.request_checkpoint(SIGNAL, answers.append))
    assert (job.master.status, job.attempts, answers) == ("finished", [], [0])


def test_with_output_to_commit_a_signal_waits_for_spark(tmp_path: Path) -> None:
    def stage(attempt: Attempt) -> None:
        attempt.checkpoint(staged=1)
        attempt.job.master.cancel()
        until_cancelled(attempt)

    Job(tmp_path, stage).run()
    job = Job(tmp_path, finish)

    class Session(FakeSession):
        def open(self, not_needed: Callable[[], bool]) -> bool:
            job.master.request_checkpoint(SIGNAL, lambda result: None)
            assert not not_needed()
            return True

    job.master._session = Session(job.options)
    job.run()
    assert [request for request, _ in job.attempts[0].requests] == [SIGNAL]


def test_a_stop_that_wants_its_checkpoint_waits_for_spark(tmp_path: Path) -> None:
    job = Job(tmp_path, finish)

    class Session(FakeSession):
        def open(self, not_needed: Callable[[], bool]) -> bool:
            job.master.request_checkpoint(CheckpointRequest(CheckpointKind.FINAL, stop=True), lambda result: None)
            assert not not_needed()
            return True

    job.master._session = Session(job.options)
    job.run()
    assert len(job.attempts) == 1


def test_a_cancel_while_an_attempt_is_being_made_reaches_it(tmp_path: Path) -> None:
    job = Job(tmp_path, until_cancelled)
    make = job.master._make_attempt

    def cancel_meanwhile(context: AttemptContext, progress: Progress) -> Any:
        job.master.cancel()
        return make(context, progress)

    job.master._make_attempt = cancel_meanwhile
    assert job.run().master.status == "cancelled"


# -- requests ---------------------------------------------------------------------------------------------------


def test_requests_between_attempts_go_to_the_next_one_and_once(tmp_path: Path) -> None:
    answers: list[int | Exception] = []

    def answer_all(attempt: Attempt) -> None:
        for _, answer in attempt.requests:
            answer(5)
        attempt.requests.clear()

    job = Job(tmp_path, answer_all)
    job.master.request_checkpoint(CheckpointRequest(), answers.append)
    assert answers == []
    job.run()
    assert answers == [5]
    job.master.request_checkpoint(CheckpointRequest(), answers.append)
    assert [type(one) for one in answers] == [int, NotTriggered]


def test_requests_that_an_attempt_leaves_open_are_refused_by_it(tmp_path: Path) -> None:
    answers: list[int | Exception] = []

    def ask(attempt: Attempt) -> None:
        attempt.job.master.request_checkpoint(CheckpointRequest(), answers.append)

    Job(tmp_path, ask).run()
    assert [str(one) for one in answers] == ["over"]


@pytest.mark.parametrize(("answer", "stops"), [(1, True), (RuntimeError("no"), False)])
def test_an_attempt_after_the_last_checkpoint_only_commits(
    tmp_path: Path, answer: int | Exception, stops: bool
) -> None:
    def stop_and_fail(attempt: Attempt) -> None:
        request = CheckpointRequest(CheckpointKind.FINAL, stop=True)
        attempt.job.master.request_checkpoint(request, lambda result: None)
        attempt.requests.pop()[1](answer)
        raise AttemptFailed("boom")

    job = Job(tmp_path, stop_and_fail, finish).run()
    assert [one.context.commit_only for one in job.attempts] == [False, stops]
    assert job.master.stopped is stops


def test_a_checkpoint_that_is_complete_is_no_stop(tmp_path: Path) -> None:
    def answer_and_fail(attempt: Attempt) -> None:
        attempt.job.master.request_checkpoint(CheckpointRequest(), lambda result: None)
        attempt.requests.pop()[1](1)
        raise AttemptFailed("boom")

    job = Job(tmp_path, answer_and_fail, finish).run()
    assert [one.context.commit_only for one in job.attempts] == [False, False]


# -- rescaling --------------------------------------------------------------------------------------------------


def run(attempt: Attempt) -> None:
    """All its subtasks do."""
    attempt.progress.running_at = 1.0
    attempt.progress.on_running()


class Rescale:
    """A first attempt that runs, is to have two subtasks, and takes its last checkpoint."""

    def __init__(self, result: int | Exception) -> None:
        """`result`: what comes of the checkpoint."""
        self.answers: list[Exception | None] = []
        self.others: list[int | Exception] = []
        """Of somebody who asks for a checkpoint meanwhile."""
        self.request = CheckpointRequest()
        self._result = result

    def __call__(self, attempt: Attempt) -> None:
        master = attempt.job.master
        run(attempt)
        master.rescale(2, None, self.answers.append)
        ((self.request, answer),) = attempt.requests
        attempt.requests.clear()
        attempt.checkpoint()
        master.request_checkpoint(CheckpointRequest(), self.others.append)
        assert (attempt.requests, self.others, master.rescaling) == ([], [], "in, out 1 → 2")
        answer(self._result)


def widths(job: Job) -> list[tuple[int, int]]:
    """How many subtasks each attempt had, by its own plan and by the one that they got."""
    return [(one.context.plan.subtasks, unpack_plan(one.context.spec.plan).subtasks) for one in job.attempts]


def test_behind_its_last_checkpoint_the_job_goes_on_at_the_new_parallelism(tmp_path: Path) -> None:
    rescale, statuses = Rescale(1), list[Any]()

    def second(attempt: Attempt) -> None:
        statuses.append((attempt.job.master.status, attempt.job.master.rescaling, len(rescale.answers)))
        ((_, answer),) = attempt.requests
        answer(5)
        attempt.requests.clear()
        run(attempt)

    def first(attempt: Attempt) -> None:
        rescale(attempt)
        statuses.append((attempt.job.master.status, attempt.job.master.rescaling, len(rescale.answers)))

    job = Job(tmp_path, first, second).run()
    assert statuses == [("rescaling", "in, out 1 → 2", 0), ("running", "in, out 1 → 2", 0)]
    assert (rescale.request.kind, rescale.request.stop, rescale.request.unaligned) == (CheckpointKind.FINAL, True, True)
    assert (rescale.answers, rescale.others) == ([None], [5])
    assert (widths(job), job.restored) == ([(1, 1), (2, 2)], [0, 1])
    assert [one.context.commit_only for one in job.attempts] == [False, False]
    assert [one.context.spec.first_attempt for one in job.attempts] == [True, False]
    assert (job.master.status, job.master.restarts, job.master.recoveries) == ("finished", 0, [])
    assert [one.what for one in job.master.rescales] == ["in, out 1 → 2"]


def test_a_rescale_whose_checkpoint_fails_leaves_the_job_as_it_is(tmp_path: Path) -> None:
    rescale = Rescale(RuntimeError("no space"))

    def goes_on(attempt: Attempt) -> None:
        rescale(attempt)
        assert attempt.job.master.status == "running"
        assert len(attempt.requests) == 1, "what was held back is asked for now"

    job = Job(tmp_path, goes_on).run()
    assert [str(one) for one in rescale.answers] == ["the job was not rescaled, and keeps its parallelism: no space"]
    assert (job.master.status, job.master.failure, widths(job), job.master.rescales) == ("finished", None, [(1, 1)], [])


def test_a_first_attempt_that_fails_for_good_is_followed_by_one_as_before(tmp_path: Path) -> None:
    rescale = Rescale(1)
    works = (rescale, fail("too wide", permanent=True), finish)
    job = Job(tmp_path, *works, restart=RestartStrategy.fixed_delay(attempts=1, delay=0)).run()
    assert (job.master.status, job.master.restarts) == ("finished", 1)
    assert widths(job) == [(1, 1), (2, 2), (1, 1)]
    assert [str(one).rpartition(": ")[2] for one in rescale.answers] == ["too wide"]


def test_whoever_wants_a_job_rescaled_that_ends_is_told(tmp_path: Path) -> None:
    rescale = Rescale(1)

    def cancelled_behind_it(attempt: Attempt) -> None:
        rescale(attempt)
        attempt.job.master.cancel()
        raise AttemptFailed("cancelled", permanent=True)

    job = Job(tmp_path, cancelled_behind_it).run()
    assert (job.master.status, job.master.rescaling) == ("cancelled", None)
    assert [str(one) for one in rescale.answers] == ["the job is cancelled, so that it can't be rescaled any more"]


def test_a_job_that_is_to_end_is_rescaled_by_users_only(tmp_path: Path) -> None:
    def stopping(attempt: Attempt) -> None:
        master = attempt.job.master
        run(attempt)
        master.request_checkpoint(CheckpointRequest(CheckpointKind.FINAL, stop=True), lambda result: None)
        with pytest.raises(PipelineError, match="the job is to end"):
            master.rescale_by_itself({"in": 2}, lambda result: None)
        assert len(attempt.requests) == 1
        master.rescale(2, None, lambda result: None)
        assert len(attempt.requests) == 2

    job = Job(tmp_path, stopping).run()
    assert job.master.status == "finished", job.master.failure


class Narrow(TestingSink):
    def validate_as(self, pipeline: str, sink_id: str, parallelism: int) -> None:
        if parallelism == 2:
            raise ValueError("has three partitions")


def test_what_cannot_be_is_refused_before_anything_of_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(plan: Any) -> None:
        if plan.subtasks > 2:
            raise NotEnoughSlots("2 slots")

    def asks(attempt: Attempt) -> None:
        master = attempt.job.master
        with pytest.raises(PipelineError, match="the job is starting, and only one that runs"):
            master.rescale(2, None, lambda result: None)
        run(attempt)
        monkeypatch.setattr(attempt.job.session, "require_room", no_room)
        with pytest.raises(NotEnoughSlots):
            master.rescale(3, None, lambda result: None)
        with pytest.raises(PipelineError, match="has three partitions"):
            master.rescale(2, None, lambda result: None)
        assert (attempt.requests, master.rescaling) == ([], None)

    job = Job(tmp_path, asks, sink=Narrow()).run()
    assert job.master.status == "finished", job.master.failure


# -- trouble at the start of an attempt -------------------------------------------------------------------------


@pytest.mark.parametrize(("failing", "attempts"), [(1, 0), (2, 2)])
def test_a_folder_that_cannot_be_used_ends_the_first_start_and_is_tried_again_at_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, attempts: int
) -> None:
    take_ownership, taken = fencing.take_ownership, 0

    def flaky(*args: Any, **options: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken == failing:
            raise StorageError("the storage is away")
        return take_ownership(*args, **options)

    monkeypatch.setattr(fencing, "take_ownership", flaky)
    job = Job(tmp_path, fail(), finish).run()
    assert (job.master.status, len(job.attempts)) == ("finished" if attempts else "failed", attempts)
    assert job.master.restarts == (2 if attempts else 0)


def test_spark_that_does_not_start_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(options: Any) -> None:
        monkeypatch.undo()
        raise OSError("no JVM")

    job = Job(tmp_path, finish)
    monkeypatch.setattr(job.session, "fit", away)
    job.run()
    assert (job.master.status, job.master.restarts) == ("finished", 1)
