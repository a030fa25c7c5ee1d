"""Starting, stopping, asking for checkpoints, and giving up: what a handle does."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from deadlines import PATIENCE, eventually
from small_job import (
    NEVER,
    assert_exact,
    checkpoints_of,
    failure_of,
    folder_of,
    records,
    running,
    small_job,
    storage_of,
)

from checkpoint.storage import fencing
from checkpoint.storage.naming import CheckpointRef
from pipeline import JobCancelled, JobFailed, Operator, Pipeline, RestartStrategy
from pipeline.runtime.driver import owner_liveness
from pipeline.runtime.driver.spark import session
from pipeline.testing import JobEnded, TestingSink, TestingSource, failpoints

Name = Callable[[str], str]
SUPPORT = Path(__file__).parent.parent / "support"


def paused_source(tmp_path: Path) -> TestingSource:
    return TestingSource([*records(0, 10), TestingSource.PAUSE(), *records(10, 20)], directory=tmp_path / "source")


# -- the end of a job -----------------------------------------------------------------------------------------


def test_a_bounded_job_ends_with_a_final_checkpoint_and_everything_committed(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    sink = TestingSink()
    p = small_job(unique_name("job"), tmp_path, TestingSource(records(0, 20)), sink, parallelism=2, **NEVER)
    handle = p.run(spark=spark, timeout=PATIENCE)
    assert (handle.status, handle.restarts, handle.failure) == ("finished", 0, None)
    assert_exact(sink, records(0, 20))
    (row,) = handle.checkpoints()
    assert (row.kind, row.status) == ("final", "completed")
    assert {s.name for s in row.subtasks} == {"in[0]", "in[1]", "count → out[0]", "count → out[1]"}
    assert [ref.id for ref in checkpoints_of(p)] == [row.id]


def test_without_a_checkpoint_folder_a_bounded_job_is_exact_too(unique_name: Name, spark: Any) -> None:
    sink, p = TestingSink(), Pipeline(unique_name("job"), parallelism=2)
    source = p.source("in", TestingSource([1, 2, 3]))
    source.map(lambda v: v * 10).sink("out", sink)
    source.rebalance().filter(lambda v: v > 1).sink("few", TestingSink())
    handle = p.run(spark=spark, timeout=PATIENCE)
    assert sorted(sink.records) == [10, 20, 30]
    assert (handle.records_in, handle.records_out) == (3, 5)


def test_a_job_that_ends_says_how_much_went_in_and_out(
    unique_name: Name, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    p = Pipeline(name := unique_name("job"))
    p.source("in", TestingSource(range(30))).filter(lambda v: v < 0).sink("out", TestingSink())
    p.run(spark=spark, timeout=PATIENCE)
    (said,) = [record for record in caplog.records if "finished" in record.getMessage()]
    assert (said.getMessage(), said.levelname) == (f"job {name} finished: 30 in, 0 out", "WARNING")


def test_who_waits_for_a_source_or_a_failpoint_is_told_that_the_job_has_failed(unique_name: Name, spark: Any) -> None:
    def fail(value: Any) -> Any:
        raise ValueError("no such thing")

    source = TestingSource([1, TestingSource.PAUSE()])
    p = Pipeline(unique_name("job"), restart=RestartStrategy.none())
    p.source("in", source).map(fail).sink("out", TestingSink())
    with failpoints.fail("committer.before_commit") as point:
        p.start(spark=spark)
        with pytest.raises(JobEnded, match=r"PAUSE\(\) was reached, and won't be: job .* is failed: (.|\n)*no such"):
            source.wait_until_paused(300.0)
        with pytest.raises(JobEnded, match=r"committer\.before_commit was reached 0 times"):
            point.wait(300.0)


def test_a_final_checkpoint_that_fails_is_taken_again(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    sink = TestingSink()
    p = small_job(unique_name("job"), tmp_path, TestingSource(records(0, 5)), sink, **NEVER, tolerable_failures=1)
    with failpoints.fail("snapshot.async_write") as point:
        handle = p.run(spark=spark, timeout=PATIENCE)
    assert point.fired
    assert [(row.kind, row.status) for row in handle.checkpoints()] == [("final", "failed"), ("final", "completed")]
    assert "injected at snapshot.async_write" in (handle.checkpoints()[0].failure or "")
    assert_exact(sink, records(0, 5))


def test_cancelling_says_so_to_who_waits_and_commits_nothing_more(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    sink, source = TestingSink(), paused_source(tmp_path)
    p = small_job(unique_name("job"), tmp_path, source, sink, **NEVER)
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(handle.wait, PATIENCE)
            handle.cancel()
            with pytest.raises(JobCancelled):
                waiting.result(PATIENCE)
    assert (handle.status, handle.failure, sink.records) == ("cancelled", None, [])
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in handle.processes().values()))
    handle.cancel()


def test_a_wait_that_is_over_leaves_the_job_running(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    source = paused_source(tmp_path)
    with running(small_job(unique_name("job"), tmp_path, source, TestingSink()), spark) as handle:
        source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        where = r"running, \d+ records in, \d+ out, checkpoint \d+ (in progress|completed)"
        with pytest.raises(TimeoutError, match=f"the job still runs after 0 s: {where}$"):
            handle.wait(0)
        source.release()
        handle.wait(PATIENCE)


def test_a_run_that_takes_too_long_is_cancelled(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    source = paused_source(tmp_path)
    p = small_job(unique_name("job"), tmp_path, source, TestingSink(tmp_path / "sink"))
    with pytest.raises(TimeoutError):
        p.run(spark=spark, timeout=0.5)
    source.release()
    p.run(spark=spark, timeout=PATIENCE)
    assert_exact(TestingSink(tmp_path / "sink"), records(0, 20))


def test_retain_on_cancel_false_leaves_no_checkpoint(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    sink, source = TestingSink(), paused_source(tmp_path)
    p = small_job(unique_name("job"), tmp_path, source, sink, retained=3, retain_on_cancel=False, **NEVER)
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        for _ in range(2):
            handle.checkpoint(PATIENCE)
        assert len(checkpoints_of(p)) == 2
    assert storage_of(p).folders() == []
    assert storage_of(p).list_shared() == []


def test_a_finished_job_keeps_its_checkpoint_also_with_retain_on_cancel_false(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    p = small_job(unique_name("job"), tmp_path, TestingSource(records(0, 3)), TestingSink(), retain_on_cancel=False)
    handle = p.run(spark=spark, timeout=PATIENCE)
    handle.cancel()
    assert handle.status == "finished"
    assert len(checkpoints_of(p)) == 1


# -- checkpoints on request -----------------------------------------------------------------------------------


def test_a_requested_checkpoint_is_durable_when_its_id_comes_back(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    source = paused_source(tmp_path)
    p = small_job(unique_name("job"), tmp_path, source, TestingSink(), **NEVER, retained=5)
    with running(p, spark) as handle:
        first = handle.checkpoint(PATIENCE)  # waits for the job to run, too
        source.wait_until_paused(PATIENCE)
        second = handle.checkpoint(PATIENCE)
        assert [ref.id for ref in checkpoints_of(p)] == [first, second]
        assert [(row.id, row.status) for row in handle.checkpoints()] == [(first, "completed"), (second, "completed")]


def test_a_request_is_not_answered_by_a_checkpoint_that_was_under_way_before_it(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    source = paused_source(tmp_path)
    p = small_job(unique_name("job"), tmp_path, source, TestingSink(), **NEVER)
    point = failpoints.hold("coordinator.before_metadata")
    with running(p, spark) as handle, ThreadPoolExecutor(2) as pool:
        first = pool.submit(handle.checkpoint, PATIENCE)
        point.wait(PATIENCE)
        second = pool.submit(handle.checkpoint, PATIENCE)
        eventually(second.running)
        point.release()
        assert first.result(PATIENCE) < second.result(PATIENCE)


def test_of_two_requested_checkpoints_under_way_at_once_each_answers_its_own_request(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    p = small_job(unique_name("job"), tmp_path, paused_source(tmp_path), TestingSink(), **NEVER, max_concurrent=2)
    first_held = failpoints.hold("snapshot.async_write", times=2)
    second_held = failpoints.hold("coordinator.before_metadata")
    with running(p, spark) as handle, ThreadPoolExecutor(2) as pool:
        first = pool.submit(handle.checkpoint, PATIENCE)
        eventually(lambda: first_held.hits == 2)
        second = pool.submit(handle.checkpoint, PATIENCE)
        second_held.wait(PATIENCE)
        first_held.release()
        assert first.result(PATIENCE) == 1
        assert not second.done()
        second_held.release()
        assert second.result(PATIENCE) == 2


def test_a_request_whose_checkpoint_is_subsumed_is_answered_by_the_newer_one(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    p = small_job(unique_name("job"), tmp_path, paused_source(tmp_path), TestingSink(), **NEVER, max_concurrent=2)
    held = failpoints.hold("coordinator.before_metadata")
    with running(p, spark) as handle, ThreadPoolExecutor(2) as pool:
        first = pool.submit(handle.checkpoint, PATIENCE)
        held.wait(PATIENCE)
        second = pool.submit(handle.checkpoint, PATIENCE)
        assert (first.result(PATIENCE), second.result(PATIENCE)) == (2, 2)
        held.release()


def test_a_requested_checkpoint_that_fails_says_why(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    source = paused_source(tmp_path)
    p = small_job(unique_name("job"), tmp_path, source, TestingSink(), **NEVER, tolerable_failures=5)
    with failpoints.fail("coordinator.before_metadata"), running(p, spark) as handle:
        with pytest.raises(RuntimeError, match=r"checkpoint \d+ failed: .*injected at coordinator\.before_metadata"):
            handle.checkpoint(PATIENCE)
        assert handle.checkpoint(PATIENCE) > 1
        assert handle.status == "running"


def test_a_request_that_the_job_does_not_live_to_serve_is_refused(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    source = paused_source(tmp_path)
    p = small_job(unique_name("job"), tmp_path, source, TestingSink(), **NEVER)
    failpoints.hold("snapshot.async_write", times=100)
    with running(p, spark) as handle, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(handle.checkpoint, PATIENCE)
        eventually(lambda: any(row.status == "in_progress" for row in handle.checkpoints()))
        with pytest.raises(TimeoutError, match=r"isn't complete after 0\.1 s"):
            handle.checkpoint(0.1)
        handle.cancel()
        with pytest.raises(RuntimeError, match=r"the attempt to run the job is ending|the attempt ended"):
            asked.result(PATIENCE)
    with pytest.raises(RuntimeError, match="the job is cancelled, so no checkpoint is taken any more"):
        handle.checkpoint(PATIENCE)


# -- names ----------------------------------------------------------------------------------------------------


def test_a_driver_that_has_come_while_spark_started_is_not_ended_unasked(
    tmp_path: Path, unique_name: Name, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a job is started twice at the same time."""
    p = small_job(unique_name("job"), tmp_path, paused_source(tmp_path), TestingSink())
    with socket.create_server(("127.0.0.1", 0)) as listens:
        address = f"127.0.0.1:{listens.getsockname()[1]}"
        # The listener stands for the server that a job has in this process.
        monkeypatch.setattr(owner_liveness, "OPEN_HERE", {address})
        monkeypatch.setattr(session, "require_slots", lambda *_: fencing.take_ownership(storage_of(p), address=address))
        assert "runs already" in failure_of(p, spark)
    assert len(storage_of(p).owners()) == 1  # the other one's


