"""Staged output in an object store, and on a disk that fills up."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from kafka_job import EXACT, Stage
from s3_server import Bucket
from small_disk import small_disk

from checkpoint.storage.storage import CheckpointStorage
from pipeline import RestartStrategy
from pipeline.handle import JobHandle


def completed(handle: JobHandle) -> int:
    return sum(row.status == "completed" for row in handle.checkpoints())


def assert_whole(storage: CheckpointStorage) -> None:
    """What is taken for complete is."""
    (*_, newest) = storage.complete()
    storage.verify_sizes(storage.load(newest).all_files())


def test_output_staged_in_an_object_store_is_exact_though_a_sink_is_killed(
    stage: Stage, spark: Any, bucket: Bucket
) -> None:
    p = stage.pipeline(uri=bucket.uri, tolerable_failures=5)
    handle = p.start(spark=spark)
    try:
        eventually(lambda: completed(handle) >= 2)
        os.kill(handle.processes()["sum → out[0]"], signal.SIGKILL)
        handle.wait(PATIENCE)
    finally:
        handle.cancel()
    assert handle.restarts > 0
    assert stage.findings() == EXACT
    assert_whole(CheckpointStorage(bucket.uri, stage.name))
    assert bucket.uploads() == []


@pytest.mark.parametrize("left", [0, 4096], ids=["no room for a file", "room for its beginning"])
def test_output_that_finds_no_room_fails_the_attempt_by_name_and_is_exact_once_there_is_room(
    make_stage: Callable[..., Stage], spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, left: int
) -> None:
    """The records are in progress, so the attempt fails; it starts again from the last checkpoint."""
    stage = make_stage(3000)
    restart = RestartStrategy.fixed_delay(attempts=1000, delay=0.1)
    with small_disk(tmp_path / "disk", 8) as disk, caplog.at_level(logging.WARNING):
        p = stage.pipeline(uri=disk.folder.as_uri(), restart=restart, tolerable_failures=1000, interval=0.3)
        handle = p.start(spark=spark)
        try:
            eventually(lambda: completed(handle) >= 2)
            before = completed(handle)
            with disk.full(left):
                eventually(lambda: handle.restarts >= 1)
            eventually(lambda: completed(handle) > before)
            handle.wait(PATIENCE)
        finally:
            handle.cancel()
        folder = f"{disk.folder.as_uri()}/{stage.name}"
        causes = [record.getMessage() for record in caplog.records if "attempt failed" in record.getMessage()]
        assert re.search(rf"StorageError: cannot (create|write) {folder}/shared/1-out-", causes[0])
        assert "No space left on device" in causes[0]
        storage = CheckpointStorage(disk.folder.as_uri(), stage.name)
        assert_whole(storage)
        assert [path for path in storage.list_shared() if ".tmp-" in path] == []
    assert stage.findings() == EXACT
