"""What is told of offsets that could not be committed to the group; without a broker."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from sources import KafkaSource
from sources.kafka.errors import KafkaUnavailable
from sources.kafka.group import GroupOffsets, committed_offsets

OPTIONS = KafkaSource("127.0.0.1:1", topics=["t"], group_id="g").options


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    made = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    yield made
    made.close()


def test_nothing_is_asked_for_no_partitions_and_a_group_out_of_reach_is_named(consumer: Consumer) -> None:
    assert committed_offsets(consumer, OPTIONS, [], 0.0) == {}
    with pytest.raises(KafkaUnavailable, match=r"committed offsets of the group g at 127\.0\.0\.1:1: ") as caught:
        committed_offsets(consumer, OPTIONS, [("t", 0)], 0.01)
    assert not caught.value.refused


def failures(caplog: pytest.LogCaptureFixture) -> int:
    return sum("could not be committed" in record.getMessage() for record in caplog.records)


def test_a_commit_that_failed_is_told_but_not_each_time(caplog: pytest.LogCaptureFixture) -> None:
    group = GroupOffsets("in")
    with caplog.at_level(logging.WARNING):
        group.on_commit(None, [TopicPartition("t", 0, 5)])
        assert failures(caplog) == 0
        for _ in range(3):
            group.on_commit(KafkaError(KafkaError._TRANSPORT), [])
    assert failures(caplog) == 1
    assert caplog.records[-1].getMessage().startswith("source in: ")
