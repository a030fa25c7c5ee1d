"""Savepoints: taken, moved, restored, forked, stopped with."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import (
    NEVER,
    Count,
    assert_exact,
    checkpoints_of,
    failure_of,
    records,
    running,
    small_job,
    storage_of,
)
from three_parts import Stage

from checkpoint.storage.storage import CheckpointStorage
from pipeline import JobHandle, KeyedOperator, Pipeline, PipelineError, RestartStrategy
from pipeline.testing import TestingSink, TestingSource, failpoints

Name = Callable[[str], str]


@pytest.fixture
def stage(tmp_path: Path, unique_name: Name) -> Stage:
    return Stage(tmp_path, unique_name("job"))


def take_two_parts(stage: Stage, spark: Any, where: Path, end: Callable[[JobHandle], Any]) -> str:
    """A committed checkpoint behind the first part, a savepoint behind the second; then `end`."""
    with running(stage.job(), spark) as handle:
        stage.source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        eventually(lambda: len(stage.sink.records) == 10)
        stage.source.release()
        stage.source.wait_until_paused(PATIENCE)
        savepoint = handle.savepoint(where, PATIENCE)
        end(handle)
    return savepoint


def nothing(handle: JobHandle) -> None:
    """The job is cancelled."""


# -- taking one -----------------------------------------------------------------------------------------------


def test_a_savepoint_commits_nothing_and_the_job_goes_on(stage: Stage, spark: Any, tmp_path: Path) -> None:
    def go_on(handle: JobHandle) -> None:
        assert [row.kind for row in handle.checkpoints()] == ["checkpoint", "savepoint"]
        assert len(stage.sink.records) == 10
        handle.checkpoint(PATIENCE)
        eventually(lambda: len(stage.sink.records) == 20)
        stage.source.release()
        handle.wait(PATIENCE)

    take_two_parts(stage, spark, tmp_path / "savepoint", go_on)
    assert_exact(stage.sink, stage.everything)
    assert (tmp_path / "savepoint" / "_metadata").exists()


def test_a_savepoint_outlives_moving_the_loss_of_the_jobs_folder_and_holds_what_was_not_committed(
    stage: Stage, spark: Any, tmp_path: Path
) -> None:
    take_two_parts(stage, spark, tmp_path / "savepoint", nothing)
    assert len(stage.sink.records) == 10
    shutil.rmtree(stage.folder)
    (tmp_path / "savepoint").rename(tmp_path / "renamed")
    stage.finish(spark, restore=(tmp_path / "renamed").as_uri())
    assert_exact(stage.sink, stage.everything)


def test_ids_of_savepoints_are_never_given_again(stage: Stage, spark: Any, tmp_path: Path) -> None:
    savepoint = take_two_parts(stage, spark, tmp_path / "savepoint", nothing)
    taken = CheckpointStorage(savepoint, None).load_savepoint().id
    handle = stage.finish(spark)  # from the checkpoint before it
    assert min(row.id for row in handle.checkpoints()) > taken
    assert_exact(stage.sink, stage.everything)


def test_a_folder_that_holds_something_else_is_refused(stage: Stage, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")

    def try_others(handle: JobHandle) -> None:
        with pytest.raises(PipelineError, match=r"holds a savepoint \(or checkpoint\) already"):
            handle.savepoint(tmp_path / "savepoint")
        with pytest.raises(PipelineError, match=r"needs a folder of its own, and .* holds letter\.txt"):
            handle.stop(tmp_path / "mine")
        with pytest.raises(PipelineError, match="Give an absolute path or a URI"):
            handle.savepoint("relative/folder")
        handle.cancel()
        with pytest.raises(RuntimeError, match="the job is cancelled"):
            handle.savepoint(tmp_path / "later")

    take_two_parts(stage, spark, tmp_path / "savepoint", try_others)


@pytest.mark.parametrize(
    ("step", "nth"),
    [
        ("snapshot.async_write", 4),  # by each of the three subtasks once before
        ("coordinator.after_metadata", 2),  # it is complete, and nobody is told so
    ],
)
def test_a_savepoint_that_fails_says_so_leaves_nothing_to_restore_and_the_job_goes_on(
    stage: Stage, spark: Any, tmp_path: Path, step: str, nth: int
) -> None:
    failpoints.fail(step, nth=nth, times=100)
    with running(stage.job(), spark) as handle:
        stage.source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        with pytest.raises(RuntimeError, match=r"checkpoint 2 failed: .*injected"):
            handle.savepoint(tmp_path / "savepoint", PATIENCE)
        failpoints.clear()
        assert not (tmp_path / "savepoint" / "_metadata").exists()
        handle.savepoint(tmp_path / "savepoint", PATIENCE)  # what the other one left is in nobody's way
        assert handle.restarts == 0  # savepoints don't count among the tolerable failures
        stage.source.release()
        stage.source.wait_until_paused(PATIENCE)
        stage.source.release()
        handle.wait(PATIENCE)
    assert_exact(stage.sink, stage.everything)


# -- restoring one --------------------------------------------------------------------------------------------


def test_until_it_has_a_checkpoint_of_its_own_a_job_is_restored_from_its_savepoint_again(
    stage: Stage, spark: Any, tmp_path: Path
) -> None:
    savepoint = take_two_parts(stage, spark, tmp_path / "savepoint", nothing)
    job = stage.job(restart=RestartStrategy.none())
    failpoints.fail("snapshot.async_write")
    with running(job, spark, restore=savepoint) as handle, pytest.raises(RuntimeError, match="injected"):
        handle.checkpoint(PATIENCE)
    failpoints.clear()
    assert checkpoints_of(job) == []  # older ones are void
    stage.finish(spark)  # "latest"
    assert_exact(stage.sink, stage.everything)


def test_a_savepoint_that_is_gone_is_named_when_it_is_needed_again(stage: Stage, spark: Any, tmp_path: Path) -> None:
    savepoint = take_two_parts(stage, spark, tmp_path / "savepoint", nothing)
    with running(stage.job(), spark, restore=savepoint) as handle:
        eventually(lambda: handle.running_since is not None)
    (tmp_path / "savepoint").rename(tmp_path / "elsewhere")
    failure = failure_of(stage.job(), spark)
    assert f"{savepoint}, which the job was started from, can't be restored" in failure
    assert "Was it moved?" in failure
    stage.finish(spark, restore=tmp_path / "elsewhere")
    assert_exact(stage.sink, stage.everything)


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_savepoint_is_restored_at_another_parallelism(
    stage: Stage, spark: Any, tmp_path: Path, parallelism: int
) -> None:
    savepoint = take_two_parts(stage, spark, tmp_path / "savepoint", nothing)
    stage.finish(spark, stage.job(parallelism=parallelism), restore=savepoint)
    assert_exact(stage.sink, stage.everything)


def test_state_that_nobody_claims_is_named_and_dropped_only_if_allowed(
    stage: Stage, spark: Any, tmp_path: Path
) -> None:
    savepoint = take_two_parts(stage, spark, tmp_path / "savepoint", nothing)

    def changed() -> Pipeline:
        p = Pipeline(stage.name, checkpoints=stage.job().checkpoints, restart=RestartStrategy.none())
        stream = p.source("in", stage.source).map(lambda record: record).key_by("key")
        stream.process("counted", Count()).sink("out", stage.sink)
        return p

    assert "has state of steps that the pipeline doesn't have: count" in failure_of(changed(), spark, restore=savepoint)
    stage.finish(spark, changed(), restore=savepoint, allow_unclaimed=True)
    assert sorted(record["id"] for record in stage.sink.records) == list(range(30))
    numbers = {record["id"]: record["number"] for record in stage.sink.records}
    assert (numbers[19], numbers[20]) == (7, 1)  # counted anew behind the savepoint


def test_an_uri_that_is_nothing_is_refused(stage: Stage, spark: Any, tmp_path: Path) -> None:
    failure = failure_of(stage.job(), spark, restore=tmp_path / "nothing")
    assert "is no savepoint and no checkpoint" in failure
    with pytest.raises(PipelineError, match="give its URI, not restore='latest'"):
        stage.job().start(claim=False)


# -- forks ----------------------------------------------------------------------------------------------------


def test_a_fork_runs_beside_the_original_and_leaves_the_originals_output_to_it(
    stage: Stage, spark: Any, tmp_path: Path, unique_name: Name, caplog: pytest.LogCaptureFixture
) -> None:
    fork_sink = TestingSink(tmp_path / "fork-sink")

    def fork(handle: JobHandle) -> None:
        source = TestingSource(stage.script, directory=tmp_path / "fork-source")
        name = unique_name("fork")
        copy = small_job(name, stage.folder, source, fork_sink, **NEVER)
        source.release()
        source.release()
        with caplog.at_level(logging.WARNING):
            other = copy.run(restore=tmp_path / "savepoint", spark=spark, timeout=PATIENCE)
        assert other.status == "finished"
        assert f"it is left to pipeline {stage.name!r}" in caplog.text
        own = storage_of(copy).load(checkpoints_of(copy)[-1])
        original = CheckpointStorage(str(tmp_path / "savepoint"), None).load_savepoint()
        assert own.lineage_parent == (original.lineage, original.id)
        assert (handle.status, handle.restarts) == ("running", 0)
        stage.source.release()
        handle.wait(PATIENCE)

    take_two_parts(stage, spark, tmp_path / "savepoint", fork)
    assert_exact(stage.sink, stage.everything)
    # It goes on with the state of its keys, each with a third of the records.
    assert {r["id"]: r["number"] for r in fork_sink.records} == {id: id // 3 + 1 for id in range(20, 30)}


def test_another_jobs_checkpoint_is_restored_as_a_fork(
    stage: Stage, spark: Any, tmp_path: Path, unique_name: Name
) -> None:
    _, second = stage.run_two_parts(spark)
    uri = f"{storage_of(stage.job()).location}/{second.path}"
    fork_sink = TestingSink(tmp_path / "fork-sink")
    stage.source.release()
    small_job(unique_name("fork"), tmp_path / "other", stage.source, fork_sink, **NEVER).run(
        restore=uri, spark=spark, timeout=PATIENCE
    )
    assert sorted(record["id"] for record in fork_sink.records) == list(range(20, 30))


def test_a_fork_cannot_claim_the_originals_output(stage: Stage, spark: Any, tmp_path: Path, unique_name: Name) -> None:
    savepoint = take_two_parts(stage, spark, tmp_path / "savepoint", nothing)
    fork = small_job(unique_name("fork"), stage.folder, stage.source, stage.sink)
    failure = failure_of(fork, spark, restore=savepoint, claim=True)
    assert f"was prepared by pipeline {stage.name!r}" in failure


def test_output_is_dropped_only_by_claim_false_and_with_a_warning(
    stage: Stage, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    savepoint = take_two_parts(stage, spark, tmp_path / "savepoint", nothing)
    with caplog.at_level(logging.WARNING):
        stage.finish(spark, restore=savepoint, claim=False)
    assert "it is DROPPED, since claim=False" in caplog.text
    ids = sorted(record["id"] for record in stage.sink.records)
    assert ids == [*range(10), *range(20, 30)]


# -- stopping -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_savepoint", [True, False])
def test_a_stop_commits_everything_emitted_and_the_next_start_goes_on_from_there(
    stage: Stage, spark: Any, tmp_path: Path, with_savepoint: bool
) -> None:
    where = tmp_path / "savepoint" if with_savepoint else None
    with running(stage.job(), spark) as handle:
        stage.source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        stage.source.release()
        stage.source.wait_until_paused(PATIENCE)
        assert handle.stop(where, timeout=PATIENCE) == (str(where) if where else None)
        assert handle.status == "finished"
        assert len(stage.sink.records) == 20
        assert handle.checkpoints()[-1].kind == ("savepoint" if where else "final")
    stage.finish(spark)  # "latest", though the newest checkpoint in the job's folder may be older
    assert_exact(stage.sink, stage.everything)


def test_a_stopped_job_is_not_restored_from_an_older_checkpoint_if_its_savepoint_is_gone(
    stage: Stage, spark: Any, tmp_path: Path
) -> None:
    with running(stage.job(), spark) as handle:
        stage.source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        handle.stop(tmp_path / "savepoint", timeout=PATIENCE)
    (tmp_path / "savepoint").rename(tmp_path / "elsewhere")
    failure = failure_of(stage.job(), spark)
    assert "which the job was stopped with, can't be restored" in failure
    stage.finish(spark, restore=tmp_path / "elsewhere")
    assert_exact(stage.sink, stage.everything)


@pytest.mark.parametrize("with_savepoint", [True, False])
def test_a_commit_that_fails_behind_the_last_checkpoint_is_made_up_for_and_nothing_new_is_read(
    stage: Stage, spark: Any, tmp_path: Path, with_savepoint: bool
) -> None:
    failpoints.fail("committer.before_commit")
    restart = RestartStrategy.fixed_delay(2, 1.0)
    with running(stage.job(restart=restart), spark) as handle:
        stage.source.wait_until_paused(PATIENCE)
        where = tmp_path / "savepoint" if with_savepoint else None
        stop = threading.Thread(target=lambda: handle.stop(where, timeout=PATIENCE))
        stop.start()
        eventually(lambda: handle.status == "restarting")
        stage.source.release()  # from now on it could go on
        stage.source.release()
        stop.join()
        assert (handle.status, handle.restarts) == ("finished", 1)
    assert sorted(record["id"] for record in stage.sink.records) == list(range(10))
    stage.finish(spark)
    assert_exact(stage.sink, stage.everything)


def test_a_stop_that_fails_says_so_and_the_job_goes_on(stage: Stage, spark: Any, tmp_path: Path) -> None:
    failpoints.fail("snapshot.async_write", times=100)
    with running(stage.job(), spark) as handle:
        stage.source.wait_until_paused(PATIENCE)
        with pytest.raises(RuntimeError, match=r"checkpoint 1 failed: .*injected"):
            handle.stop(tmp_path / "savepoint", timeout=PATIENCE)
        failpoints.clear()
        stage.source.release()
        stage.source.wait_until_paused(PATIENCE)
        stage.source.release()
        handle.wait(PATIENCE)
    assert_exact(stage.sink, stage.everything)


class Collect(KeyedOperator):
    """Keeps a timer in the far future for each key."""

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        ctx.timer(10**12)
        yield {**value, "number": 0}

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield {"id": f"timer of {ctx.key}", "key": ctx.key, "number": 0}


@pytest.mark.parametrize("where", ["savepoint", None])
@pytest.mark.parametrize("drain", [True, False])
def test_a_drained_job_has_fired_its_timers_and_a_stopped_one_has_kept_them(
    stage: Stage, spark: Any, tmp_path: Path, drain: bool, where: str | None
) -> None:
    with running(stage.job(operator=Collect()), spark) as handle:
        stage.source.wait_until_paused(PATIENCE)
        handle.stop(tmp_path / where if where else None, drain=drain, timeout=PATIENCE)
        assert handle.status == "finished"
    timers = {"timer of k0", "timer of k1", "timer of k2"}
    ids = [record["id"] for record in stage.sink.records]
    assert set(ids) == set(range(10)) | (timers if drain else set())
    stage.finish(spark, stage.job(operator=Collect()))
    ids = [record["id"] for record in stage.sink.records if isinstance(record["id"], int)]
    assert sorted(ids) == list(range(30))  # positions are kept, also by a drained job
    fired = [record["id"] for record in stage.sink.records if record["id"] in timers]
    assert len(fired) == (6 if drain else 3)


# -- under backpressure ---------------------------------------------------------------------------------------


class Held(KeyedOperator):
    """Takes a while for each record."""

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        time.sleep(0.05)
        yield {**value, "number": 0}


def test_a_savepoint_of_an_aligned_job_under_backpressure_turns_unaligned(
    spark: Any, tmp_path: Path, unique_name: Name
) -> None:
    # 20 s of work are queued, so an aligned barrier would take that long.
    source, sink = TestingSource(records(0, 400)), TestingSink(tmp_path / "sink")

    def job() -> Pipeline:
        name = unique_name("job") if not names else names[0]
        names[:] = [name]
        return small_job(name, tmp_path / "checkpoints", source, sink, **NEVER, operator=Held())

    names: list[str] = []
    with running(job(), spark) as handle:
        eventually(lambda: handle.metrics()["totals"]["inFlightBytes"] > 0)
        savepoint = handle.stop(tmp_path / "savepoint", timeout=PATIENCE)
        (row,) = handle.checkpoints()
        assert row.unaligned
        assert row.in_flight_records > 0
        committed = len(sink.records)
        assert committed < 400
    assert savepoint is not None
    job().run(spark=spark, timeout=PATIENCE)
    assert sorted(record["id"] for record in sink.records) == list(range(400))


def test_savepoints_are_taken_one_at_a_time(stage: Stage, spark: Any, tmp_path: Path) -> None:
    with running(stage.job(), spark) as handle:
        stage.source.wait_until_paused(PATIENCE)
        taken: list[str] = []
        threads = [
            threading.Thread(target=lambda i=i: taken.append(handle.savepoint(tmp_path / str(i), PATIENCE)))
            for i in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == [str(tmp_path / str(i)) for i in range(3)]
        ids = {CheckpointStorage(uri, None).load_savepoint().id for uri in taken}
        assert len(ids) == 3
