"""The demo's job: delay per carrier, running; and delay by airport and hour, beside the weather."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from checkpoint.config import CheckpointConfig
from checkpoint.state import ReducingState, ValueState
from pipeline.aggregates import Count, Sum
from pipeline.job import Pipeline
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.runtime.driver.restart import RestartStrategy
from pipeline.streams import Stream
from pipeline.watermarks import WatermarkStrategy
from pipeline.windows import Tumbling
from sinks import KafkaSink
from sources import KafkaSource

SOURCE = "flights"
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


HOUR: Final = 3600
_LATENESS: Final = timedelta(days=2)
"""Flights are in the order in which they left, and one that leaves late is far behind those of its hour."""


def by_weather(flights: Stream, weather: Stream) -> Stream:
    """How late flights left each airport in each hour, beside the newest weather of then."""
    times = WatermarkStrategy.bounded("at", lateness=_LATENESS)
    hours = (
        flights.assign_timestamps(times, id="departures")
        .key_by("origin")
        .window(Tumbling(HOUR))
        .aggregate("hours", parallelism=1, flights=Count(), minutes=Sum("dep_delay", missing="skip"))
    )
    observed = weather.assign_timestamps(WatermarkStrategy.bounded("at", lateness=0), id="observed")
    return hours.key_by("key").join_as_of(
        observed.key_by("origin"),
        how="left",
        select=beside,
        max_age=timedelta(hours=3),
        id="weather-then",
        parallelism=1,
    )


def beside(hour: dict[str, Any], weather: dict[str, Any] | None) -> dict[str, Any]:
    """A result: an hour with its weather; `None` = none was observed in the three hours before its end."""
    return {
        "origin": hour["key"],
        "hour": hour["start"],
        "flights": hour["flights"],
        "minutes": hour["minutes"],
        "wind": None if weather is None else weather["wind_speed"],
        "visib": None if weather is None else weather["visib"],
    }


@dataclass(frozen=True)
class DemoJob:
    """How the job is set up."""

    name: str
    servers: str
    flights_topic: str
    delays_topic: str
    weather_topic: str
    hours_topic: str
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
        flights = p.source(SOURCE, source)
        (
            flights.key_by("carrier")
            .process(OPERATOR, DelayPerCarrier(self.slow))
            .sink("out", KafkaSink(self.servers, topic=self.delays_topic, key="carrier"))
        )
        observations = KafkaSource(self.servers, topics=[self.weather_topic], end="latest", value_format="json")
        by_weather(flights, p.source("weather", observations, parallelism=1)).sink(
            "hours-out", KafkaSink(self.servers, topic=self.hours_topic, key="origin")
        )
        return p
