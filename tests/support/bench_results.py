"""Results of `weir bench backpressure` that nobody has measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline.bench.backpressure.results import Checkpoint, Cost, Run, Sample, summarise
from pipeline.bench.backpressure.variants import Variant
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointStats, SubtaskStats

SOURCE = SubtaskStats(
    name="records[0]",
    acknowledged_after=0.1,
    start_delay=0.0,
    alignment=0.0,
    sync=0.0,
    async_=0.0,
    size=0,
    written=0,
    span_records=10,
    span_bytes=1_100,
    in_flight_records=0,
    in_flight_bytes=0,
    unaligned=False,
)


def checkpoint(at: float, age: float, status: Any = "completed", **stats: Any) -> Checkpoint:
    row = CheckpointStats(1, status, "checkpoint", 0.0, subtasks=(SOURCE,), **stats)
    return Checkpoint(at, age, row)


def sample(
    at: float,
    fetched: int = 0,
    processed: int = 0,
    queued: int = 0,
    closed_ms: float = 0.0,
    window: int | None = None,
) -> Sample:
    return Sample(at, fetched, processed, queued, closed_ms, 0, window)


def run_of(checkpoints: list[Checkpoint], samples: list[Sample], variant: Variant | None = None, **changes: Any) -> Run:
    summary = summarise(checkpoints, samples, 2.0)
    cost = Cost(150 << 20, 280 << 20, 100 << 20, 800 << 20, 3, 2.4, 71.6)
    run = Run(variant or Variant("one"), 10.0, None, summary, cost, tuple(checkpoints), tuple(samples))
    return replace(run, **changes)
