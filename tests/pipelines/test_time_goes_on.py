"""Whole jobs in which event time stood still, or ran away: inputs without timestamps, silence, the future."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from deadlines import eventually
from small_job import NEVER, running

from pipeline import (
    BroadcastState,
    CheckpointConfig,
    KeyedOperator,
    Pipeline,
    RestartStrategy,
    ValueState,
    WatermarkStrategy,
)
from pipeline.streams import Stream
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]


class Sessions(KeyedOperator):
    """Counts a key's records until there was none for a second."""

    rules = BroadcastState()
    count = ValueState(default=0)
    until = ValueState(default=0)

    def process(self, value: dict[str, Any], ctx: Any) -> None:
        if self.until.value:
            ctx.delete_timer(self.until.value)
        self.count.value += 1
        self.until.value = max(self.until.value, value["at"] + 1000)
        ctx.timer(self.until.value)

    def process_connected(self, rule: int, ctx: Any) -> None:
        self.rules["latest"] = rule

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield {"key": ctx.key, "until": timestamp, "count": self.count.value}
        self.count.clear()
        self.until.clear()


def held_open(values: Iterable[Any], partitions: int = 1) -> TestingSource:
    """As an endless source: behind its values it waits for ever."""
    parts: list[list[Any]] = [[] for _ in range(partitions)]
    for i, value in enumerate(values):
        parts[i % partitions].append(value)
    return TestingSource(partitions=[[*part, TestingSource.PAUSE()] for part in parts])


def clicks(n: int, key: str = "ann") -> list[Any]:
    return [{"key": key, "at": i * 100} for i in range(n)]


def job(
    name: str,
    folder: Path,
    build: Callable[[Pipeline], Stream],
    sink: TestingSink,
    parallelism: int = 2,
    **options: Any,
) -> Pipeline:
    config = CheckpointConfig(folder.as_uri(), **{"interval": 0.3, **options}, timeout=60)
    p = Pipeline(name, parallelism, checkpoints=config, restart=RestartStrategy.fixed_delay(attempts=20, delay=0.1))
    rules = p.source("rules", held_open([1, 2]), parallelism=1).broadcast()
    build(p).key_by("key").connect(rules).process("sessions", Sessions()).sink("out", sink)
    return p


def test_rules_without_timestamps_do_not_stop_event_time(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    clicked = [*clicks(20), {"key": "bob", "at": 100_000}]

    def build(p: Pipeline) -> Stream:
        return p.source("clicks", held_open(clicked), parallelism=1).assign_timestamps(
            WatermarkStrategy.bounded("at", 0), id="times"
        )

    sink = TestingSink(tmp_path / "sink")
    with running(job(unique_name("job"), tmp_path, build, sink), spark) as handle:
        eventually(lambda: len(sink.records) == 1)
        assert sink.records == [{"key": "ann", "until": 2900, "count": 20}]
        eventually(lambda: _watermark(handle, "sessions") == 99_999)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_last_session_ends_when_all_splits_are_quiet(
    tmp_path: Path, unique_name: Name, spark: Any, parallelism: int
) -> None:
    """Two splits; with three subtasks one has none."""

    def build(p: Pipeline) -> Stream:
        source = held_open([*clicks(20), {"key": "bob", "at": 5000}], partitions=2)
        return p.source("clicks", source, parallelism=parallelism).assign_timestamps(
            WatermarkStrategy.bounded("at", 0, quiet_after=0.5)
        )

    sink = TestingSink(tmp_path / "sink")
    with running(job(unique_name("job"), tmp_path, build, sink, parallelism=1), spark):
        eventually(lambda: len(sink.records) == 2)
    assert sorted((one["key"], one["count"]) for one in sink.records) == [("ann", 20), ("bob", 1)]


@pytest.mark.matrix
def test_a_record_from_the_future_makes_no_other_one_late(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    now = int(time.time() * 1000) - 3_600_000
    good = [{"key": "ann", "at": now + i} for i in range(1000)]
    values = [*good[:500], {"key": "eve", "at": now + 25 * 3_600_000}, *good[500:]]

    def build(p: Pipeline) -> Stream:
        source = TestingSource([*values, TestingSource.PAUSE()], batch_size=50)
        return p.source("clicks", source, parallelism=1).assign_timestamps(
            WatermarkStrategy.bounded("at", 0, max_ahead=600)
        )

    sink = TestingSink(tmp_path / "sink")
    with running(job(unique_name("job"), tmp_path, build, sink, **NEVER), spark) as handle:
        eventually(lambda: handle.metrics()["totals"]["recordsAhead"] == 1)
        eventually(lambda: _watermark(handle, "sessions") == now + 999 - 1)
        assert handle.metrics()["totals"]["recordsLate"] == 0


def _watermark(handle: Any, vertex: str) -> Any:
    of = [values.get("watermark") for name, values in handle.metrics()["subtasks"].items() if name.startswith(vertex)]
    return min(of) if of and None not in of else None


@pytest.mark.matrix
def test_restarts_that_come_faster_than_idle_after_do_not_stop_event_time(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    """One split has nothing; the other one crashes the job again and again, until the first session has ended."""
    most = 12
    crashing: list[Any] = []
    for n in range(most):
        crashing += [{"key": f"k{n}", "at": n * 10_000}, TestingSource.PAUSE(), TestingSource.ABORT()]
    source = TestingSource(partitions=[crashing, [TestingSource.PAUSE()] * (most + 1)], directory=tmp_path / "source")

    def build(p: Pipeline) -> Stream:
        return p.source("clicks", source, parallelism=1).assign_timestamps(
            WatermarkStrategy.bounded("at", 0, idle_after=8)
        )

    sink = TestingSink(tmp_path / "sink")
    with running(job(unique_name("job"), tmp_path, build, sink, parallelism=1), spark) as handle:
        for restarts in range(most):
            enough = _completed(handle) + 4
            eventually(lambda r=restarts, n=enough: handle.restarts == r and _completed(handle) > n)
            if sink.records:
                break
            source.release()
        assert sink.records[0] == {"key": "k0", "until": 1000, "count": 1}


def _completed(handle: Any) -> int:
    return sum(row.status == "completed" for row in handle.checkpoints())
