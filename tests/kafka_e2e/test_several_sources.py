"""Two Kafka sources in one job, of two clusters: nothing of one is taken for the other's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from deadlines import eventually

from pipeline import CheckpointConfig, Pipeline
from pipeline.testing import KafkaBroker
from sinks import KafkaSink
from sources import KafkaSource


@pytest.mark.slow
def test_offsets_groups_dead_letters_and_metrics_of_two_sources_stay_apart_also_when_rescaled(
    kafka: KafkaBroker, spark: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Both topics have the same name, and other lengths and offsets."""
    topic, dead, out = unique_name("in"), unique_name("dead"), unique_name("out")
    near_group, far_group = unique_name("near"), unique_name("far")
    with KafkaBroker.start(kind="native") as other:
        for broker in (kafka, other):
            broker.create_topic(topic, 2)
        other.create_topic(dead)
        kafka.create_topic(out)

        def run(parallelism: int, near_end: int, far_end: int) -> dict[str, Counter[str]]:
            """The counters of each source."""
            checkpoints = CheckpointConfig(tmp_path.as_uri(), interval=0.5)
            pipeline = Pipeline(job, parallelism=parallelism, checkpoints=checkpoints)
            near = KafkaSource(kafka.bootstrap_servers, [topic], group_id=near_group, end={topic: near_end})
            far = KafkaSource(
                other.bootstrap_servers, [topic], group_id=far_group, end={topic: far_end}, on_bad_record=dead
            )
            streams = [pipeline.source(id, source) for id, source in (("near", near), ("far", far))]
            streams[0].union(streams[1]).sink("out", KafkaSink(kafka.bootstrap_servers, topic=out))
            handle = pipeline.start(spark=spark)
            handle.wait(300)
            counters: dict[str, Counter[str]] = {"near": Counter(), "far": Counter()}
            for name, values in handle.metrics()["subtasks"].items():
                if (source := name.split("[")[0]) in counters:
                    counters[source].update({k: values.get(k, 0) for k in ("recordsIn", "recordsDeadLettered")})
            return counters

        job = unique_name("job")
        for partition in (0, 1):
            kafka.produce(topic, [{"near": partition}] * 10, partition=partition)
            other.produce(topic, [{"far": partition}] * 6 + [b"{broken"], partition=partition)
        counters = run(1, near_end=10, far_end=7)
        assert counters == {
            "near": {"recordsIn": 20, "recordsDeadLettered": 0},
            "far": {"recordsIn": 12, "recordsDeadLettered": 2},
        }
        _eventually_committed(kafka, near_group, topic, 10)
        _eventually_committed(other, far_group, topic, 7)

        for partition in (0, 1):
            kafka.produce(topic, [{"near": partition}] * 5, partition=partition)
            other.produce(topic, [{"far": partition}] * 2, partition=partition)
        counters = run(2, near_end=15, far_end=9)
        assert (counters["near"]["recordsIn"], counters["far"]["recordsIn"]) == (10, 4)
        _eventually_committed(kafka, near_group, topic, 15)
        _eventually_committed(other, far_group, topic, 9)
        assert len(other.consume(dead)) == 2
    read = [tuple(record.json().items()) for record in kafka.consume(out)]
    assert {value: read.count(value) for value in read} == {
        (("near", 0),): 15,
        (("near", 1),): 15,
        (("far", 0),): 8,
        (("far", 1),): 8,
    }


def _eventually_committed(broker: KafkaBroker, group: str, topic: str, offset: int) -> None:
    """The last commit may still be under way when a job has ended."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    partitions = [TopicPartition(topic, number) for number in (0, 1)]
    eventually(lambda: {p.offset for p in consumer.committed(partitions, timeout=10)} == {offset})
    consumer.close()
