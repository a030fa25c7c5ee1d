"""Savepoints, Kafka to Kafka: who commits what was prepared, and forks that run beside the original.

Jobs that are to be looked at take a checkpoint only when they are asked, and read input without end: so a test knows
what a savepoint holds.
"""

from __future__ import annotations

import logging
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka_driver
import pytest
from deadlines import PATIENCE, eventually
from kafka_job import EXACT, Findings, Stage, await_processed, staged_ids
from small_job import NEVER, failure_of, running

from checkpoint.storage.storage import CheckpointStorage
from pipeline import BufferConfig, JobFailed, Pipeline
from pipeline.testing import failpoints

Name = Callable[[str], str]
StageMaker = Callable[..., Stage]


def finish(stage: Stage, spark: Any, restore: str | Path = "latest", parallelism: int = 2, **start: Any) -> Any:
    """Run the job to the end of the input."""
    return stage.pipeline(parallelism=parallelism).run(str(restore), spark=spark, timeout=PATIENCE, **start)


def held_by(savepoint: str | Path) -> set[int]:
    """Ids of what is prepared in a savepoint and not known to be committed."""
    storage = CheckpointStorage(str(savepoint), None)
    return staged_ids(storage, storage.load_savepoint())


def save_after_a_commit(stage: Stage, spark: Any, where: Path, then: Callable[[Any], object] = lambda _: None) -> str:
    """A job with 400 records committed and as many in a savepoint, cancelled right behind it (and `then`)."""
    with running(stage.endless(), spark) as handle:
        stage.produce(400)
        await_processed(handle, 400)
        handle.checkpoint(PATIENCE)
        eventually(lambda: len(stage.outputs()) == 400)
        stage.produce(400)
        await_processed(handle, 800)
        savepoint = handle.savepoint(where, PATIENCE)
        then(handle)
    return savepoint


# -- the same job ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parallelism", "moved"), [(2, False), (3, True), pytest.param(1, True, marks=pytest.mark.matrix)]
)
def test_a_savepoint_commits_nothing_and_its_restore_commits_what_it_holds(
    make_stage: StageMaker, spark: Any, tmp_path: Path, parallelism: int, moved: bool
) -> None:
    stage = make_stage()
    savepoint = save_after_a_commit(stage, spark, tmp_path / "savepoint")
    assert {record["id"] for record in stage.outputs()} == set(range(400))
    assert held_by(savepoint) == set(range(400, 800))
    stage.produce(100)
    if moved:
        shutil.rmtree(stage.folder)
        (tmp_path / "savepoint").rename(tmp_path / "elsewhere")
        savepoint = str(tmp_path / "elsewhere")
    finish(stage, spark, savepoint, parallelism)
    assert stage.findings() == EXACT


@pytest.mark.parametrize("parallelism", [2, pytest.param(3, marks=pytest.mark.matrix)])
def test_a_savepoint_that_output_is_ahead_of_is_refused_at_once_and_a_rewind_writes_only_what_came_behind_it_again(
    make_stage: StageMaker, spark: Any, tmp_path: Path, parallelism: int
) -> None:
    def go_on(handle: Any) -> None:
        stage.produce(100)
        await_processed(handle, 900)
        handle.checkpoint(PATIENCE)
        eventually(lambda: len(stage.outputs()) == 900)

    stage = make_stage()
    savepoint = save_after_a_commit(stage, spark, tmp_path / "savepoint", go_on)
    handle = stage.pipeline(parallelism=parallelism).start(savepoint, spark=spark)
    with pytest.raises(JobFailed) as caught:
        handle.wait(PATIENCE)
    assert handle.restarts == 0
    assert str(caught.value).count("output is ahead of this checkpoint") == 1
    assert "or start with rewind=True" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    finish(stage, spark)  # the refused start has given nothing up
    assert stage.findings() == EXACT
    finish(stage, spark, savepoint, parallelism, rewind=True)
    again = Findings(duplicated=100)
    assert stage.findings() == again
    assert stage.findings().duplicated_ids == set(range(800, 900))
    finish(stage, spark)
    assert stage.findings() == again


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize("parallelism", [2, 3, pytest.param(1, marks=pytest.mark.matrix)])
def test_a_job_that_was_stopped_under_backpressure_goes_on_from_its_savepoint(
    make_stage: StageMaker, spark: Any, tmp_path: Path, parallelism: int
) -> None:
    stage = make_stage(4000)
    buffers = BufferConfig(max_bytes=4096, frame_bytes=2048)
    source = stage.source(end=None, rate_limit=None, max_span_records=None)
    job = stage.endless(source=source, sink=stage.slow_sink(0.05), buffers=buffers, interval=0.5)
    with running(job, spark) as handle:
        eventually(lambda: len(stage.outputs()) > 0)
        handle.stop(tmp_path / "savepoint", timeout=PATIENCE)
        assert handle.status == "finished"
        assert handle.checkpoints()[-1].in_flight_records > 0
    assert stage.findings() == Findings(lost=4000 - len(stage.outputs()))
    assert len(stage.outputs()) < 4000
    finish(stage, spark, parallelism=parallelism)
    assert stage.findings() == EXACT


