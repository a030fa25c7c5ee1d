"""The file source and the file sink keep the contracts of connectors."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.testing import SinkUnderTest, check_sink_contract, check_source_contract
from sinks import FileSink
from sources import FileSource


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="weir-files-") as made:
        yield Path(made)


def visible(folder: Path) -> list[Any]:
    found: list[Any] = []
    for path in sorted(folder.glob("part-*")):
        if path.suffix == ".parquet":
            found += pq.ParquetFile(path).read().to_pylist()
        else:
            found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("format", ["jsonl", pytest.param("parquet", marks=pytest.mark.matrix)])
def test_the_file_sink_keeps_its_contract(folder: Path, format: str) -> None:  # noqa: A002
    schema = pa.schema([("id", pa.int64()), ("key", pa.string())]) if format == "parquet" else None
    made = 0

    def factory() -> SinkUnderTest:
        nonlocal made
        made += 1
        target = folder / f"{made}"
        sink = FileSink(target.as_uri(), format=format, schema=schema)
        return SinkUnderTest(sink, lambda: visible(target), refused={"id": b"x"})

    check_sink_contract(factory)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_the_file_source_keeps_its_contract(folder: Path, format: str) -> None:  # noqa: A002
    for n in range(4):
        ids = range(n * 10, n * 10 + 10)
        if format == "parquet":
            pq.write_table(pa.table({"id": ids}), folder / f"{n}", row_group_size=3)
        else:
            (folder / f"{n}").write_text("".join(f'{{"id": {id}}}\n' for id in ids))
    check_source_contract(lambda: FileSource(folder.as_uri(), format=format, split_bytes=200))


def test_a_file_source_that_watches_its_folder_keeps_its_contract(folder: Path) -> None:
    for n in range(3):
        (folder / f"{n}").write_text("".join(f'{{"id": {id}}}\n' for id in range(n * 10, n * 10 + 10)))
    check_source_contract(
        lambda: FileSource(folder.as_uri(), format="jsonl", discovery_interval=0.05),
        [{"id": id} for id in range(30)],
    )
