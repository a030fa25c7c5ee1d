"""A whole job with windows: it crashes, goes on, and each record is in one final result or in the late stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deadlines import PATIENCE

from pipeline import CheckpointConfig, Count, Pipeline, RestartStrategy, Sliding, Sum, Tumbling, WatermarkStrategy
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]


def test_windows_of_windows_are_exact_over_a_crash(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    records = [{"key": f"k{i % 5}", "at": i * 50 - i % 7 * 100, "amount": i} for i in range(400)]
    source = TestingSource(partitions=[[*records[0:200:2], TestingSource.ABORT(), *records[200::2]], [*records[1::2]]])
    minutes, totals, late = (TestingSink(tmp_path / name) for name in ("minutes", "totals", "late"))
    p = Pipeline(
        unique_name("windows"),
        2,
        checkpoints=CheckpointConfig((tmp_path / "checkpoints").as_uri(), interval=0.1),
        restart=RestartStrategy.fixed_delay(attempts=3, delay=0.1),
    )
    keyed = p.source("in", source).assign_timestamps(WatermarkStrategy.bounded("at", lateness=0.3)).key_by("key")
    results = keyed.window(Tumbling(1), lateness=0.2).aggregate("seconds", n=Count(), total=Sum("amount"))
    results.filter(lambda result: result["final"]).sink("out", minutes)
    results.late().sink("late", late)
    (
        keyed.window(Sliding(2, 1))
        .aggregate(n=Count())
        .key_by(lambda result: 0)
        .window(Tumbling(4))
        .aggregate("four seconds", n=Sum("n"))
        .sink("totals", totals)
    )
    p.start(spark=spark).wait(PATIENCE)
    counted = {}
    for result in minutes.records:
        assert (result["key"], result["start"]) not in counted
        counted[result["key"], result["start"]] = result
    expected: dict[Any, list[int]] = {}
    lost = {record["amount"] for record in late.records}
    assert len(lost) == len(late.records)
    for record in records:
        if record["amount"] not in lost:
            expected.setdefault((record["key"], record["at"] // 1000 * 1000), []).append(record["amount"])
    assert {key: (one["n"], one["total"]) for key, one in counted.items()} == {
        key: (len(amounts), sum(amounts)) for key, amounts in expected.items()
    }
    # Each record is in two sliding windows, and each of those in one of four seconds.
    assert sum(one["n"] for one in totals.records) == 2 * len(records)
    assert all(one["final"] for one in totals.records)