@pytest.mark.parametrize("parallelism", [2, pytest.param(3, marks=pytest.mark.matrix)])
def test_a_driver_killed_before_the_commit_of_the_savepoint_it_stops_with_loses_nothing(
    make_stage: StageMaker, spark: Any, tmp_path: Path, parallelism: int
) -> None:
    stage = make_stage(800)
    driver = kafka_driver.start(
        stage,
        source={"end": None, "rate_limit": None},
        pipeline={**NEVER},
        crash="coordinator.after_metadata",
        stop=(800, str(tmp_path / "savepoint")),
    )
    driver.communicate(timeout=PATIENCE)
    assert driver.returncode == -signal.SIGKILL
    assert held_by(tmp_path / "savepoint") == set(range(800))
    assert stage.outputs() == []
    stage.produce(100)
    finish(stage, spark, parallelism=parallelism)
    assert stage.findings() == EXACT


@pytest.mark.parametrize("parallelism", [2, pytest.param(3, marks=pytest.mark.matrix)])
def test_with_claim_false_only_what_the_savepoint_holds_is_dropped_also_over_a_crash_behind_it(
    make_stage: StageMaker, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, parallelism: int
) -> None:
    stage = make_stage()
    savepoint = save_after_a_commit(stage, spark, tmp_path / "savepoint")
    stage.produce(800)
    job = stage.pipeline(parallelism=parallelism)
    with failpoints.crash("committer.before_commit", nth=parallelism + 1) as point, caplog.at_level(logging.WARNING):
        handle = job.run(savepoint, claim=False, spark=spark, timeout=PATIENCE)
    assert point.fired
    assert handle.restarts == 1
    assert "it is DROPPED, since claim=False" in caplog.text
    dropped = Findings(lost=400)
    assert stage.findings() == dropped
    assert stage.findings().lost_ids == set(range(400, 800))
    finish(stage, spark)
    assert stage.findings() == dropped
    storage = CheckpointStorage(stage.folder.as_uri(), stage.name)
    origin = CheckpointStorage(savepoint, None).load_savepoint()
    newest = storage.load(storage.list_checkpoints()[-1])
    assert newest.lineage_parent == (origin.lineage, origin.id)


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize("damage", ["metadata", "state"])
def test_an_older_checkpoint_that_output_is_ahead_of_is_not_restored_in_place_of_a_damaged_one(
    make_stage: StageMaker, spark: Any, damage: str
) -> None:
    stage = make_stage(1600)
    stage.pipeline(retained=3, inline_bytes=0).run(spark=spark, timeout=PATIENCE)
    storage = CheckpointStorage(stage.folder.as_uri(), stage.name)
    older, newest = storage.list_checkpoints()[-2:]
    folder = stage.folder / stage.name
    if damage == "metadata":
        file = folder / newest.path / "_metadata"
    else:
        file = folder / storage.load(newest).operator("sum")[0].keyed_state[0].file.path
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    handle = stage.pipeline(on_damaged="previous").start(spark=spark)
    with pytest.raises(JobFailed, match=f"OutputAhead: .*checkpoint {older.id} is being restored") as caught:
        handle.wait(PATIENCE)
    assert str(caught.value).count("output is ahead of this checkpoint") == 1
    assert "Traceback" not in str(caught.value)
    assert handle.restarts == (damage == "state")  # that is found out by a subtask
    assert stage.findings() == EXACT


# -- forks -------------------------------------------------------------------------------------------------------------


def test_a_fork_runs_beside_its_original_and_both_outputs_are_exact(
    make_stage: StageMaker, spark: Any, tmp_path: Path, unique_name: Name
) -> None:
    stage = make_stage(2000)
    fork = stage.fork(unique_name("fork"), unique_name("fork-out"))
    buffers = BufferConfig(max_bytes=4096, frame_bytes=2048)
    with running(stage.endless(sink=stage.slow_sink(0.001), buffers=buffers), spark) as original:
        await_processed(original, 300)
        savepoint = original.savepoint(tmp_path / "savepoint", PATIENCE)
        assert original.checkpoints()[-1].in_flight_records > 0
        fork.inputs = stage.inputs
        with (
            failpoints.crash("committer.mid_produce", nth=3) as point,
            running(fork.endless(parallelism=3, interval=0.2), spark, restore=savepoint) as copy,
        ):
            stage.produce(400)
            eventually(lambda: len(fork.outputs()) >= 2400 - len(held_by(savepoint)))
            copy.stop(timeout=PATIENCE)
            assert copy.restarts == 1
        assert point.fired
        await_processed(original, 2400)
        original.stop(timeout=PATIENCE)
        assert original.restarts == 0
    held = held_by(savepoint)
    assert 0 < len(held) < 2000
    assert stage.findings() == EXACT
    assert fork.findings() == Findings(lost=len(held))
    assert fork.findings().lost_ids == held


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    "step",
    [
        "coordinator.before_metadata",
        pytest.param("coordinator.after_metadata", marks=pytest.mark.matrix),
    ],
)
def test_a_fork_whose_driver_is_killed_at_its_first_checkpoint_goes_on(
    make_stage: StageMaker, spark: Any, tmp_path: Path, unique_name: Name, step: str
) -> None:
    stage = make_stage()
    savepoint = save_after_a_commit(stage, spark, tmp_path / "savepoint")
    stage.produce(400)
    fork = stage.fork(unique_name("fork"), unique_name("fork-out"))
    driver = kafka_driver.start(fork, crash=step, restore=savepoint)
    driver.communicate(timeout=PATIENCE)
    assert driver.returncode == -signal.SIGKILL
    assert fork.outputs() == []
    finish(fork, spark, parallelism=3)
    assert fork.findings() == Findings(lost=800)
    assert fork.findings().lost_ids == set(range(800))


