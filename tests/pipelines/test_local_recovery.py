"""Task-local recovery: state comes back from copies on the executor's own disk, and without them as ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import assert_exact, checkpoints_of, failure_of, folder_of, running
from three_parts import Stage
from topology import EXACT, Schedule, SlowSink, build, validate

from checkpoint.storage.local_copies import LocalCopies
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.storage import CheckpointStorage
from pipeline import JobHandle, Pipeline, RestartStrategy
from pipeline.testing import failpoints

Name = Callable[[str], str]
STATE = "count-0-state.arrow"


class LocalStage(Stage):
    """The same with local recovery, and where its copies are."""

    def __init__(self, tmp_path: Path, name: str) -> None:
        super().__init__(tmp_path, name)
        copies = LocalCopies.open(os.environ, CheckpointStorage(self.folder.as_uri(), name))
        assert copies is not None
        self.copies = copies

    def job(self, **options: Any) -> Pipeline:
        restart = RestartStrategy.fixed_delay(1, 0.1)
        return super().job(**{"local_recovery": True, "restart": restart, **options})

    def take(self, handle: JobHandle, committed: int) -> CheckpointRef:
        """A checkpoint behind a part, and its commit."""
        self.source.wait_until_paused(PATIENCE)
        id = handle.checkpoint(PATIENCE)
        eventually(lambda: len(self.sink.records) == committed)
        return next(ref for ref in checkpoints_of(self.job()) if ref.id == id)

    def held(self) -> set[CheckpointRef]:
        """Checkpoints of which there are copies."""
        return {CheckpointRef(id, epoch) for id, epoch, _ in self.copies.held()}

    def state_file(self, ref: CheckpointRef) -> Path:
        return folder_of(self.job(), ref) / STATE

    def copy(self, ref: CheckpointRef) -> Path:
        return Path(self.copies.folder) / ref.path / STATE


@pytest.fixture
def stage(tmp_path: Path, unique_name: Name) -> LocalStage:
    return LocalStage(tmp_path, unique_name("job"))


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def restored(handle: JobHandle) -> tuple[float, float]:
    """Bytes that the keyed subtask was restored from, and how many of them came from its executor's disk."""
    (metrics,) = [values for name, values in handle.metrics()["subtasks"].items() if name.startswith("count")]
    return metrics.get("restoredBytes", 0), metrics.get("restoredLocalBytes", 0)


def kill(handle: JobHandle, subtask: str) -> None:
    (pid,) = [pid for name, pid in handle.processes().items() if name.startswith(subtask)]
    os.kill(pid, signal.SIGKILL)


def lose_a_worker_and_finish(
    stage: LocalStage, spark: Any, harm: Callable[[CheckpointRef], None]
) -> tuple[float, float]:
    """Take a checkpoint, do it harm, kill the worker with the state, and run to the end; see `restored`."""
    with running(stage.job(), spark) as handle:
        ref = stage.take(handle, committed=10)
        assert stage.held() == {ref}
        harm(ref)
        kill(handle, "count")
        stage.source.release()
        stage.source.release()
        handle.wait(PATIENCE)
        assert handle.restarts == 1
    assert_exact(stage.sink, stage.everything)
    return restored(handle)


def test_state_comes_back_from_the_local_copy_though_the_file_itself_is_unreadable(
    stage: LocalStage, spark: Any
) -> None:
    size, local = lose_a_worker_and_finish(stage, spark, lambda ref: alter(stage.state_file(ref)))
    assert size == local > 0


@pytest.mark.parametrize("harm", [alter, Path.unlink])
def test_without_a_good_local_copy_state_comes_back_from_the_file_itself(
    stage: LocalStage, spark: Any, harm: Callable[[Path], None]
) -> None:
    size, local = lose_a_worker_and_finish(stage, spark, lambda ref: harm(stage.copy(ref)))
    assert size > local == 0


def test_local_recovery_is_off_unless_asked_for(stage: LocalStage, spark: Any) -> None:
    with running(stage.job(local_recovery=False), spark) as handle:
        stage.take(handle, committed=10)
        assert stage.held() == set()
        kill(handle, "count")
        stage.source.release()
        stage.source.release()
        handle.wait(PATIENCE)
    assert_exact(stage.sink, stage.everything)
    size, local = restored(handle)
    assert size > local == 0


