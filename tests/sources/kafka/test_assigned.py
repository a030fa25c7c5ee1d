"""The partitions that a consumer is assigned, by what it says of them: where they stand, end, and are looked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sources import KafkaSource, SourceContext
from sources.kafka import assigned
from sources.kafka.assigned import AssignedPartitions
from sources.kafka.errors import DataLoss
from sources.kafka.options import PartitionKey
from sources.kafka.splits import Split

A, B = ("t", 0), ("t", 1)
NOT_KNOWN = -1001
"""What the client says of a position before the first message."""


class Message:
    def __init__(self, key: PartitionKey, offset: int, error: KafkaError | None = None) -> None:
        self._key, self._offset, self._error = key, offset, error

    def topic(self) -> str:
        return self._key[0]

    def partition(self) -> int:
        return self._key[1]

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


class Consumer:
    """What a client keeps of its assignment."""

    def __init__(self) -> None:
        self.assigned: dict[PartitionKey, int] = {}
        """By partition, where it was told to begin."""
        self.at: dict[PartitionKey, int] = {}
        """Where it has got to."""
        self.paused: set[PartitionKey] = set()
        self.log: tuple[int, int] | int = (0, 1_000)
        """Begin and end of each partition; or the error that a look at them raises."""

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.assigned.update({(one.topic, one.partition): one.offset for one in partitions})

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            del self.assigned[one.topic, one.partition]
            self.at.pop((one.topic, one.partition), None)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused |= {(one.topic, one.partition) for one in partitions}

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused -= {(one.topic, one.partition) for one in partitions}

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(one.topic, one.partition, self.at.get((one.topic, one.partition), NOT_KNOWN))
            for one in partitions
        ]

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        if isinstance(self.log, int):
            raise KafkaException(KafkaError(self.log, "no answer"))
        return self.log


class NoMetrics:
    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: float | str | None) -> None: ...


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def partitions(consumer: Any, *splits: Split, **options: Any) -> AssignedPartitions:
    source = KafkaSource("b:1", topics=["t"], **options).options
    made = AssignedPartitions(consumer, source, SourceContext("p", "in", 0, 1, NoMetrics()), splits)
    made.assign([split for split in splits if not split.ended])
    return made


def split(position: int, end: int | None = None, ended: bool = False, partition: int = 0) -> Split:
    return Split("t", partition, "id", position, end, ended)


def messages(key: PartitionKey, *offsets: int) -> list[Any]:
    return [Message(key, offset) for offset in offsets]


def end_of(key: PartitionKey, offset: int, code: int = KafkaError._PARTITION_EOF) -> Any:
    return Message(key, offset, KafkaError(code))


def test_splits_are_read_from_where_they_stand(consumer: Consumer) -> None:
    one = partitions(consumer, split(7), split(9, 9, ended=True, partition=1))
    assert consumer.assigned == {A: 7}
    assert one.reading.keys() == {A}
    assert one.splits.keys() == {A, B}
    one.assign([])
    assert consumer.assigned == {A: 7}


def test_before_the_first_message_a_position_is_where_the_split_began(consumer: Consumer) -> None:
    one = partitions(consumer, split(7), split(3, partition=1))
    assert one.positions() == {A: 7, B: 3}
    consumer.at = {A: 0, B: 12}
    assert one.positions() == {A: 0, B: 12}


def test_what_is_assigned_while_all_is_paused_is_paused_too(consumer: Consumer) -> None:
    one = partitions(consumer, split(7))
    one.pause()
    assert (one.paused, consumer.paused) == (True, {A})
    one.assign([split(0, partition=1)])
    assert consumer.paused == {A, B}
    one.resume()
    assert (one.paused, consumer.paused) == (False, set())


def test_records_behind_the_end_are_dropped_and_the_split_has_ended(consumer: Consumer) -> None:
    one = partitions(consumer, split(0, 12), split(0, 100, partition=1))
    consumer.at = {A: 14, B: 5}
    polled = [*messages(A, 10, 11, 12, 13), *messages(B, 4)]
    assert one.cut_at_ends(polled, []) == [*polled[:2], polled[4]]
    assert one.reading.keys() == consumer.assigned.keys() == {B}
    assert (one.splits[A].ended, one.splits[A].position) == (True, 12)
    assert not one.splits[B].ended


@pytest.mark.parametrize(("position", "ended"), [(11, False), (12, True)])
def test_a_split_has_ended_once_its_position_is_its_end(consumer: Consumer, position: int, ended: bool) -> None:
    one = partitions(consumer, split(0, 12), split(0, partition=1))
    consumer.at = {A: position, B: 50}
    polled = messages(A, position - 1)
    assert one.cut_at_ends(polled, []) == polled
    assert one.splits[A].ended is ended
    assert one.reading.keys() == ({B} if ended else {A, B})


@pytest.mark.parametrize(
    ("code", "offset", "ended"),
    [(KafkaError._PARTITION_EOF, 12, True), (KafkaError._PARTITION_EOF, 11, False), (KafkaError._TRANSPORT, 12, False)],
)
def test_where_the_last_records_are_gone_the_end_of_the_log_tells(
    consumer: Consumer, code: int, offset: int, ended: bool
) -> None:
    one = partitions(consumer, split(0, 12))
    consumer.at = {A: 8}
    assert one.cut_at_ends([], [end_of(A, offset, code), end_of(B, 99)]) == []
    assert one.splits[A].ended is ended


def test_an_end_of_the_log_takes_no_position_back(consumer: Consumer) -> None:
    one = partitions(consumer, split(0, 12))
    consumer.at = {A: 12}
    one.cut_at_ends([], [end_of(A, 3)])
    assert one.splits[A].ended


def test_what_retention_has_passed_is_a_loss_unless_it_may_be(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    consumer.log = (20, 50)
    one = partitions(consumer, split(5))
    consumer.at = {A: 7}
    with pytest.raises(DataLoss, match="offsets 7 to 19"):
        one.find_position(one.splits[A])
    tolerant = partitions(consumer, split(5), on_data_loss="earliest")
    consumer.at = {A: 7}
    tolerant.find_position(tolerant.splits[A])
    assert consumer.assigned == {A: 20}
    assert tolerant.positions() == {A: 20}
    assert "source in: t[0]: the next offset to read is 7" in caplog.text


def test_a_position_that_is_in_the_log_after_all_is_read_again_from_there(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    one = partitions(consumer, split(5))
    consumer.at = {A: 7}
    one.find_position(one.splits[A])
    assert consumer.assigned == {A: 7}
    assert caplog.text == ""


def test_a_split_of_which_all_that_was_to_be_read_is_gone_has_ended(consumer: Consumer) -> None:
    consumer.log = (20, 50)
    one = partitions(consumer, split(5, 10), on_data_loss="earliest")
    one.find_position(one.splits[A])
    assert (one.splits[A].ended, one.reading, consumer.assigned) == (True, {}, {})


def test_while_no_broker_says_what_the_log_has_it_is_looked_for_again(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(assigned.time, "monotonic", lambda: now)
    consumer.log = KafkaError._TRANSPORT
    one = partitions(consumer, split(5), on_data_loss="earliest")
    one.find_position(one.splits[A])
    consumer.log = (20, 50)
    one.find_positions_again(100.5)
    assert consumer.assigned == {A: 5}  # a second later, not at once
    one.find_positions_again(101.0)
    assert consumer.assigned == {A: 20}
    consumer.log = (30, 50)
    one.find_positions_again(200.0)
    assert consumer.assigned == {A: 20}  # it was found


def test_a_split_that_has_ended_meanwhile_is_not_looked_for(consumer: Consumer) -> None:
    consumer.log = KafkaError._TRANSPORT
    one = partitions(consumer, split(5, 9))
    one.find_position(one.splits[A])
    one.finish(one.splits[A])
    consumer.log = (20, 50)
    one.find_positions_again(float("inf"))
    assert consumer.assigned == {}


def test_brokers_that_refuse_to_say_what_the_log_has_are_an_error(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    consumer.log = KafkaError.TOPIC_AUTHORIZATION_FAILED
    one = partitions(consumer, split(5))
    with pytest.raises(KafkaException):
        one.find_position(one.splits[A])