@pytest.mark.parametrize(
    ("step", "subtask"),
    [
        pytest.param("committer.mid_settle", 1, marks=pytest.mark.matrix),
        pytest.param("committer.before_settle", 0, marks=pytest.mark.full),
        pytest.param("committer.after_settle", 2, marks=pytest.mark.full),
    ],
)
def test_a_fork_whose_worker_is_killed_while_it_writes_its_markers_goes_on(
    make_stage: StageMaker, spark: Any, tmp_path: Path, unique_name: Name, step: str, subtask: int
) -> None:
    stage = make_stage()
    savepoint = save_after_a_commit(stage, spark, tmp_path / "savepoint")
    stage.produce(400)
    fork = stage.fork(unique_name("fork"), unique_name("fork-out"))
    with failpoints.crash(step, subtask=subtask) as point:
        finish(fork, spark, savepoint, parallelism=3)
    assert point.fired
    assert fork.findings() == Findings(lost=800)
    assert fork.findings().lost_ids == set(range(800))
    finish(stage, spark)
    assert stage.findings() == EXACT


def test_a_fork_that_is_started_from_its_savepoint_a_second_time_is_refused_or_writes_again(
    make_stage: StageMaker, spark: Any, tmp_path: Path, unique_name: Name
) -> None:
    stage = make_stage()
    savepoint = save_after_a_commit(stage, spark, tmp_path / "savepoint")
    stage.produce(100)
    fork = stage.fork(unique_name("fork"), unique_name("fork-out"))
    finish(fork, spark, savepoint)
    failure = failure_of(fork.pipeline(), spark, restore=savepoint)
    assert "OutputAhead: output is ahead of this checkpoint" in failure
    assert fork.findings() == Findings(lost=800)
    finish(fork, spark, savepoint, rewind=True)
    assert fork.findings() == Findings(lost=800, duplicated=100)
    assert fork.findings().duplicated_ids == set(range(800, 900))


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize("same_topic", [False, True])
def test_a_fork_with_the_names_of_its_running_original_is_refused_and_the_original_goes_on(
    make_stage: StageMaker, spark: Any, tmp_path: Path, unique_name: Name, same_topic: bool
) -> None:
    stage = make_stage()
    fork = stage.fork(unique_name("fork"), unique_name("fork-out"))
    if same_topic:
        fork.out_topic = stage.out_topic

    def start_fork(handle: Any) -> None:
        job = fork.pipeline(sink=fork.sink(transactional_id_prefix=stage.name))
        failure = failure_of(job, spark, restore=tmp_path / "savepoint")
        assert "ForeignMarker: " in failure
        assert "Give it a transactional_id_prefix of its own" in failure
        stage.produce(100)
        await_processed(handle, 900)
        handle.stop(timeout=PATIENCE)
        assert (handle.status, handle.restarts) == ("finished", 0)

    save_after_a_commit(stage, spark, tmp_path / "savepoint", start_fork)
    assert stage.findings() == EXACT
    assert len(fork.outputs()) == (900 if same_topic else 0)


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize("same_topic", [False, True])
def test_of_two_forks_with_the_same_names_one_is_stopped_unless_their_topics_tell_their_markers_apart(
    make_stage: StageMaker, spark: Any, tmp_path: Path, unique_name: Name, same_topic: bool
) -> None:
    stage = make_stage()
    savepoint = save_after_a_commit(stage, spark, tmp_path / "savepoint")
    stage.produce(100)
    prefix = unique_name("prefix")
    first, second = (stage.fork(unique_name(f"fork{i}"), unique_name(f"out{i}")) for i in range(2))
    if same_topic:
        second.out_topic = first.out_topic

    def job(fork: Stage) -> Pipeline:
        return fork.endless(sink=fork.sink(transactional_id_prefix=prefix))

    with running(job(first), spark, restore=savepoint) as earlier:
        await_processed(earlier, 100)
        with running(job(second), spark, restore=savepoint) as later:
            await_processed(later, 100)
            if same_topic:
                earlier.checkpoint(PATIENCE)
                with pytest.raises(JobFailed, match="Two jobs must not use one transactional_id_prefix"):
                    earlier.wait(PATIENCE)
            else:
                earlier.stop(timeout=PATIENCE)
            assert earlier.restarts == 0
            later.stop(timeout=PATIENCE)
            assert later.restarts == 0
    assert first.findings() == Findings(lost=800)
    assert second.findings() == Findings(lost=800)
