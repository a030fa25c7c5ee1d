"""The Kafka source keeps the source contract, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable

from pipeline.testing import KafkaBroker, check_source_contract
from sources import KafkaSource


def test_it_keeps_the_source_contract(kafka: KafkaBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic("contract", partitions=3)
    records = [{"id": n} for n in range(24)]
    kafka.produce(topic, [json.dumps(record).encode() for record in records])
    check_source_contract(
        lambda: KafkaSource(kafka.bootstrap_servers, topics=[topic], start="earliest", end="latest"), records
    )
