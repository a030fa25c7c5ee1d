"""Windows and joins in whole jobs: a worker is killed, and the job rescaled with records in flight."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from join_pipelines import Join, together, with_joins
from rescaling import newest
from schedules import Ends
from small_job import running, storage_of
from time_oracles import Run, check_fixed_windows, interval_join, late_of, named, same, sides
from timed_input import Arrival, timed_input
from window_pipelines import SIZE, SLIDE, Ids, with_windows

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline import BufferConfig, CheckpointConfig, Pipeline, RestartStrategy, WatermarkStrategy
from pipeline.testing import TestingSink, TestingSource, failpoints

Name = Callable[[str], str]
PARTITIONS = 3
DISORDER = 40


class SlowIds(Ids):
    def add(self, acc: Any, value: Any) -> Any:
        time.sleep(0.003)
        return super().add(acc, value)


def slowly_together(left: Any, right: Any) -> Any:
    time.sleep(0.003)
    return together(left, right)


def times() -> WatermarkStrategy:
    return WatermarkStrategy.bounded("at", lateness=DISORDER / 1000)


def in_flight(p: Pipeline) -> int:
    """Records in flight in the newest checkpoint; none if there is no checkpoint yet."""
    return newest(p).in_flight_records if storage_of(p).list_checkpoints() else 0


class Stage:
    """A job over some input that is killed, rescaled and run to its end."""

    def __init__(self, folder: Path, name: str, spark: Any, arrivals: Sequence[Arrival], sinks: Sequence[str]) -> None:
        self._folder = folder
        self._name = name
        self._spark = spark
        self._arrivals = arrivals
        self._sinks = {sink: TestingSink(folder / f"sink {sink}") for sink in sinks}

    def _source(self, name: str) -> TestingSource:
        parts: list[list[Any]] = [[] for _ in range(PARTITIONS)]
        for one in self._arrivals:
            if one.source == name:
                parts[one.partition].append(one.value)
        return TestingSource(partitions=parts)

    def job(self, parallelism: int, build: Callable[[Pipeline, Ends, Callable[[], int]], None]) -> Pipeline:
        config = CheckpointConfig((self._folder / "checkpoints").as_uri(), interval=0.2, alignment="unaligned")
        restart = RestartStrategy.fixed_delay(attempts=5, delay=0.05)
        buffers = BufferConfig(max_bytes=8 * 1024, frame_bytes=2048, debloat=False)
        p = Pipeline(self._name, parallelism, checkpoints=config, restart=restart, buffers=buffers)
        build(p, Ends(self._source, lambda name: self._sinks[name]), lambda: parallelism)
        return p

    def run(self, build: Callable[[Pipeline, Ends, Callable[[], int]], None]) -> Run:
        first = self.job(2, build)
        with (
            failpoints.crash("subtask.after_acknowledge", subtask=0, nth=3) as killed,
            running(first, self._spark) as handle,
        ):
            eventually(lambda: handle.restarts == 1 and in_flight(first) > 0)
        assert killed.fired
        self.job(3, build).run(spark=self._spark, timeout=PATIENCE)
        bounds = dict.fromkeys((one.id for one in self._arrivals), MAX_WATERMARK)
        return Run(self._arrivals, bounds, {name: sink.records for name, sink in self._sinks.items()})


@pytest.fixture
def stage(tmp_path: Path, unique_name: Name, spark: Any) -> Callable[..., Stage]:
    def make(arrivals: Sequence[Arrival], *sinks: str) -> Stage:
        return Stage(tmp_path, unique_name("job"), spark, arrivals, sinks)

    return make


def test_windows_are_exact_after_a_kill_and_rescaling(stage: Callable[..., Stage]) -> None:
    arrivals = timed_input(random.Random(1), ["first"], PARTITIONS, 1000, DISORDER, wild=True)

    def build(p: Pipeline, ends: Ends, some: Callable[[], int]) -> None:
        with_windows(p, ends, some, times, "sliding", "pipeline", 100, ids=SlowIds())

    run = stage(arrivals, "out", "late").run(build)
    check_fixed_windows(run, SIZE, SLIDE, 100, any_late=True)  # how many are late goes by how fast the job is


def test_joins_of_three_sources_are_exact_after_a_kill_and_rescaling(stage: Callable[..., Stage]) -> None:
    names = ["first", "second", "third"]
    arrivals = timed_input(random.Random(2), names, PARTITIONS, 800, DISORDER, wild=False)
    one, other = Join(-60, 60, "left"), Join(0, 200, "full")

    def build(p: Pipeline, ends: Ends, some: Callable[[], int]) -> None:
        with_joins(p, ends, some, some, times, "three", one, other, slowly_together)

    run = stage(arrivals, "out", "late", "late three").run(build)
    assert (
        late_of(run, "late", any_late=False) == late_of(run, "late three", any_late=False) == {"left": [], "right": []}
    )
    joined = interval_join(sides(run, "first", ()), sides(run, "second", ()), *one)
    wanted = interval_join(joined, sides(run, "third", ()), *other)
    same((named(result["id"]) for result in run.outputs["out"]), (result.id for result in wanted))
