"""The demo's job: delay per carrier, running."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from checkpoint.config import CheckpointConfig
from checkpoint.state import ReducingState, ValueState
from pipeline.job import Pipeline
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.runtime.driver.restart import RestartStrategy
from sinks import KafkaSink
from sources import KafkaSource

OPERATOR = "delays"
_KEY_GROUPS = 159
"""Spreads the sixteen carriers evenly over two, three or four subtasks; the default of 128 happens to give one of two
subtasks two thirds of the flights."""


@dataclass(frozen=True)
class SlowPhase:
    """The flights that the operator dwells on, so that backpressure can be seen, and checkpoints that stay short."""

    first: int
    """Id of the first slow flight."""
    last: int
    """Id of the first flight behind them."""
    seconds: float
    """Time for each."""

    @staticmethod
    def of(records: int, parallelism: int, seconds: float) -> SlowPhase:
        """A quarter of the records, at most 80,000, behind the first tenth; they take about `seconds`."""
        length = min(records // 4, 80_000)
        first = records // 10
        return SlowPhase(first, first + length, seconds * parallelism / length if length else 0.0)


class DelayPerCarrier(KeyedOperator):
    """For every flight its carrier's figures so far. Minutes; negative = early."""

    flights = ValueState(default=0)
    without_delay = ValueState(default=0)
    minutes = ReducingState(operator.add, default=0)
    worst = ReducingState(max)

    def __init__(self, slow: SlowPhase) -> None:
        self.slow = slow

    def process(self, flight: dict[str, Any], ctx: OperatorContext) -> Iterator[dict[str, Any]]:
        id, delay, slow = flight["id"], flight["arr_delay"], self.slow
        if slow.first <= id < slow.last:
            time.sleep(slow.seconds)
        self.flights.value += 1
        if delay is None:
            self.without_delay.value += 1
        else:
            self.minutes.add(delay)
            self.worst.add(delay)
        yield {
            "id": id,
            "carrier": ctx.key,
            "flights": self.flights.value,
            "without_delay": self.without_delay.value,
            "minutes": self.minutes.value,
            "worst": self.worst.value,
        }


@dataclass(frozen=True)
class DemoJob:
    """How the job is set up."""

    name: str
    servers: str
    flights_topic: str
    delays_topic: str
    folder: str
    """For checkpoints."""
    parallelism: int
    interval: float
    """Seconds between checkpoints."""
    rate_limit: float
    """Records/s that the source reads at most."""
    slow: SlowPhase

    def pipeline(self) -> Pipeline:
        p = Pipeline(
            self.name,
            parallelism=self.parallelism,
            max_parallelism=_KEY_GROUPS,
            checkpoints=CheckpointConfig(self.folder, interval=self.interval, timeout=60),
            restart=RestartStrategy.fixed_delay(attempts=3, delay=0.1),
        )
        source = KafkaSource(
            self.servers, topics=[self.flights_topic], end="latest", value_format="json", rate_limit=self.rate_limit
        )
        (
            p.source("flights", source)
            .key_by("carrier")
            .process(OPERATOR, DelayPerCarrier(self.slow))
            .sink("out", KafkaSink(self.servers, topic=self.delays_topic, key="carrier"))
        )
        return p
