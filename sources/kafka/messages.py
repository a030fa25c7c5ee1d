"""What a reader takes from the Kafka client's messages besides their content."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Message, TopicPartition

from formats import letters
from formats.errors import BadRecord
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


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """
    Raises:
        BadRecord: the name of one is not UTF-8: then the client gives none of them.
    """
    try:
        return list(message.headers() or ())  # type: ignore[arg-type]  # a list of pairs when it comes from Kafka
    except UnicodeDecodeError as error:
        raise BadRecord(
            f"{message.topic()}[{message.partition()}] offset {message.offset()}: the name of a header is not UTF-8 "
            f"({error}), and Kafka's client gives none of the record's headers then"
        ) from error


def told_headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """Its headers; where they can't be read, one that says so."""
    try:
        return headers_of(message)
    except BadRecord as error:
        return letters.told_headers({letters.UNREADABLE: error})
