"""The job that is measured: keyed running sum and count, Kafka to Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from checkpoint.config import CheckpointConfig
from checkpoint.state import ValueState
from pipeline.job import Pipeline
from pipeline.operators import KeyedOperator, OperatorContext
from sinks import KafkaSink
from sinks.kafka.clients import Delivery
from sources import KafkaSource

Alignment = Literal["aligned", "unaligned"]


class RunningSum(KeyedOperator):
    """One output for each input."""

    total = ValueState(default=0.0)
    count = ValueState(default=0)

    def process(self, record: dict[str, Any], ctx: OperatorContext) -> Iterator[dict[str, Any]]:
        total = self.total.value = self.total.value + record["amount"]
        count = self.count.value = self.count.value + 1
        yield {"user": record["user"], "ts": record["ts"], "total": total, "count": count}


def running_sum(
    name: str,
    servers: str,
    source: str,
    target: str,
    folder: str,
    parallelism: int,
    interval: float,
    delivery: Delivery,
    alignment: Alignment,
) -> Pipeline:
    checkpoints = CheckpointConfig(folder, interval=interval, alignment=alignment)
    p = Pipeline(name, parallelism=parallelism, checkpoints=checkpoints)
    (
        p.source("records", KafkaSource(servers, topics=[source], end="latest", value_format="json"))
        .key_by("user")
        .process("sums", RunningSum())
        .sink("out", KafkaSink(servers, topic=target, key="user", delivery=delivery))
    )
    return p
