"""Which partitions a KafkaSource knows to have records that it has not polled, so that they don't count as idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from deadlines import eventually

from pipeline.testing import KafkaBroker

MakeTopic = Callable[..., str]
OpenSubtask = Callable[..., Any]


def test_a_partition_waits_until_the_client_has_come_to_its_end(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, unique_name: Callable[[str], str]
) -> None:
    topic = make_topic(partitions=3)
    kafka.produce(topic, range(40), partition=lambda n: n % 2)
    one = subtask(topics=[topic], track_splits=True)

    def waiting() -> set[int]:
        return {number for _, number in one.reader.waiting_splits()}

    def read_on() -> set[int]:
        """Once more after the batch before is emitted; its partitions count as long as it isn't."""
        one.poll()
        return waiting()

    assert waiting() == {0, 1, 2}
    first = one.read(1, max_records=1)
    assert {0, 1} <= waiting()
    one.read(40 - len(first))
    eventually(lambda: not read_on())

    kafka.produce(topic, range(10), partition=1)
    one.read(3, max_records=1)
    assert waiting() == {1}
    one.read(7)
    eventually(lambda: not read_on())

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique_name("writer")})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"0", partition=0)
    producer.flush()
    eventually(lambda: read_on() == {0})
    producer.abort_transaction()
    eventually(lambda: not read_on())
