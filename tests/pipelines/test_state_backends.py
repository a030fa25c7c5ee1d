"""Jobs whose state is in RocksDB, and jobs that change from one backend to the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import NEVER, assert_exact, records, running, small_job

from pipeline import RocksDb
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]


@pytest.mark.parametrize("incremental", [False, True])
def test_a_job_goes_from_the_heap_to_rocksdb_and_back_by_savepoints_at_changed_parallelism(
    tmp_path: Path, unique_name: Name, spark: Any, incremental: bool
) -> None:
    pause, local = TestingSource.PAUSE(), tmp_path / "local"
    content = [*records(0, 50, 7), pause, *records(50, 100, 7), pause, *records(100, 150, 7)]
    source = TestingSource(content, directory=tmp_path / "source")
    sink, name = TestingSink(tmp_path / "sink"), unique_name("job")
    rocksdb = RocksDb(memory=32 << 20, folder=str(local))

    def job(parallelism: int, state_backend: Any) -> Any:
        return small_job(
            name,
            tmp_path,
            source,
            sink,
            parallelism=parallelism,
            **NEVER,
            incremental=incremental,
            state_backend=state_backend,
        )

    with running(job(1, "heap"), spark) as handle:
        source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        savepoint = handle.savepoint(tmp_path / "of the heap", PATIENCE)
    source.release()
    with running(job(3, rocksdb), spark, restore=savepoint) as handle:
        source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        eventually(lambda: any("rocksdbSizeBytes" in one for one in handle.metrics()["subtasks"].values()))
        assert list(local.glob("weir-rocksdb/*/db"))
        savepoint = handle.savepoint(tmp_path / "of rocksdb", PATIENCE)
    eventually(lambda: not list(local.glob("weir-rocksdb/*")))
    source.release()
    job(2, "heap").run(restore=savepoint, spark=spark, timeout=PATIENCE)
    assert_exact(sink, records(0, 150, 7))
