"""What `weir deadletters` asks of a cluster: letters, and the records that they are sent again as."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from formats.letters import ReadLetter
from pipeline.cli.kafka_client import ClusterClient, KafkaTrouble, hand_over, producer_settings
from pipeline.cli.kafka_records import Record
from pipeline.cli.replay_mark import ReplayMark, ReplayProgress
from sources.kafka.messages import told_headers_of

_TIMEOUT: Final = 30.0
_BATCH: Final = 500
"""Letters in one transaction."""


@dataclass(frozen=True)
class FoundMessage:
    """A message of the topic, and what it tells."""

    message: Message
    letter: ReadLetter | None
    """`None`: it is no dead letter."""
    replayed: bool

    @property
    def partition(self) -> int:
        return self.message.partition() or 0

    @property
    def offset(self) -> int:
        return self.message.offset() or 0

    def record(self, partition: int | None) -> Record:
        """What it is sent again as: the record that the letter is about. `partition`: `None` = by the key."""
        letter, message = self.letter, self.message
        assert letter is not None
        return Record(message.value(), message.key(), letter.headers, partition, letter.timestamp)


@dataclass(frozen=True)
class Filters:
    """Which letters are meant."""

    step: str | None = None
    error: str | None = None
    """A class, with or without its module."""

    def take(self, letter: ReadLetter | None) -> bool:
        if letter is None:
            return False
        if self.step is not None and letter.step != self.step:
            return False
        return self.error is None or self.error in (letter.error, letter.error.rpartition(".")[2])


def group_of(topic: str) -> str:
    """The consumer group whose offsets say what was replayed; a transactional id, too, so that two replays at once
    send nothing twice."""
    return f"weir-deadletters-{topic}"


class Letters:
    """Those of one topic.

    Raises (from every method):
        KafkaTrouble: the cluster doesn't do what is asked for.
        MarkTrouble: what was replayed can't be told, or kept.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self.topic = topic
        self._settings = dict(settings)
        self._cluster = ClusterClient(settings)
        self._group = group_of(topic)
        self._partitions: dict[str, list[int]] = {}
        """Of topics that letters go back to."""

    def marks(self) -> dict[int, ReplayMark]:
        """What was replayed, by partition."""
        partitions = self._cluster.partitions(self.topic)
        consumer = self._consumer()
        try:
            found = consumer.committed([TopicPartition(self.topic, one) for one in partitions], timeout=_TIMEOUT)
        except KafkaException as error:
            raise KafkaTrouble(f"the offsets of group {self._group!r} can't be read: {error.args[0].str()}") from error
        finally:
            consumer.close()
        return {one.partition: ReplayMark.read(max(0, one.offset), one.metadata) for one in found}

    def all(self) -> Iterator[FoundMessage]:
        """Every message that is in the topic now, partition by partition."""
        for partition, mark in self.marks().items():
            yield from self._of(partition, mark)

    def _of(self, partition: int, mark: ReplayMark) -> Iterator[FoundMessage]:
        for batch in self._cluster.consume(
            self.topic, [partition], "earliest", read_committed=True, to_end=True, count=None, timeout=None
        ):
            for message in batch:
                letter = ReadLetter.of(told_headers_of(message))
                yield FoundMessage(message, letter, mark.done(message.offset() or 0))

    def replay(
        self,
        filters: Filters,
        to: str | None,
        limit: int | None,
        dry_run: bool,
        on_left: Callable[[FoundMessage, str], None],
    ) -> Counter[str]:
        """Send letters again, each batch in one transaction with the mark that says so.

        Args:
            to: topic for all of them; `None`: each to the one that its record was in.
            limit: so many at most.
            on_left: told of each that is meant and can't be sent, and why.

        Returns:
            How many, by topic.
        """
        sent: Counter[str] = Counter()
        producer = None if dry_run else self._producer()
        # With the producer there is no other replay that still commits.
        for partition, mark in self.marks().items():
            progress, batch = ReplayProgress(mark), list[tuple[FoundMessage, str, int | None]]()
            for found in self._of(partition, mark):
                if found.offset < mark.offset:
                    continue
                meant = sent.total() + len(batch) != limit and self._is_meant(found, filters, to, on_left)
                if meant:
                    batch.append((found, *self._target(found, to)))
                progress.saw(found.offset, meant)
                if len(batch) >= _BATCH:
                    self._send(producer, partition, batch, progress.mark, sent)
                    batch = []
            self._send(producer, partition, batch, progress.mark, sent)
        return sent

    def _is_meant(
        self, found: FoundMessage, filters: Filters, to: str | None, on_left: Callable[[FoundMessage, str], None]
    ) -> bool:
        letter = found.letter
        if letter is None or found.replayed or not filters.take(letter):
            return False
        if (why := letter.lacks) is not None:
            on_left(found, why)
        elif to is None and letter.origin is None:
            on_left(found, "the topic of its record isn't known, as behind an exchange: --to names one")
        else:
            return True
        return False

    def _target(self, found: FoundMessage, to: str | None) -> tuple[str, int | None]:
        """Topic, and the partition that the record was in, if it is that topic and still has it."""
        assert found.letter is not None
        origin = found.letter.origin
        topic = to if to is not None else origin[0] if origin is not None else ""
        if topic not in self._partitions:
            self._partitions[topic] = self._cluster.partitions(topic)
        same = origin is not None and origin[0] == topic and origin[1] in self._partitions[topic]
        return topic, origin[1] if same and origin is not None else None

    def _send(
        self,
        producer: Producer | None,
        partition: int,
        batch: list[tuple[FoundMessage, str, int | None]],
        mark: ReplayMark,
        sent: Counter[str],
    ) -> None:
        if not batch:
            return
        offsets = [TopicPartition(self.topic, partition, mark.offset, mark.metadata)]
        if producer is not None:
            try:
                producer.begin_transaction()
                for found, topic, target in batch:
                    hand_over(producer, topic, found.record(target))
                consumer = self._consumer()
                try:
                    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _TIMEOUT)
                finally:
                    consumer.close()
                producer.commit_transaction(_TIMEOUT)
            except KafkaException as error:
                raise KafkaTrouble(
                    f"letters of {self.topic}[{partition}] could not be sent again: {error.args[0].str()}. Those of "
                    "this transaction will be by the next replay, if they were not"
                ) from error
        sent.update(topic for _, topic, _ in batch)

    def _consumer(self) -> Consumer:
        return Consumer({**self._settings, "log_level": 0, "group.id": self._group, "enable.auto.commit": False})

    def _producer(self) -> Producer:
        settings = {**producer_settings(self._settings), "log_level": 0, "transactional.id": self._group}
        try:
            producer = Producer(settings)
            producer.init_transactions(_TIMEOUT)
        except KafkaException as error:
            raise KafkaTrouble(f"transactions of {self._group!r} can't be begun: {error.args[0].str()}") from error
        return producer
