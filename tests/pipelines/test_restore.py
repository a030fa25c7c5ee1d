"""What a job goes on from: the newest checkpoint, a named one, none, or an older one when files are damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import (
    Remember,
    assert_exact,
    failure_of,
    folder_of,
    records,
    running,
    small_job,
    storage_of,
)
from three_parts import Stage

from pipeline import JobHandle, Operator
from pipeline.testing import TestingSink, TestingSource, failpoints

Name = Callable[[str], str]


@pytest.fixture
def stage(tmp_path: Path, unique_name: Name) -> Stage:
    return Stage(tmp_path, unique_name("job"))


def written(handle: JobHandle) -> int:
    """Records that the sink has taken."""
    return sum(values["recordsOut"] for name, values in handle.metrics()["subtasks"].items() if "out" in name)


# -- the newest, a named one, none ----------------------------------------------------------------------------


def test_a_cancelled_job_leaves_its_last_checkpoint_and_the_next_start_goes_on_exactly(
    stage: Stage, spark: Any
) -> None:
    first, second = stage.run_two_parts(spark)
    assert first < second
    handle = stage.finish(spark)
    assert_exact(stage.sink, stage.everything)
    assert min(row.id for row in handle.checkpoints()) > second.id


def test_what_was_complete_but_not_committed_is_committed_after_the_restore(stage: Stage, spark: Any) -> None:
    stage.run_two_parts(spark, commit_second=False)
    assert len(stage.sink.records) == 10
    stage.finish(spark)
    assert_exact(stage.sink, stage.everything)


def test_a_named_checkpoint_is_restored_and_newer_ones_are_given_up(stage: Stage, spark: Any) -> None:
    first, second = stage.run_two_parts(spark)
    stage.sink.clear()  # its output is ahead of the first checkpoint, which holds what lies before it
    job = stage.job()
    stage.finish(spark, job, restore=folder_of(job, first).as_uri())
    assert_exact(stage.sink, stage.everything)
    eventually(lambda: second not in storage_of(job).folders())


def test_starting_from_nothing_begins_a_new_history(stage: Stage, spark: Any) -> None:
    stage.run_two_parts(spark)
    stage.sink.clear()
    handle = stage.finish(spark, restore="none")
    assert_exact(stage.sink, stage.everything)
    assert min(row.id for row in handle.checkpoints()) > 2


def test_a_job_that_has_finished_has_nothing_left_to_do(stage: Stage, spark: Any) -> None:
    stage.finish(spark)
    handle = stage.finish(spark)
    assert handle.status == "finished"
    assert_exact(stage.sink, stage.everything)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("file:///nowhere", "give the URI of a savepoint's folder, or of a job's folder chk-<number>-<attempt>"),
        ("{folder}/chk-99-1", "is no complete checkpoint. Complete ones in"),
        ("{other}", "is no savepoint and no checkpoint: give the URI of one of the folders in it, chk-1-1"),
    ],
)
def test_a_uri_that_is_no_checkpoint_is_refused(
    stage: Stage, tmp_path: Path, unique_name: Name, spark: Any, uri: str, message: str
) -> None:
    other = small_job(unique_name("other"), tmp_path / "other", TestingSource(records(0, 3)), TestingSink())
    other.run(spark=spark, timeout=PATIENCE)
    job = stage.job()
    storage_of(job).prepare()
    uri = uri.format(folder=storage_of(job).location, other=storage_of(other).location)
    assert message in failure_of(job, spark, restore=uri)


def test_what_an_operator_hands_to_its_snapshot_may_change_while_that_is_written(stage: Stage, spark: Any) -> None:
    """Else the checkpoint would hold the effect of records behind its barrier, which are read again."""
    options: dict[str, Any] = {"then": lambda s: s.process("remember", Remember())}
    held = failpoints.hold("snapshot.async_write", times=2)
    with running(stage.job(**options), spark) as handle, ThreadPoolExecutor(1) as pool:
        eventually(lambda: written(handle) == 10)
        asked = pool.submit(handle.checkpoint, PATIENCE)
        eventually(lambda: held.hits == 2)
        stage.source.release()
        eventually(lambda: written(handle) == 20)
        held.release()
        asked.result(PATIENCE)
    stage.finish(spark, stage.job(**options))
    assert_exact(stage.sink, stage.everything)
    assert sorted(record["seen"] for record in stage.sink.records) == list(range(1, 31))


# -- what doesn't fit -----------------------------------------------------------------------------------------


def test_a_renamed_step_is_refused_until_its_state_may_be_dropped(stage: Stage, spark: Any) -> None:
    stage.run_two_parts(spark, then=lambda s: s.process("remember", Remember()))
    renamed = stage.job(then=lambda s: s.process("recall", Remember()))
    message = failure_of(renamed, spark)
    assert "has state of steps that the pipeline doesn't have: remember." in message
    assert "give it its old id back; or drop that state with allow_unclaimed=True" in message
    stage.finish(spark, renamed, allow_unclaimed=True)
    assert_exact(stage.sink, stage.everything)
    assert min(record["seen"] for record in stage.sink.records if record["id"] >= 20) == 1


def test_a_step_without_state_may_be_renamed_added_and_removed(stage: Stage, spark: Any) -> None:
    stage.run_two_parts(spark, then=lambda s: s.rebalance().map(dict, id="old").rebalance())
    stage.finish(spark, stage.job(then=lambda s: s.filter(bool, id="new")))
    assert_exact(stage.sink, stage.everything)


def test_another_max_parallelism_is_refused(stage: Stage, spark: Any) -> None:
    stage.run_two_parts(spark)
    message = failure_of(stage.job(max_parallelism=64), spark)
    assert "was taken with max_parallelism 128" in message
    assert "the pipeline has 64. Set it back" in message


class Fussy(Operator):
    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value

    def snapshot(self, checkpoint_id: int) -> Any:
        return {"fine": True}


def test_an_operator_that_cannot_restore_what_it_kept_says_so(stage: Stage, spark: Any) -> None:
    stage.run_two_parts(spark, then=lambda s: s.process("fussy", Fussy()))
    message = failure_of(stage.job(then=lambda s: s.process("fussy", Fussy())), spark)
    assert "Fussy returned state from snapshot but doesn't implement restore" in message


# -- damage ---------------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


DAMAGE = {
    "a truncated state file": ("count-0-state.arrow", truncate),
    "an altered state file": ("count-0-state.arrow", alter),
    "a missing state file": ("count-0-state.arrow", Path.unlink),
    "an altered file of an operator's own state": ("remember-0-own.msgpack", alter),
    "an altered _metadata": ("_metadata", alter),
    "a truncated _metadata": ("_metadata", truncate),
}


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named_and_going_back_one_checkpoint_leaves_the_output_exact(
    stage: Stage, spark: Any, damage: str
) -> None:
    options: dict[str, Any] = {"then": lambda s: s.process("remember", Remember())}
    first, second = stage.run_two_parts(spark, commit_second=False, **options)
    job = stage.job(**options)
    file, do = DAMAGE[damage]
    path = folder_of(job, second) / file
    do(path)

    message = failure_of(job, spark)
    assert f"{second.path} can't be restored: {path.as_uri()} is " in message
    assert f"go back to an older checkpoint ({first.path})" in message
    assert 'CheckpointConfig(on_damaged="previous")' in message
    assert len(stage.sink.records) == 10

    stage.finish(spark, stage.job(on_damaged="previous", **options))
    assert_exact(stage.sink, stage.everything)
    assert sorted(record["seen"] for record in stage.sink.records) == list(range(1, 31))


def test_when_every_checkpoint_is_damaged_nothing_is_restored(stage: Stage, spark: Any) -> None:
    job = stage.job(on_damaged="previous")
    for ref, file in zip(stage.run_two_parts(spark), ("count-0-state.arrow", "_metadata"), strict=True):
        alter(folder_of(job, ref) / file)
    message = failure_of(job, spark)
    assert "every retained checkpoint is damaged" in message
    assert "count-0-state.arrow is damaged" in message
    assert 'start(restore="none")' in message


def test_an_older_damaged_checkpoint_does_not_keep_the_job_from_starting(stage: Stage, spark: Any) -> None:
    job = stage.job()
    first, _ = stage.run_two_parts(spark)
    alter(folder_of(job, first) / "_metadata")
    stage.finish(spark, job)
    assert_exact(stage.sink, stage.everything)
