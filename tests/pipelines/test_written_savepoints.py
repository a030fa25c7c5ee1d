"""Jobs go on from savepoints that were written from tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deadlines import PATIENCE
from small_job import records, running, small_job

from pipeline.state_tables import NewPipeline, write_savepoint
from pipeline.testing import TestingSink, TestingSource

COUNT = {"step": "count", "state": "count"}


def test_a_job_goes_on_from_a_savepoint_of_tables_and_from_a_changed_one(
    spark: Any, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    def numbers(restored: str) -> dict[int, int]:
        sink = TestingSink(tmp_path / f"sink-{restored}")
        source = TestingSource(records(0, 6))
        job = small_job(name, tmp_path / f"job-{restored}", source, sink, parallelism=2, max_parallelism=16)
        with running(job, spark, restore=str(tmp_path / restored)) as handle:
            handle.wait(PATIENCE)
        return {record["id"]: record["number"] for record in sink.records}

    name = unique_name("made")
    made, changed = str(tmp_path / "made"), str(tmp_path / "changed")
    warehouse = pa.table({"key": ["k0", "k1"], "value": [100, 200]})
    write_savepoint(made, base=NewPipeline(name, 16), replace=[warehouse], **COUNT)
    assert numbers("made") == {0: 101, 1: 201, 2: 1, 3: 102, 4: 202, 5: 2}
    write_savepoint(
        changed,
        base=made,
        put=[pa.table({"key": ["k0"], "value": [7]})],
        delete_keys=["k1"],
        made_from=["a form"],
        **COUNT,
    )
    assert numbers("changed") == {0: 8, 1: 1, 2: 1, 3: 9, 4: 2, 5: 2}
