"""Which offsets are committed to the group, and what is told of those that could not be; without a broker."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

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


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("code", "refused", "credentials"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, True, False),
        (KafkaError.SASL_AUTHENTICATION_FAILED, True, True),
        (KafkaError._TRANSPORT, False, False),
    ],
)
def test_a_refusal_is_told_from_one_of_credentials(code: int, refused: bool, credentials: bool, whole: bool) -> None:
    class Refusing:
        def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            if whole:
                raise KafkaException(KafkaError(code))
            return [SimpleNamespace(topic="t", partition=0, error=KafkaError(code))]  # type: ignore[list-item]

    consumer: Any = Refusing()
    with pytest.raises(KafkaUnavailable) as caught:
        committed_offsets(consumer, OPTIONS, [("t", 0)], 1.0)
    assert (caught.value.refused, caught.value.credentials) == (refused, credentials)


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


class Commits:
    """A consumer that notes what it is to commit, without waiting."""

    def __init__(self) -> None:
        self.offsets: list[dict[tuple[str, int], int]] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        self.offsets.append({(one.topic, one.partition): one.offset for one in offsets})


def test_completed_checkpoints_are_committed_in_their_order_and_each_once() -> None:
    group, consumer = GroupOffsets("in"), Commits()
    taking: Any = consumer
    for checkpoint_id in (1, 2, 3, 4, 5):
        group.remember(checkpoint_id, {("t", 0): checkpoint_id, ("t", 1): 0} if checkpoint_id != 5 else {})
    group.forget(3)
    for completed in (2, 1, 2, 3, 4, 5, 6):
        group.commit(completed, taking)
    assert consumer.offsets == [{("t", 0): 2, ("t", 1): 0}, {("t", 0): 4, ("t", 1): 0}]


def test_a_commit_that_is_refused_is_told_again_after_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Commits):
        def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE))

    now = iter([100.0, 109.5, 110.0])
    monkeypatch.setattr("sources.kafka.group.time.monotonic", lambda: next(now))
    group = GroupOffsets("in")
    refusing: Any = Refusing()
    for checkpoint_id in range(3):
        group.remember(checkpoint_id, {("t", 0): 1})
        group.commit(checkpoint_id, refusing)
    assert failures(caplog) == 2


class Committed:
    """A consumer that tells what the group has committed."""

    def __init__(self, *answers: Any) -> None:
        self._answers = answers

    def committed(self, partitions: list[TopicPartition], timeout: float) -> Any:
        return self._answers


class Answer:
    topic = "t"

    def __init__(self, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self.partition, self.offset, self.error = partition, offset, error


def test_a_partition_without_a_committed_offset_has_none() -> None:
    consumer: Any = Committed(Answer(0, 0), Answer(1, -1001), Answer(2, 5))
    assert committed_offsets(consumer, OPTIONS, [("t", 0)], 1.0) == {("t", 0): 0, ("t", 1): None, ("t", 2): 5}


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, True),
        (KafkaError._TRANSPORT, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
    ],
)
def test_an_offset_that_is_not_told_is_named_and_whether_it_was_refused(code: int, refused: bool) -> None:
    consumer: Any = Committed(Answer(0, 5), Answer(1, -1001, KafkaError(code)))
    with pytest.raises(KafkaUnavailable, match=r"committed offset of t\[1\] for the group g: ") as caught:
        committed_offsets(consumer, OPTIONS, [("t", 0)], 1.0)
    assert caught.value.refused is refused
