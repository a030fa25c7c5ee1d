"""Chaining changes nothing: neither what comes first after a restore, nor what arrives."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deadlines import PATIENCE, eventually
from small_job import NEVER, running

from pipeline import BufferConfig, CheckpointConfig, KeyedOperator, Operator, Pipeline, ValueState, WatermarkStrategy
from pipeline.testing import TestingSink, TestingSource

KEYS = 5
RECORDS = 400
BEHIND_ALL = 100_000
"""Event time of the records that make all timers due."""


class NumbersRecordsAndTimers(KeyedOperator):
    """Whatever a key emits is numbered; each record sets a timer."""

    count = ValueState(default=0)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def process(self, value: dict[str, Any], ctx: Any) -> Any:
        if value["at"] < BEHIND_ALL:
            ctx.timer(value["at"] + 1)
        self.count.value += 1
        yield {"key": ctx.key, "number": self.count.value}

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        time.sleep(self.seconds)
        self.count.value += 1
        yield {"key": ctx.key, "number": self.count.value}


class Slow(Operator):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def process(self, value: dict[str, Any], ctx: Any) -> Any:
        time.sleep(self.seconds)
        yield value


class Judge(KeyedOperator):
    """Says of each record whether it is late, and whether it follows the one before it."""

    last = ValueState(default=0)

    def process(self, value: dict[str, Any], ctx: Any) -> Any:
        late = ctx.watermark is not None and ctx.watermark < 2**62 and ctx.timestamp <= ctx.watermark
        follows = value["number"] == self.last.value + 1
        self.last.value = value["number"]
        yield {**value, "late": late, "follows": follows}


def test_records_in_flight_between_steps_that_are_chained_now_come_before_timers_and_watermarks(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any
) -> None:
    values = [{"key": i % KEYS, "at": 1000 + i} for i in range(RECORDS)]
    values += [{"key": key, "at": BEHIND_ALL} for key in range(KEYS)]
    name, sink = unique_name("job"), TestingSink(tmp_path / "sink")

    def job(chained: bool, slow: bool) -> Pipeline:
        p = Pipeline(
            name,
            checkpoints=CheckpointConfig((tmp_path / "checkpoints").as_uri(), **NEVER),
            buffers=BufferConfig(debloat=False, linger=0.0),
        )
        numbered = (
            p.source("in", TestingSource(values, directory=tmp_path / f"source-{chained}"))
            .assign_timestamps(WatermarkStrategy.bounded("at", lateness=0), id="times")
            .key_by("key")
            .process("numbers", NumbersRecordsAndTimers(0.003 if slow else 0.0))
        )
        slowed = (numbered if chained else numbered.key_by("key")).process("slow", Slow(0.01 if slow else 0.0))
        slowed.key_by("key").process("judge", Judge()).sink("out", sink)
        return p

    def taken_by_slow(handle: Any) -> int:
        return handle.metrics()["subtasks"].get("slow[0]", {}).get("recordsIn") or 0

    with running(job(chained=False, slow=True), spark) as handle:
        eventually(lambda: taken_by_slow(handle) >= 20)
        handle.checkpoint(PATIENCE)
        assert handle.checkpoints()[-1].in_flight_records > 0
    job(chained=True, slow=False).run(spark=spark, timeout=PATIENCE)
    assert len(sink.records) == 2 * RECORDS + KEYS
    assert not [record for record in sink.records if record["late"] or not record["follows"]]


class OneDict(Operator):
    """Yields one dict again and again, which it goes on changing."""

    def __init__(self) -> None:
        self.kept = {"count": 0}

    def process(self, value: int, ctx: Any) -> Any:
        self.kept["count"] += value
        yield self.kept


def test_what_an_operator_goes_on_changing_arrives_as_it_was_chained_or_not(spark: Any) -> None:
    chained, apart = TestingSink(), TestingSink()
    p = Pipeline("one dict", parallelism=1)
    step = p.source("in", TestingSource([1, 1, 1])).process("keeps", OneDict())
    step.sink("chained", chained)
    step.rebalance().sink("apart", apart)
    p.run(spark=spark, timeout=PATIENCE)
    assert chained.records == apart.records == [{"count": 1}, {"count": 2}, {"count": 3}]
