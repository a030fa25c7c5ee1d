"""What a source asks the brokers before it reads."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from pipeline.testing import KafkaBroker
from sources import KafkaSource
from sources.kafka.cluster import Cluster


def test_offsets_by_time_are_those_of_the_first_record_that_is_not_older(
    kafka: KafkaBroker, make_topic: Callable[..., str]
) -> None:
    partition = (make_topic(), 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for timestamp in (1_000, 2_000, 3_000):
        producer.produce(partition[0], b"{}", partition=0, timestamp=timestamp)
    producer.flush()
    with Cluster(KafkaSource(kafka.bootstrap_servers, topics=[partition[0]]).options) as cluster:
        found = [cluster.at([partition], timestamp)[partition] for timestamp in (0, 1_001, 3_000, 3_001)]
    assert found == [0, 1, 2, 3]
