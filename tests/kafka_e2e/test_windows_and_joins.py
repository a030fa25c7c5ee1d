"""Windows and joins, Kafka to Kafka, over disordered, late, repeated and future input: a worker is killed and the job
rescaled while it runs, and what a `read_committed` reader finds is what an oracle says over the whole input."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from join_pipelines import SOURCES as JOINED
from join_pipelines import Join, with_joins
from schedules import Ends
from time_oracles import (
    Run,
    check_fixed_windows,
    check_sessions,
    interval_join,
    late_of,
    named,
    same,
    sides,
)
from timed_input import Arrival, timed_input
from window_pipelines import GAP, SIZE, SLIDE, SOURCES, Kind, Shape, with_windows

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline import CheckpointConfig, Pipeline, RestartStrategy, WatermarkStrategy
from pipeline.testing import KafkaBroker, failpoints
from sinks import KafkaSink
from sources import KafkaSource

PARTITIONS = 3
DISORDER = 40
COUNT = 1200
RATE = 200
"""Records/s of all sources, so that the job still runs when it is killed and rescaled."""

Some = Callable[[], int | None]
Build = Callable[[Pipeline, Ends, Some], None]


def times() -> WatermarkStrategy:
    return WatermarkStrategy.bounded("at", lateness=DISORDER / 1000)


class Stage:
    """Topics for sources and sinks, and a job between them."""

    def __init__(self, kafka: KafkaBroker, spark: Any, name: str, folder: Path) -> None:
        self._kafka = kafka
        self._spark = spark
        self._name = name
        self._folder = folder

    def _topic(self, name: str) -> str:
        return f"{self._name}-{name.replace(' ', '-')}"

    def run(self, arrivals: Sequence[Arrival], sinks: Sequence[str], build: Build) -> Run:
        sources = sorted({one.source for one in arrivals})
        for source in sources:
            self._kafka.create_topic(self._topic(source), PARTITIONS)
            for partition in range(PARTITIONS):
                mine = [one.value for one in arrivals if (one.source, one.partition) == (source, partition)]
                self._kafka.produce(self._topic(source), mine, partition=partition)
        for sink in sinks:
            self._kafka.create_topic(self._topic(sink), 2)

        def source_of(name: str) -> KafkaSource:
            topics, rate = [self._topic(name)], RATE / len(sources)
            return KafkaSource(
                self._kafka.bootstrap_servers, topics=topics, value_format="json", end="latest", rate_limit=rate
            )

        def sink_of(name: str) -> KafkaSink:
            return KafkaSink(self._kafka.bootstrap_servers, topic=self._topic(name), key="key")

        p = Pipeline(
            self._name,
            2,
            checkpoints=CheckpointConfig(self._folder.as_uri(), interval=0.2, alignment="unaligned"),
            restart=RestartStrategy.fixed_delay(attempts=5, delay=0.05),
        )
        build(p, Ends(source_of, sink_of), lambda: None)  # so that a rescale is of all steps
        with failpoints.crash("subtask.after_acknowledge", subtask=0, nth=3) as killed:
            handle = p.start(spark=self._spark)
            try:
                eventually(lambda: handle.restarts == 1 and handle.running_since is not None)
                handle.rescale(3, timeout=PATIENCE)
                handle.wait(PATIENCE)
            finally:
                handle.cancel()
        assert killed.fired
        assert len(handle.rescales) == 1
        bounds = dict.fromkeys((one.id for one in arrivals), MAX_WATERMARK)
        return Run(arrivals, bounds, {sink: self._read(sink) for sink in sinks})

    def _read(self, sink: str) -> list[Any]:
        return [one.json() for one in self._kafka.consume(self._topic(sink))]


@pytest.fixture
def stage(kafka: KafkaBroker, spark: Any, unique_name: Callable[[str], str], tmp_path: Path) -> Stage:
    return Stage(kafka, spark, unique_name("job"), tmp_path)


def drawn(name: str) -> random.Random:
    """By the seed of the run."""
    return random.Random(f"{os.environ['WEIR_STRESS_SEED']} {name}")


@pytest.mark.sample(1 / 6)
@pytest.mark.parametrize("wild", [True, False])
@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
def test_windows_equal_the_oracle(stage: Stage, kind: Kind, wild: bool) -> None:
    rng = drawn(f"{kind} {wild}")
    shapes: tuple[Shape, ...] = ("pipeline", "union", "repeated")
    shape, lateness, early = rng.choice(shapes), rng.choice((0, 30, 400)), rng.choice((None, "update", 0.1))
    arrivals = timed_input(rng, SOURCES[shape], PARTITIONS, COUNT, DISORDER, wild)

    def build(p: Pipeline, ends: Ends, some: Some) -> None:
        with_windows(p, ends, some, times, kind, shape, lateness, early)

    run = stage.run(arrivals, ("out", "late"), build)
    if kind == "session":
        check_sessions(run, GAP, lateness, wild)
    else:
        check_fixed_windows(run, SIZE, SIZE if kind == "tumbling" else SLIDE, lateness, wild)


@pytest.mark.sample(1 / 3)
@pytest.mark.parametrize("wild", [True, False])
def test_joins_equal_the_oracle(stage: Stage, wild: bool) -> None:
    rng = drawn(f"join {wild}")
    bounds = sorted(rng.sample(range(-200, 200), 2))
    join = Join(*bounds, rng.choice(("inner", "left", "right", "full")))
    arrivals = timed_input(rng, JOINED["two"], PARTITIONS, COUNT, DISORDER, wild, keys=20)

    def build(p: Pipeline, ends: Ends, some: Some) -> None:
        with_joins(p, ends, some, some, times, "two", join, join)

    run = stage.run(arrivals, ("out", "late"), build)
    late = late_of(run, "late", wild)
    wanted = interval_join(sides(run, "first", late["left"]), sides(run, "second", late["right"]), *join)
    same((named(result["id"]) for result in run.outputs["out"]), (result.id for result in wanted))
