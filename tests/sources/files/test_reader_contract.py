"""The file source keeps the source contract."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.testing import check_source_contract
from sources import FileSource


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_it_keeps_the_source_contract(tmp_path: Path, format: str) -> None:  # noqa: A002
    for n in range(4):
        ids = range(n * 10, n * 10 + 10)
        if format == "parquet":
            pq.write_table(pa.table({"id": ids}), tmp_path / f"{n}", row_group_size=3)
        else:
            (tmp_path / f"{n}").write_text("".join(f'{{"id": {id}}}\n' for id in ids))
    check_source_contract(lambda: FileSource(tmp_path.as_uri(), format=format, split_bytes=200))


def test_one_that_watches_its_folder_keeps_it_too(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}").write_text("".join(f'{{"id": {id}}}\n' for id in range(n * 10, n * 10 + 10)))
    check_source_contract(
        lambda: FileSource(tmp_path.as_uri(), format="jsonl", discovery_interval=0.05),
        [{"id": id} for id in range(30)],
    )