def test_with_file_and_copy_damaged_the_job_says_so_and_may_go_back_to_the_checkpoint_before(
    stage: LocalStage, spark: Any
) -> None:
    first, second = stage.run_two_parts(spark, commit_second=False, restart=RestartStrategy.none())
    assert second in stage.held(), "a job that has failed may be started again"
    alter(stage.state_file(second))
    alter(stage.copy(second))

    message = failure_of(stage.job(), spark)
    assert f"{stage.state_file(second).as_uri()} is damaged" in message
    assert f"go back to an older checkpoint ({first.path})" in message

    stage.source.release()
    stage.job(on_damaged="previous").run(spark=spark, timeout=PATIENCE)
    assert_exact(stage.sink, stage.everything)


def test_copies_are_those_of_the_newest_checkpoint_and_none_once_the_job_has_ended(
    stage: LocalStage, spark: Any
) -> None:
    with running(stage.job(), spark) as handle:
        first = stage.take(handle, committed=10)
        assert stage.held() == {first}
        stage.source.release()
        second = stage.take(handle, committed=20)
        eventually(lambda: stage.held() == {second})
        handle.cancel()
        assert not Path(stage.copies.folder).exists()
    stage.source.release()
    handle = stage.job().run(spark=spark, timeout=PATIENCE)
    assert not Path(stage.copies.folder).exists()
    assert_exact(stage.sink, stage.everything)


def test_what_other_subtasks_have_written_of_an_aborted_checkpoint_goes(stage: LocalStage, spark: Any) -> None:
    held = failpoints.hold("snapshot.async_write", subtask=1, nth=3)
    job = stage.job(parallelism=2, tolerable_failures=10, timeout=3.0)
    with running(job, spark) as handle, ThreadPoolExecutor(1) as pool:
        first = stage.take(handle, committed=10)
        asked = pool.submit(handle.checkpoint, PATIENCE)
        eventually(lambda: len(stage.held()) == 2)
        assert first in stage.held()
        assert isinstance(asked.exception(PATIENCE), RuntimeError)  # it takes too long
        eventually(lambda: stage.held() == {first})
        held.release()


def test_with_another_parallelism_subtasks_share_the_local_copies_of_the_old_ones(
    stage: LocalStage, spark: Any
) -> None:
    stage.run_two_parts(spark, commit_second=False, restart=RestartStrategy.none())
    handle = stage.finish(spark, stage.job(parallelism=2))
    assert_exact(stage.sink, stage.everything)
    found = [
        (values["restoredBytes"], values["restoredLocalBytes"])
        for name, values in handle.metrics()["subtasks"].items()
        if name.startswith("count")
    ]
    assert len(found) == 2
    assert all(size == local > 0 for size, local in found)


def test_a_savepoint_has_no_copies_and_ends_none(stage: LocalStage, spark: Any, tmp_path: Path) -> None:
    with running(stage.job(), spark) as handle:
        ref = stage.take(handle, committed=10)
        uri = handle.savepoint(tmp_path / "savepoint", PATIENCE)
        assert stage.held() == {ref}
    stage.source.release()
    stage.source.release()
    handle = stage.job().run(spark=spark, timeout=PATIENCE, restore=uri)
    size, local = restored(handle)
    assert size > local == 0
    assert_exact(stage.sink, stage.everything)


def test_what_was_in_flight_comes_back_from_local_copies_too(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    schedule, sink = Schedule(tmp_path, checkpoints=6, failures=2), SlowSink(0.001)
    job = build(
        unique_name("job"),
        tmp_path / "checkpoints",
        sink,
        schedule,
        parallelism=2,
        alignment="unaligned",
        local_recovery=True,
        inline_bytes=0,
    )
    with running(job, spark) as handle:
        handle.wait(PATIENCE)
    assert handle.restarts == 2
    assert validate(sink.records, schedule.emitted()) == EXACT
    found = {
        name: (values.get("restoredBytes", 0), values.get("restoredLocalBytes", 0))
        for name, values in handle.metrics()["subtasks"].items()
    }
    assert all(size == local for size, local in found.values())
    assert any(size for name, (size, _) in found.items() if not name.startswith("count")), "nothing was in flight"
