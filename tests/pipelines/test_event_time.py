"""Watermarks and timers in whole jobs: every record counts in its own minute, whatever happens to the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import NEVER, running

from pipeline import (
    CheckpointConfig,
    JobHandle,
    KeyedOperator,
    MapState,
    Operator,
    Pipeline,
    RestartStrategy,
    WatermarkStrategy,
)
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]
KEYS = 7
MINUTE = 1000


class PerMinute(KeyedOperator):
    """Counts the records of each minute (of a second) and tells when it is over."""

    counts = MapState[int, int]()

    def process(self, value: dict[str, Any], ctx: Any) -> None:
        assert ctx.timestamp == value["at"]
        minute = value["at"] // MINUTE
        late = ctx.watermark is not None and value["at"] <= ctx.watermark
        if late:
            ctx.side_output("late", {"late": value})
        self.counts[minute] = self.counts.get(minute, 0) + 1
        ctx.timer((minute + 1) * MINUTE - 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        minute = timestamp // MINUTE
        yield {"key": ctx.key, "minute": minute, "count": self.counts.pop(minute), "at": ctx.timestamp}


class NotLate(Operator):
    """Behind an edge, what a timer emits is in front of the watermark that set it off."""

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        assert ctx.timestamp == value["at"]
        assert ctx.watermark is None or ctx.watermark < ctx.timestamp
        yield value


def part(first: int, last: int, partition: int) -> list[Any]:
    """One partition runs far ahead of the other, and each is in order."""
    return [{"key": f"k{i % KEYS}", "at": i * 37 * (1 + 2 * partition)} for i in range(first, last)]


def job(
    name: str, folder: Path, source: TestingSource, sink: TestingSink, parallelism: int, **options: Any
) -> Pipeline:
    checkpoints = {"interval": options.pop("interval")} if "interval" in options else NEVER
    config = CheckpointConfig(folder.as_uri(), **checkpoints, timeout=60)
    p = Pipeline(name, parallelism, checkpoints=config, restart=RestartStrategy.fixed_delay(attempts=3, delay=0.1))
    timed = p.source("in", source).assign_timestamps(WatermarkStrategy.bounded("at", 0), id="times")
    counts = timed.key_by("key").process("minutes", PerMinute())
    counts.rebalance().process("not late", NotLate()).union(counts.side_output("late")).sink("out", sink)
    return p


def taken(handle: JobHandle) -> int:
    return sum(m["recordsIn"] for name, m in handle.metrics()["subtasks"].items() if name.startswith("minutes"))


def expected(records: Iterable[dict[str, Any]]) -> Counter[tuple[str, int]]:
    return Counter((record["key"], record["at"] // MINUTE) for record in records)


def assert_exact(sink: TestingSink, records: list[Any]) -> None:
    assert [record for record in sink.records if "late" in record] == []
    minutes = [(record["key"], record["minute"]) for record in sink.records]
    assert len(minutes) == len(set(minutes))
    assert {(r["key"], r["minute"]): r["count"] for r in sink.records} == expected(records)


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(("old", "new"), [(2, 2), (2, 3), (3, 1)])
def test_every_record_counts_in_its_minute_over_a_restore(
    tmp_path: Path, unique_name: Name, spark: Any, old: int, new: int
) -> None:
    source = TestingSource(
        partitions=[[*part(0, 150, k), TestingSource.PAUSE(), *part(150, 300, k)] for k in range(2)],
        batch_size=11,
        directory=tmp_path / "source",
    )
    sink, name = TestingSink(tmp_path / "sink"), unique_name("job")
    with running(job(name, tmp_path, source, sink, old), spark) as handle:
        eventually(lambda: taken(handle) == 300)
        handle.checkpoint(PATIENCE)
    source.release()
    job(name, tmp_path, source, sink, new).run(spark=spark, timeout=PATIENCE)
    assert_exact(sink, [*part(0, 300, 0), *part(0, 300, 1)])


def test_every_record_counts_in_its_minute_over_a_failure(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    source = TestingSource(
        partitions=[[*part(0, 200, k), *[TestingSource.ABORT()] * (k == 0), *part(200, 300, k)] for k in range(2)],
        batch_size=5,
        directory=tmp_path / "source",
    )
    sink = TestingSink(tmp_path / "sink")
    p = job(unique_name("job"), tmp_path, source, sink, 2, interval=0.1)
    p.run(spark=spark, timeout=PATIENCE)
    assert_exact(sink, [*part(0, 300, 0), *part(0, 300, 1)])
