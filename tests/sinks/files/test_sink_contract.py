"""The file sink keeps the sink contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.testing import SinkUnderTest, check_sink_contract
from sinks import FileSink


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
def test_it_keeps_the_sink_contract(tmp_path: Path, format: str) -> None:  # noqa: A002
    schema = pa.schema([("id", pa.int64()), ("key", pa.string())]) if format == "parquet" else None
    made = 0

    def factory() -> SinkUnderTest:
        nonlocal made
        made += 1
        target = tmp_path / f"{made}"
        sink = FileSink(target.as_uri(), format=format, schema=schema)
        return SinkUnderTest(sink, lambda: visible(target), refused={"id": b"x"})

    check_sink_contract(factory)
