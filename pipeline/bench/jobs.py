"""The jobs that are measured, Kafka to Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import orjson

from checkpoint.config import CheckpointConfig
from checkpoint.state import ValueState
from pipeline.aggregates import Count
from pipeline.job import Pipeline
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.streams import Stream
from pipeline.watermarks import WatermarkStrategy
from pipeline.windows import Tumbling
from sinks import KafkaSink
from sinks.kafka.clients import Delivery
from sources import KafkaSource

Alignment: TypeAlias = Literal["aligned", "unaligned"]
JobKind: TypeAlias = Literal["sum", "map", "async", "window"]
TITLES: dict[JobKind, str] = {
    "sum": "keyed running sum",
    "map": "stateless map",
    "async": "a service asked for each record",
    "window": "count by key and minute",
}


class RunningSum(KeyedOperator):
    """One output for each input."""

    total = ValueState(default=0.0)
    count = ValueState(default=0)

    def process(self, record: dict[str, Any], ctx: OperatorContext) -> Iterator[dict[str, Any]]:
        total = self.total.value = self.total.value + record["amount"]
        count = self.count.value = self.count.value + 1
        yield {"user": record["user"], "ts": record["ts"], "total": total, "count": count}


def doubled(record: dict[str, Any]) -> dict[str, Any]:
    return {"user": record["user"], "ts": record["ts"], "amount": record["amount"] * 2}


async def asked(seconds: float, record: dict[str, Any]) -> dict[str, Any]:
    """Nobody is asked in truth, so that it takes no CPU of the job's."""
    await asyncio.sleep(seconds)
    return doubled(record)


def as_user(result: dict[str, Any]) -> dict[str, Any]:
    return {"user": result["key"], "start": result["start"], "n": result["n"]}


@dataclass(frozen=True)
class Job:
    """A job that reads one topic and writes another."""

    kind: JobKind
    parallelism: int
    interval: float
    """Seconds between checkpoints."""
    delivery: Delivery
    alignment: Alignment = "unaligned"
    ends: bool = True
    """With what is in its topic at the start; else it goes on."""
    service: float = 0.01
    """Seconds that the service of the job "async" takes, …"""
    capacity: int = 100
    """… and how many records of a subtask are with it at once."""

    def pipeline(self, name: str, servers: str, source: str, target: str, folder: str) -> Pipeline:
        checkpoints = CheckpointConfig(folder, interval=self.interval, alignment=self.alignment)
        p = Pipeline(name, parallelism=self.parallelism, checkpoints=checkpoints)
        end: Literal["latest"] | None = "latest" if self.ends else None
        records = p.source("records", KafkaSource(servers, topics=[source], end=end, value_format="json"))
        self._steps(records).sink("out", KafkaSink(servers, topic=target, key="user", delivery=self.delivery))
        return p

    def _steps(self, records: Stream) -> Stream:
        match self.kind:
            case "sum":
                return records.key_by("user").process("sums", RunningSum())
            case "map":
                return records.map(doubled, id="doubled")
            case "async":
                return records.map_async(partial(asked, self.service), "asked", capacity=self.capacity)
            case "window":
                times = WatermarkStrategy.bounded("ts", lateness=0)
                windows = records.assign_timestamps(times, id="times").key_by("user").window(Tumbling(60))
                return windows.aggregate("counts", n=Count()).map(as_user, id="named")

    def inputs_of(self, output: bytes | None) -> int:
        """How many records of the input one of the output stands for, by its value."""
        if self.kind != "window":
            return 1
        return int(orjson.loads(output or b"")["n"])
