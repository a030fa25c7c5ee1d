"""The file sink and the file source in an object store, where nothing can be renamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from file_sink_helpers import KILLED, FileJob, commit_elsewhere
from s3_server import Bucket, S3Server

from checkpoint import failpoints as mechanism
from pipeline.testing import failpoints
from sinks.files.errors import OutputAhead, TargetUnavailable
from sources import END, FileSource, SourceBatch, SourceContext

MIB = 1024 * 1024


class NoMetrics:
    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: float | str | None) -> None: ...


@pytest.fixture
def job(tmp_path: Path, s3: S3Server, bucket: Bucket) -> FileJob:
    (tmp_path / "staging").mkdir()
    return FileJob(tmp_path, tmp_path / "staging", uri=s3.uri(f"{bucket.name}/out"))


def visible(bucket: Bucket) -> list[str]:
    """Objects that readers see."""
    names = [key.removeprefix("out/") for key in bucket.objects()]
    return [name for name in names if not any(part.startswith(("_", ".")) for part in name.split("/"))]


def read(uri: str, **options: Any) -> list[Any]:
    reading = FileSource(uri, **options).create_reader(SourceContext("p", "in", 0, 1, NoMetrics()))
    found = []
    while (polled := reading.poll(10_000, 0.0)) is not END:
        if isinstance(polled, SourceBatch):
            found += polled.values if isinstance(polled.values, list) else polled.values.to_pylist()
    reading.close()
    return found


@pytest.mark.parametrize("megabytes", [1, 18])
def test_an_object_is_there_whole_or_not_at_all(job: FileJob, bucket: Bucket, megabytes: int) -> None:
    values = [{"id": i, "text": "x" * MIB} for i in range(megabytes)]
    committer, epoch = job.opened(), job.epoch(1, values)
    for step in ("files.after_intent", "files.before_rename"):
        with failpoints.fail(step), pytest.raises(failpoints.InjectedFailure):
            committer.commit(1, epoch)
        assert visible(bucket) == []
    committer.commit(1, epoch)
    assert visible(bucket) == [epoch[0].payload["path"]]
    assert len(bucket.objects()) == 2  # and the marker
    assert read(job.uri, format="jsonl") == values


@pytest.mark.parametrize("step", ["files.before_rename", "files.after_rename"])
def test_a_kill_while_a_large_object_is_made_loses_and_doubles_nothing(job: FileJob, bucket: Bucket, step: str) -> None:
    values = [{"id": i, "text": "x" * MIB} for i in range(12)]
    state = job.opened().snapshot()
    epoch = job.epoch(1, values)
    restored = job.restore(1, state)
    with failpoints.crash(step):
        assert commit_elsewhere(restored, epoch, mechanism.active()) == KILLED
    assert len(visible(bucket)) == (step == "files.after_rename")
    committer = restored.committer()
    committer.commit(1, committer.open(epoch))
    assert visible(bucket) == [epoch[0].payload["path"]]
    assert len(bucket.objects()) == 2
    assert read(job.uri, format="jsonl") == values


def test_parquet_files_are_read_back_by_partition(job: FileJob, bucket: Bucket) -> None:
    job.options = {"schema": pa.schema([("id", pa.int64()), ("day", pa.string())]), "partition_by": "day"}
    values = [{"id": i, "day": f"2026-11-{1 + i % 3:02d}"} for i in range(30)]
    job.sink().validate()
    job.opened().commit(1, job.epoch(1, values))
    assert [name.split("/")[0] for name in visible(bucket)] == ["day=2026-11-01", "day=2026-11-02", "day=2026-11-03"]
    assert sorted(read(job.uri), key=lambda value: value["id"]) == values
    assert read(job.uri, pattern="day=2026-11-02/*", columns=["id", "day"]) == [
        {"id": i, "day": "2026-11-02"} for i in range(1, 30, 3)
    ]


def test_output_that_is_ahead_is_found_in_a_bucket_too(job: FileJob) -> None:
    committer = job.opened()
    state = committer.snapshot()
    committer.commit(1, job.epoch(1, [{"id": 1}]))
    with pytest.raises(OutputAhead):
        job.restore(0, state).opened()


def test_a_bucket_that_is_not_there_is_named_before_the_start(tmp_path: Path, s3: S3Server) -> None:
    with pytest.raises(TargetUnavailable, match=r"cannot write the file sink's folder s3://no-such-bucket/out"):
        FileJob(tmp_path, tmp_path, uri=s3.uri("no-such-bucket/out")).sink().validate()
