"""Whole jobs whose checkpoints are in an object store."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deadlines import PATIENCE, eventually
from s3_server import Bucket, StoredFolder
from small_job import NEVER, Remember, assert_exact, checkpoints_of, records, running, small_job, storage_of

from pipeline import Pipeline, RestartStrategy
from pipeline.testing import TestingSink, TestingSource

PAUSE = TestingSource.PAUSE()


def test_a_job_survives_a_killed_worker_and_a_restart_at_another_parallelism(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any, bucket: Bucket
) -> None:
    name = unique_name("job")
    script = [*records(0, 40), PAUSE, *records(40, 80), PAUSE, *records(80, 120), PAUSE]
    source = TestingSource(script, directory=tmp_path / "source", batch_size=5)
    sink = TestingSink(tmp_path / "sink")

    def job(parallelism: int, **options: Any) -> Pipeline:
        return small_job(
            name,
            tmp_path,
            source,
            sink,
            uri=bucket.uri,
            parallelism=parallelism,
            then=lambda s: s.process("remember", Remember()),
            restart=RestartStrategy.fixed_delay(attempts=5, delay=0.05),
            tolerable_failures=5,
            retained=2,
            **options,
        )

    with running(job(1, interval=0.3), spark) as handle:
        source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        eventually(lambda: len(sink.records) == 40)
        os.kill(handle.processes()["count → remember → out[0]"], signal.SIGKILL)
        eventually(lambda: handle.restarts > 0 and handle.running_since is not None)
        source.release()
        source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        eventually(lambda: len(sink.records) == 80)
    source.release()
    again = job(2, **NEVER)
    with running(again, spark) as handle:
        source.wait_until_paused(PATIENCE)
        ids = [handle.checkpoint(PATIENCE) for _ in range(3)][1:]
        eventually(lambda: [ref.id for ref in checkpoints_of(again)] == ids)

        # Nothing is left but what is retained, and what its owner has of its own.
        storage = storage_of(again)
        (ownership,) = storage.owners()
        kept = checkpoints_of(again)
        files = {file.path for ref in kept for file in storage.load(ref).all_files()}
        wanted = files | {f"{ref.path}/_metadata" for ref in kept} | {ownership.path, ownership.record_path}
        eventually(lambda: set(StoredFolder(bucket, name).names()) == wanted)
        assert bucket.uploads() == []
        source.release()
        handle.wait(PATIENCE)
    assert_exact(sink, records(0, 120))


def test_a_jobs_folder_can_be_moved_here_from_a_disk_into_a_bucket(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any, bucket: Bucket
) -> None:
    source = TestingSource([*records(0, 10), PAUSE, *records(10, 20)], directory=tmp_path / "source")
    sink, name, old = TestingSink(tmp_path / "sink"), unique_name("job"), tmp_path / "old"
    with running(small_job(name, old, source, sink), spark) as handle:
        source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
    for path in old.rglob("*"):
        if path.is_file():
            bucket.put(f"weir/{path.relative_to(old).as_posix()}", path.read_bytes())
    shutil.rmtree(old)
    source.release()
    small_job(name, tmp_path, source, sink, uri=bucket.uri).run(spark=spark, timeout=PATIENCE)
    assert_exact(sink, records(0, 20))


def test_a_savepoint_in_the_store_is_restored_into_another_folder(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any, bucket: Bucket
) -> None:
    source = TestingSource([*records(0, 10), PAUSE, *records(10, 20)], directory=tmp_path / "source")
    sink, name = TestingSink(tmp_path / "sink"), unique_name("job")
    with running(small_job(name, tmp_path, source, sink, uri=bucket.uri), spark) as handle:
        source.wait_until_paused(PATIENCE)
        uri = bucket.uri.replace("/weir?", "/kept/savepoint-1?")
        assert handle.stop(savepoint=uri, timeout=PATIENCE) == uri
    source.release()
    elsewhere = small_job(name, tmp_path / "elsewhere", source, sink)
    elsewhere.run(spark=spark, restore=uri, timeout=PATIENCE)
    assert_exact(sink, records(0, 20))
