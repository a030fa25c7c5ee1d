"""What a reader takes from the Kafka client's messages besides their content."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Message, TopicPartition

from sources.kafka.options import PartitionKey


def key_of(message: Message) -> PartitionKey:
    """The partition that a message, or an event of the client, comes from."""
    topic, partition = message.topic(), message.partition()
    return (topic or "", -1 if partition is None else partition)


def topic_partitions(keys: Iterable[PartitionKey]) -> list[TopicPartition]:
    """Partitions as the client takes them."""
    return [TopicPartition(topic, partition) for topic, partition in keys]


def first_offsets(messages: list[Message]) -> dict[PartitionKey, int]:
    """The first offset of every partition among `messages`."""
    backwards = messages[::-1]
    return {
        (topic or "", partition or 0): offset or 0
        for topic, partition, offset in zip(
            map(Message.topic, backwards),
            map(Message.partition, backwards),
            map(Message.offset, backwards),
            strict=True,
        )
    }