def test_a_second_job_of_the_same_name_takes_over_if_it_says_so_and_the_first_one_stops(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    sink, source, name = TestingSink(tmp_path / "sink"), paused_source(tmp_path), unique_name("job")
    first = small_job(name, tmp_path, source, sink, restart=RestartStrategy.fixed_delay(attempts=5, delay=0.05))
    with running(first, spark) as stalled:
        source.wait_until_paused(PATIENCE)
        stalled.checkpoint(PATIENCE)
        refused = failure_of(small_job(name, tmp_path, source, sink), spark)
        assert f"job {name!r} runs already, in process {os.getpid()} on host" in refused
        assert "start with --take-over, or start(take_over=True)" in refused
        stalled.checkpoint(PATIENCE)  # goes on as before
        with running(small_job(name, tmp_path, source, sink), spark, take_over=True) as handle:
            with pytest.raises(JobFailed) as caught:
                stalled.wait(PATIENCE)
            source.release()
            handle.wait(PATIENCE)
    message = str(caught.value)
    assert "has a newer owner, owner-2-" in message
    assert "If both were meant to run, give one another pipeline name or checkpoint folder" in message
    assert_exact(sink, records(0, 20))


def test_jobs_of_different_names_share_a_folder_and_a_session(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    sinks = [TestingSink() for _ in range(2)]
    jobs = [small_job(unique_name("job"), tmp_path, TestingSource(records(0, 9)), sink) for sink in sinks]
    for handle in [job.start(spark=spark) for job in jobs]:
        handle.wait(PATIENCE)
    for sink in sinks:
        assert_exact(sink, records(0, 9))


# -- restarts -------------------------------------------------------------------------------------------------


class Fails(Operator):
    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        raise RuntimeError("always")


def failing(name: str, folder: Path, restart: RestartStrategy) -> Pipeline:
    source = TestingSource(records(0, 1))
    return small_job(name, folder, source, TestingSink(), then=lambda s: s.process("fails", Fails()), restart=restart)


def test_without_restarts_the_first_failure_is_the_jobs(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    message = failure_of(failing(unique_name("job"), tmp_path, RestartStrategy.none()), spark)
    assert "RuntimeError: always" in message
    assert message.endswith("(no restarts are configured)")


@pytest.mark.parametrize(
    ("strategy", "end"),
    [
        (RestartStrategy.fixed_delay(attempts=2, delay=0.01), "(2 restarts are used up)"),
        (RestartStrategy.exponential(0.01, attempts=2), "(2 restarts are used up, without 300 s of rest)"),
    ],
)
def test_when_restarts_are_used_up_the_job_fails_with_the_last_cause(
    tmp_path: Path, unique_name: Name, spark: Any, strategy: RestartStrategy, end: str
) -> None:
    handle = failing(unique_name("job"), tmp_path, strategy).start(spark=spark)
    with pytest.raises(JobFailed, match="RuntimeError: always") as caught:
        handle.wait(PATIENCE)
    assert str(caught.value).endswith(end)
    assert handle.restarts == 2
    assert len(handle.recoveries()) == 2


def test_a_job_that_waits_for_its_restart_can_be_cancelled(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    p = failing(unique_name("job"), tmp_path, RestartStrategy.fixed_delay(attempts=1, delay=3600))
    with running(p, spark) as handle:
        eventually(lambda: handle.status == "restarting")
        assert "RuntimeError: always" in (handle.failure or "")
        with pytest.raises(TimeoutError):
            handle.checkpoint(0.05)  # waits for the restart
    assert (handle.status, handle.restarts) == ("cancelled", 0)


def test_checkpoint_ids_never_repeat_over_attempts(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    """Also of checkpoints that failed and left nothing behind."""
    source = TestingSource(
        [*records(0, 5), TestingSource.PAUSE(), TestingSource.ABORT(), *records(5, 9)], directory=tmp_path / "source"
    )
    sink = TestingSink()
    restart = RestartStrategy.fixed_delay(attempts=1, delay=0.01)
    p = small_job(unique_name("job"), tmp_path, source, sink, **NEVER, tolerable_failures=9, restart=restart)
    failing = failpoints.fail("snapshot.async_write", times=100)
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        with pytest.raises(RuntimeError, match=r"injected at snapshot\.async_write"):
            handle.checkpoint(PATIENCE)
        failing.disarm()

        def forgotten() -> bool:
            """A storage that has no folders, but names of files, has nothing of it; another subtask may still write."""
            shutil.rmtree(folder_of(p, CheckpointRef(1, 1)), ignore_errors=True)
            return storage_of(p).largest_id() == 0

        eventually(forgotten)
        source.release()
        handle.wait(PATIENCE)
    ids = [(row.id, row.status) for row in handle.checkpoints()]
    assert ids == [(1, "failed"), (2, "completed")]
    assert handle.restarts == 1
    assert_exact(sink, records(0, 9))


# -- Ctrl-C ---------------------------------------------------------------------------------------------------


def processes_with(variable: str, value: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(variable) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize("session", ["own", "given"])
def test_ctrl_c_ends_the_job_and_all_its_processes_and_a_later_start_goes_on_exactly(
    tmp_path: Path, unique_name: Name, spark: Any, session: str
) -> None:
    name, mark = unique_name("job"), uuid.uuid4().hex
    source = TestingSource(
        [*records(0, 20), TestingSource.PAUSE(), *records(20, 40)], directory=tmp_path / "source", batch_size=5
    )
    sink = TestingSink(tmp_path / "sink")
    p = small_job(name, tmp_path / "checkpoints", source, sink, parallelism=2)
    script = subprocess.Popen(
        [sys.executable, SUPPORT / "jobs" / "interrupted.py", name, tmp_path, session],
        env={**os.environ, "PYTHONPATH": str(SUPPORT), "WEIR_TEST_SCRIPT": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        source.wait_until_paused(PATIENCE)
        eventually(lambda: len(sink.records) == 20)
        assert len(processes_with("WEIR_TEST_SCRIPT", mark)) >= 6  # script, JVM, four subtasks at least
        os.killpg(script.pid, signal.SIGINT)  # as a terminal does: to the whole group
        output, _ = script.communicate(timeout=PATIENCE)
    finally:
        script.kill()
    assert script.returncode == 0, output
    assert output.strip().splitlines()[-1] == "stopped"
    eventually(lambda: processes_with("WEIR_TEST_SCRIPT", mark) == [])
    assert folder_of(p, checkpoints_of(p)[-1]).is_dir()
    source.release()
    p.run(spark=spark, timeout=PATIENCE)
    assert_exact(sink, records(0, 40))
