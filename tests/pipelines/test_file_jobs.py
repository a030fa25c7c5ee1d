"""Whole jobs from files to files: exact over kills at the steps of the sink, at the same and at another parallelism."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deadlines import PATIENCE, eventually
from small_job import NEVER, checkpoints_of, failure_of, running, small_job, storage_of

from pipeline import CheckpointConfig, Operator, Pipeline, RestartStrategy
from pipeline.testing import failpoints
from sinks import FileSink
from sources import FileSource

Name = Callable[[str], str]

KEYS = 4
matrix = pytest.mark.matrix
STEPS = ("after_flush", "after_intent", "after_rename")
MORE_STEPS = ("before_flush", "before_commit", "before_rename", "after_commit", "after_settle")


def write_input(folder: Path, first: int, last: int) -> None:
    """A file for each hundred ids; each appears whole. All records of a key are in files in the order of their ids."""
    folder.mkdir(exist_ok=True)
    for start in range(first, last, 100):
        hidden = folder / f".{start}"
        values = [{"id": id, "key": f"k{id % KEYS}"} for id in range(start, min(start + 100, last))]
        hidden.write_text("".join(f"{json.dumps(value)}\n" for value in values))
        hidden.rename(folder / f"{start:06d}.jsonl")


def output(folder: Path) -> list[Any]:
    """What a reader finds, in the order of the names."""
    found: list[Any] = []
    for path in sorted(folder.rglob("*"), key=lambda path: path.name):
        if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
            if path.suffix == ".parquet":
                key = path.parent.name.removeprefix("key=")
                found += [{**row, "key": key} for row in pq.ParquetFile(path).read().to_pylist()]
            else:
                found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


def assert_exact(folder: Path, n: int) -> None:
    """Every record is there once, and each number of each key, which state and records in flight give."""
    found = output(folder)
    assert sorted(record["id"] for record in found) == list(range(n))
    numbers: dict[str, list[int]] = defaultdict(list)
    for record in found:
        numbers[record["key"]].append(record["number"])
    assert {key: sorted(given) for key, given in numbers.items()} == {
        f"k{k}": list(range(1, len(range(k, n, KEYS)) + 1)) for k in range(KEYS)
    }


def job(
    tmp_path: Path, name: str, parallelism: int, restarts: int, sink: FileSink, source: dict[str, Any], **options: Any
) -> Pipeline:
    return small_job(
        name,
        tmp_path / "checkpoints",
        FileSource((tmp_path / "in").as_uri(), format="jsonl", **source),
        sink,
        parallelism=parallelism,
        restart=RestartStrategy.fixed_delay(attempts=restarts, delay=0.05) if restarts else RestartStrategy.none(),
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("steps", [STEPS, pytest.param(MORE_STEPS, marks=matrix)])
def test_each_record_is_in_the_files_once_over_kills_at_several_steps(
    tmp_path: Path, unique_name: Name, spark: Any, steps: Sequence[str]
) -> None:
    write_input(tmp_path / "in", 0, 2000)
    schema = pa.schema([("id", pa.int64()), ("key", pa.string()), ("number", pa.int64())])
    sink = FileSink((tmp_path / "out").as_uri(), schema=schema, partition_by="key")
    pipeline = job(tmp_path, unique_name("job"), 2, 20, sink, {"rate_limit": 500})
    with contextlib.ExitStack() as armed:
        # Over both subtasks, so that as a rule one of them is past the step and the other is not.
        points = [armed.enter_context(failpoints.crash(f"files.{step}", nth=2 + n)) for n, step in enumerate(steps)]
        with running(pipeline, spark) as handle:
            handle.wait(PATIENCE)
        assert all(point.fired for point in points)
    assert handle.restarts > 0
    assert_exact(tmp_path / "out", 2000)


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("twice", pc.multiply(batch.column("id"), 2))


class Place(Operator):
    """Says which file a record comes from."""

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield {**value, "place": [ctx.file, ctx.file_row]}


def test_parquet_files_are_read_by_jobs_as_record_batches_and_row_by_row(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    for k in range(4):
        folder = tmp_path / "in" / f"key=k{k}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": range(k, 4000, 4)}), folder / "a.parquet", row_group_size=100)
    checkpoints = CheckpointConfig((tmp_path / "checkpoints").as_uri(), interval=0.2)
    p = Pipeline(unique_name("job"), 2, checkpoints=checkpoints)
    source = FileSource((tmp_path / "in").as_uri(), split_bytes=4096)
    p.source("batches", source).map_batches(doubled).sink("doubled", jsonl_sink(tmp_path / "doubled"))
    p.source("rows", source).process("place", Place()).sink("placed", jsonl_sink(tmp_path / "placed"))
    p.run(spark=spark, timeout=PATIENCE)
    found = sorted(output(tmp_path / "doubled"), key=lambda row: row["id"])
    assert found == [{"id": id, "key": f"k{id % 4}", "twice": 2 * id} for id in range(4000)]
    found = sorted(output(tmp_path / "placed"), key=lambda row: row["id"])
    assert [row["place"] for row in found] == [[f"key=k{id % 4}/a.parquet", id // 4] for id in range(4000)]


def jsonl_sink(folder: Path) -> FileSink:
    return FileSink(folder.as_uri(), format="jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("step", ["after_rename", pytest.param("after_intent", marks=matrix)])
def test_an_epoch_that_is_partly_visible_is_completed_at_another_parallelism(
    tmp_path: Path, unique_name: Name, spark: Any, step: str
) -> None:
    name = unique_name("job")
    write_input(tmp_path / "in", 0, 1000)
    sink = FileSink((tmp_path / "out").as_uri(), format="jsonl", partition_by="key")
    with failpoints.crash(f"files.{step}", nth=2) as point:
        failure_of(job(tmp_path, name, 2, 0, sink, {"rate_limit": 1000}), spark)
        assert point.fired
    write_input(tmp_path / "in", 1000, 1500)
    for parallelism in (3, 1):
        with running(job(tmp_path, name, parallelism, 0, sink, {}), spark) as handle:
            handle.wait(PATIENCE)
        assert_exact(tmp_path / "out", 1500)


def test_a_watched_folder_is_read_on_after_a_stop_and_an_older_checkpoint_is_refused(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    name = unique_name("job")
    write_input(tmp_path / "in", 0, 200)
    sink = FileSink((tmp_path / "out").as_uri(), format="jsonl")

    def watching(parallelism: int) -> Pipeline:
        return job(tmp_path, name, parallelism, 0, sink, {"discovery_interval": 0.05}, **NEVER, retained=10)

    first = watching(1)
    with running(first, spark) as handle:
        _checkpoint_until(handle, tmp_path / "out", 200)
        write_input(tmp_path / "in", 200, 300)
        _checkpoint_until(handle, tmp_path / "out", 300)
        handle.stop()
    write_input(tmp_path / "in", 300, 400)
    with running(watching(2), spark) as handle:
        _checkpoint_until(handle, tmp_path / "out", 400)
    assert_exact(tmp_path / "out", 400)
    oldest = storage_of(first).uri_of(checkpoints_of(first)[0].path)
    failure = failure_of(watching(1), spark, restore=oldest)
    assert failure.count("output is ahead of this checkpoint") == 1
    assert "or start with rewind=True" in failure
    write_input(tmp_path / "in", 400, 500)
    with running(watching(1), spark) as handle:  # the refused start has given nothing up
        _checkpoint_until(handle, tmp_path / "out", 500)
    assert_exact(tmp_path / "out", 500)


def _checkpoint_until(handle: Any, folder: Path, n: int) -> None:
    def there() -> bool:
        handle.checkpoint(PATIENCE)
        return len(output(folder)) == n

    eventually(there)
