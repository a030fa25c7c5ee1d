"""A `read_committed` reader that reads on while a job writes."""

from __future__ import annotations

import time
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pipeline.testing import KafkaBroker
from pipeline.testing.kafka import KafkaRecord


class CommittedReader:
    """Reads the committed records of one topic, from its beginning; a context manager."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self.records: list[KafkaRecord] = []
        """What it has got so far, in the order it came."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "weir-testing",  # required, but nothing is ever committed
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in broker.end_offsets(topic)])

    def read(self, count: int, timeout: float) -> None:
        """Read on until there are so many records in all, or for so many seconds."""
        deadline = time.monotonic() + timeout
        while len(self.records) < count and time.monotonic() < deadline:
            for message in self._consumer.consume(10_000, 0.02):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is not None:
                    raise KafkaException(error)
                assert partition is not None
                assert offset is not None
                self.records.append(KafkaRecord(message.key(), message.value(), [], None, partition, offset))

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
