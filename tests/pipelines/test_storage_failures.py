"""Jobs whose checkpoint storage is full, read-only, failing, slow, hung or gone: checkpoints fail and count, the job
goes on as configured, and nothing half-written is taken for a checkpoint."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_disk import SmallDisk, small_disk
from small_job import (
    NEVER,
    Remember,
    assert_exact,
    checkpoints_of,
    failure_of,
    records,
    running,
    small_job,
    storage_of,
)

from checkpoint.storage.errors import StorageError
from checkpoint.storage.restore import from_uri
from pipeline import JobFailed, JobHandle, Pipeline, RestartStrategy
from pipeline.testing import TestingSink, TestingSource, failpoints
from sinks import SinkWriter, WriterContext

Name = Callable[[str], str]
MIB = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 4) as disk:
        yield disk


@pytest.fixture
def source(tmp_path: Path) -> TestingSource:
    """Twenty records, a pause, and ten more."""
    return TestingSource([*records(0, 20), TestingSource.PAUSE(), *records(20, 30)], directory=tmp_path / "source")


@pytest.fixture
def sink(tmp_path: Path) -> TestingSink:
    return TestingSink(tmp_path / "sink")


def failed_checkpoint(handle: JobHandle) -> str:
    """Ask for a checkpoint, which has to fail, and return what it says."""
    with pytest.raises(RuntimeError) as caught:
        handle.checkpoint(PATIENCE)
    return str(caught.value)


def assert_nothing_half_written(p: Pipeline) -> None:
    """The job has ended; the one before its last checkpoint may still be on its way out."""
    storage = storage_of(p)
    newest = storage.complete()[-1]
    files = list(storage.load(newest).all_files())
    storage.verify_sizes(files)
    there = {f"{newest.path}/{entry.name}" for entry in storage.entries(newest.path)}
    assert there == {file.path for file in files if not (file.shared or file.inline)} | {f"{newest.path}/_metadata"}
    entries = [*storage.entries(), *(entry for ref in storage.folders() for entry in storage.entries(ref.path))]
    assert [entry.name for entry in entries if entry.name.startswith(".tmp-")] == []


# -- full -----------------------------------------------------------------------------------------------------


def test_on_a_full_disk_checkpoints_fail_by_name_and_complete_again_once_there_is_room(
    unique_name: Name, spark: Any, disk: SmallDisk, source: TestingSource, sink: TestingSink
) -> None:
    p = small_job(
        unique_name("job"),
        disk.folder,
        source,
        sink,
        **NEVER,
        tolerable_failures=3,
        then=lambda s: s.process("remember", Remember()),
    )
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        first = handle.checkpoint(PATIENCE)
        eventually(lambda: len(sink.records) == 20)
        # Into the middle of a file; when it is closed; before a folder can be made.
        for left in (64 * 1024, 8 * 1024, 0):
            with disk.full(left):
                said = failed_checkpoint(handle)
            assert f"StorageError: cannot write {storage_of(p).location}/chk-" in said or "cannot create" in said
            assert "No space left on device" in said
        source.release()
        handle.wait(PATIENCE)
    assert handle.restarts == 0
    statuses = [row.status for row in handle.checkpoints()]
    assert statuses == ["completed", "failed", "failed", "failed", "completed"]
    assert checkpoints_of(p)[-1].id > first
    assert_exact(sink, records(0, 30))
    assert_nothing_half_written(p)


def test_metadata_that_finds_no_room_fails_the_checkpoint_and_its_output_goes_out_with_the_next(
    unique_name: Name, spark: Any, disk: SmallDisk, source: TestingSource, sink: TestingSink
) -> None:
    p = small_job(unique_name("job"), disk.folder, source, sink, **NEVER, tolerable_failures=1)
    with running(p, spark) as handle, ThreadPoolExecutor(1) as pool:
        source.wait_until_paused(PATIENCE)
        held = failpoints.hold("coordinator.before_metadata")
        asked = pool.submit(failed_checkpoint, handle)
        held.wait(PATIENCE)
        with disk.full():
            held.release()
            said = asked.result(PATIENCE)
        assert "_metadata: No space left on device" in said
        assert checkpoints_of(p) == []
        assert sink.records == []
        source.release()
        handle.wait(PATIENCE)
    assert_exact(sink, records(0, 30))
    assert_nothing_half_written(p)


def test_more_failures_than_are_tolerated_end_the_job_with_file_and_reason(
    unique_name: Name, spark: Any, disk: SmallDisk, source: TestingSource, sink: TestingSink
) -> None:
    p = small_job(unique_name("job"), disk.folder, source, sink, **NEVER, tolerable_failures=1)
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        with disk.full():
            for _ in range(2):
                failed_checkpoint(handle)
            with pytest.raises(JobFailed) as caught:
                handle.wait(PATIENCE)
    assert "2 failed in a row" in str(caught.value)
    assert f"{storage_of(p).location}/chk-2-1" in str(caught.value)
    assert "No space left on device" in str(caught.value)
    source.release()
    p.run(spark=spark, timeout=PATIENCE)
    assert_exact(sink, records(0, 30))


def test_a_restart_waits_for_room_as_the_strategy_says(
    unique_name: Name, spark: Any, disk: SmallDisk, source: TestingSource, sink: TestingSink
) -> None:
    """The owner file of the next attempt finds no room either; that counts as a failure like others."""
    restart = RestartStrategy.fixed_delay(attempts=1000, delay=0.05)
    p = small_job(unique_name("job"), disk.folder, source, sink, **NEVER, restart=restart)
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        with disk.full():
            failed_checkpoint(handle)
            eventually(lambda: handle.restarts >= 3)
            assert "owner-2-" in (handle.failure or "")
            assert "No space left on device" in (handle.failure or "")
        source.release()
        handle.wait(PATIENCE)
    assert_exact(sink, records(0, 30))
    assert_nothing_half_written(p)


def test_a_savepoint_that_finds_no_room_fails_by_name_and_neither_counts_nor_is_taken_for_one(
    tmp_path: Path, unique_name: Name, spark: Any, disk: SmallDisk, source: TestingSource, sink: TestingSink
) -> None:
    remember = {"then": lambda s: s.process("remember", Remember())}
    p = small_job(unique_name("job"), tmp_path / "chk", source, sink, **NEVER, **remember)
    target = disk.folder / "savepoint"
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        with disk.full(64 * 1024), pytest.raises(RuntimeError, match=r"/savepoint/chk-1-1/.*No space left on device"):
            handle.savepoint(target, PATIENCE)
        with pytest.raises(StorageError, match="is no savepoint and no checkpoint"):
            from_uri(str(target))
        uri = handle.savepoint(target, PATIENCE)
        assert handle.status == "running"
    source.release()
    elsewhere = small_job(p.name, tmp_path / "elsewhere", source, sink, **remember)
    elsewhere.run(spark=spark, restore=uri, timeout=PATIENCE)
    assert_exact(sink, records(0, 30))


# -- read-only, gone ------------------------------------------------------------------------------------------


def test_a_folder_that_becomes_read_only_fails_checkpoints_until_it_can_be_written_to(
    unique_name: Name, spark: Any, disk: SmallDisk, source: TestingSource, sink: TestingSink
) -> None:
    p = small_job(unique_name("job"), disk.folder, source, sink, **NEVER, tolerable_failures=1)
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        disk.set_writable(False)
        assert "Read-only file system" in failed_checkpoint(handle)
        disk.set_writable(True)
        handle.checkpoint(PATIENCE)
        source.release()
        handle.wait(PATIENCE)
    assert_exact(sink, records(0, 30))


def test_a_job_does_not_start_on_a_read_only_folder(
    unique_name: Name, spark: Any, disk: SmallDisk, source: TestingSource, sink: TestingSink
) -> None:
    disk.set_writable(False)
    message = failure_of(small_job(unique_name("job"), disk.folder, source, sink), spark)
    assert "Read-only file system" in message
    assert "Make it writable for the user that runs the job, or choose another folder" in message


def test_a_job_whose_folder_is_deleted_stops_and_commits_nothing_more(
    tmp_path: Path, unique_name: Name, spark: Any, source: TestingSource, sink: TestingSink
) -> None:
    restart = RestartStrategy.fixed_delay(attempts=5, delay=0.05)
    p = small_job(unique_name("job"), tmp_path / "chk", source, sink, **NEVER, restart=restart)
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        shutil.rmtree(tmp_path / "chk")
        failed_checkpoint(handle)
        with pytest.raises(JobFailed) as caught:
            handle.wait(PATIENCE)
    assert "no longer has this owner's file" in str(caught.value)
    assert "was the folder deleted or exchanged while the job ran? The job stops; start it again" in str(caught.value)
    assert handle.restarts == 0
    assert sink.records == []
    assert storage_of(p).complete() == []


# -- failing at each step -------------------------------------------------------------------------------------


STEPS = {
    "storage.create": r"cannot create file:\S*/chk-1-1/",
    "storage.write": r"cannot write file:\S*/chk-1-1/",
    "storage.close": r"cannot write file:\S*/chk-1-1/",
    "storage.put": r"cannot write file:\S*/chk-1-1/_metadata",
    "storage.list": r"cannot list file:\S*",
    "coordinator.before_metadata": "InjectedFailure",
    "coordinator.after_metadata": "InjectedFailure",
}
"""Where the storage fails, and what is said."""
IN_SUBTASKS = ("storage.create", "storage.write", "storage.close")


@pytest.mark.parametrize(
    ("step", "inline"), [*((step, 0) for step in STEPS), ("storage.close", 10_000), ("storage.put", 10_000)]
)
def test_a_storage_that_fails_at_one_step_fails_that_checkpoint_only(
    tmp_path: Path, unique_name: Name, spark: Any, source: TestingSource, sink: TestingSink, step: str, inline: int
) -> None:
    """After `_metadata` is durable, too: then it is deleted again. And where state is inline in it."""
    name = unique_name("job")
    p = small_job(name, tmp_path, source, sink, **NEVER, tolerable_failures=1, inline_bytes=inline)
    if step in IN_SUBTASKS:
        failpoints.fail(step, error="injected here")
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        if step not in IN_SUBTASKS:
            failpoints.fail(step, error="injected here")
        assert re.search(f"checkpoint 1 failed: .*{STEPS[step]}.*: injected here", failed_checkpoint(handle))
        assert sink.records == []
        eventually(lambda: checkpoints_of(p) == [])
        second = handle.checkpoint(PATIENCE)
        assert [ref.id for ref in checkpoints_of(p)] == [second]
        source.release()
        handle.wait(PATIENCE)
    assert handle.restarts == 0
    assert_exact(sink, records(0, 30))
    assert_nothing_half_written(p)


def test_a_checkpoint_that_cannot_be_deleted_stays_until_the_next_owner_deletes_it(
    tmp_path: Path, unique_name: Name, spark: Any, source: TestingSource, sink: TestingSink
) -> None:
    p = small_job(unique_name("job"), tmp_path, source, sink, **NEVER)
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        first = handle.checkpoint(PATIENCE)
        deleting = failpoints.fail("storage.delete", times=100)
        second = handle.checkpoint(PATIENCE)
        eventually(lambda: deleting.fired)
        third = handle.checkpoint(PATIENCE)
        eventually(lambda: deleting.hits >= 2)
        assert [ref.id for ref in checkpoints_of(p)] == [first, second, third]
        assert handle.status == "running"
    deleting.disarm()
    with running(p, spark) as handle:
        fourth = handle.checkpoint(PATIENCE)
        eventually(lambda: [ref.id for ref in checkpoints_of(p)] == [fourth])
        source.release()
        handle.wait(PATIENCE)
    assert_exact(sink, records(0, 30))


# -- slow, hung -----------------------------------------------------------------------------------------------


def test_a_checkpoint_whose_storage_is_slower_than_its_timeout_expires_and_says_so(
    tmp_path: Path, unique_name: Name, spark: Any, source: TestingSource, sink: TestingSink
) -> None:
    p = small_job(unique_name("job"), tmp_path, source, sink, **NEVER, timeout=4, tolerable_failures=1)
    slow = failpoints.hold("storage.close")
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        said = failed_checkpoint(handle)
        assert re.search(r"count → out\[0\] is still writing its snapshot; .*; storage busy", said), said
        slow.release()
        second = handle.checkpoint(PATIENCE)
        assert [ref.id for ref in checkpoints_of(p)] == [second]
        source.release()
        handle.wait(PATIENCE)
    assert handle.restarts == 0
    assert_exact(sink, records(0, 30))
    assert_nothing_half_written(p)


def test_metadata_that_takes_longer_than_the_timeout_expires_and_is_deleted_when_it_comes(
    tmp_path: Path, unique_name: Name, spark: Any, source: TestingSource, sink: TestingSink
) -> None:
    p = small_job(unique_name("job"), tmp_path, source, sink, **NEVER, timeout=3, tolerable_failures=1)
    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        slow = failpoints.hold("storage.put")
        assert "_metadata not written 3 s after the trigger" in failed_checkpoint(handle)
        slow.release()
        second = handle.checkpoint(PATIENCE)
        eventually(lambda: [ref.id for ref in storage_of(p).complete()] == [second])
        source.release()
        handle.wait(PATIENCE)
    assert_exact(sink, records(0, 30))


class StagingSink(TestingSink):
    """Makes a file durable at each barrier, in the task's thread, as a sink may."""

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        writer = super().create_writer(ctx)
        prepare = writer.prepare_commit

        def stage(checkpoint_id: int) -> Any:
            file = ctx.staging.create("out")
            file.write(b"staged")
            handle = file.close()
            return [(rows, [handle]) for rows in prepare(checkpoint_id)]

        writer.prepare_commit = stage  # type: ignore[method-assign]
        return writer


def test_a_storage_that_hangs_in_a_sinks_writer_is_named_and_does_not_keep_the_job_from_being_cancelled(
    tmp_path: Path,
    unique_name: Name,
    spark: Any,
    source: TestingSource,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = StagingSink(tmp_path / "sink")
    p = small_job(unique_name("job"), tmp_path, source, sink, **NEVER, timeout=2, tolerable_failures=5)
    hung = failpoints.hold("storage.close")
    with running(p, spark) as handle, caplog.at_level(logging.WARNING):
        source.wait_until_paused(PATIENCE)
        said = failed_checkpoint(handle)
        assert "count → out[0] is still writing its snapshot" in said
        assert "its operators or the sink's writer have kept the task busy for" in said
        assert "storage busy" in said
        assert handle.status == "running"
        handle.cancel()
    assert handle.status == "cancelled"
    assert "after the end of the attempt" not in caplog.text
    hung.disarm()
    source.release()
    p.run(spark=spark, timeout=PATIENCE)
    assert_exact(sink, records(0, 30))
