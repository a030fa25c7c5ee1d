"""What `weir kafka create|topics|produce|consume` ask of a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # public, not marked so in stubs

from checkpoint.brokers import REFUSES, nobody_listens
from checkpoint.counted import counted
from pipeline.cli.kafka_records import Record
from sinks.kafka.clients import LARGEST_MESSAGE

_TIMEOUT: Final = 10.0
_LISTENS: Final = 1.0
"""Seconds within which a broker that is just coming up should listen."""
_FLUSH: Final = 60.0
_LOOK: Final = 0.2
_BATCH: Final = 500


class KafkaTrouble(RuntimeError):
    """The cluster doesn't do what is asked for; says why and what to do."""


class NoAnswer(KafkaTrouble):
    """There is no broker at the address, or it does not answer yet."""


@dataclass(frozen=True)
class TopicView:
    name: str
    partitions: int
    replicas: int
    records: int
    """From the beginning of the log to its end; what transactions mark and compaction has taken out counts, too."""


def producer_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a producer that takes whatever the topic does."""
    return {
        "partitioner": "murmur2_random",  # as Java's clients, and Weir's sink
        "message.max.bytes": LARGEST_MESSAGE,
        # A broker's limit is for batches, so small ones come through wherever their records do.
        "batch.size": 65_536,
        **settings,
        "enable.idempotence": True,
    }


def hand_over(producer: Producer, topic: str, record: Record) -> None:
    """Give a record to a producer, as soon as that has room.

    Raises:
        KafkaException: it doesn't take the record.
    """
    options: dict[str, Any] = {"headers": list(record.headers)}
    if record.partition is not None:
        options["partition"] = record.partition
    if record.timestamp is not None:
        options["timestamp"] = record.timestamp
    while True:
        try:
            producer.produce(topic, record.value, record.key, **options)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(_LOOK)


class ClusterClient:
    """
    Raises (from every method):
        KafkaTrouble: no broker answers, or they refuse.
    """

    def __init__(self, settings: Mapping[str, Any]):
        self._said: list[KafkaError] = []
        self._servers = settings["bootstrap.servers"]
        self._settings = {"log_level": 0, **settings, "error_cb": self._said.append}
        self._admin = _made(AdminClient, self._settings)

    def _topics(self) -> Mapping[str, Any]:
        left, patience = _TIMEOUT, _LISTENS
        while True:
            try:
                found: Mapping[str, Any] = self._admin.list_topics(timeout=patience).topics
                return found
            except KafkaException as error:
                left, patience = left - patience, min(2 * patience, left)
                self._admin.poll(0)
                if nobody_listens(self._said):
                    self._said.clear()
                    raise NoAnswer(
                        f"no Kafka broker listens at {self._servers}: start one (`weir kafka` does), or name another "
                        "address with --bootstrap"
                    ) from error
                refused = any(one.code() in REFUSES for one in self._said)
                if left <= 0 or refused:
                    said = dict.fromkeys([error.args[0].str(), *(one.str() for one in self._said)])
                    kind = KafkaTrouble if refused else NoAnswer
                    raise kind(f"no answer from {self._servers}: {'; '.join(list(said)[:3])}") from error

    def await_broker(self, patience: float) -> None:
        """Until one answers, for so many seconds."""
        deadline = time.monotonic() + patience
        while True:
            try:
                self._topics()
                return
            except NoAnswer:  # the client doesn't say each time that nobody listens
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_LOOK)

    def create(
        self, topics: Mapping[str, int], replication: int | None, config: Mapping[str, str], existing_ok: bool
    ) -> dict[str, bool]:
        """Create topics (name → partitions) and wait until each partition has a leader. `False` for those that were
        there already, with as many partitions."""
        before = self._topics()
        for name in topics:
            if name in before and not existing_ok:
                raise KafkaTrouble(f"topic {name!r} exists already; --if-missing takes it as it is")
            if name in before and len(before[name].partitions) != topics[name]:
                there = len(before[name].partitions)
                raise KafkaTrouble(
                    f"topic {name!r} exists already, and has {counted(there, 'partition')}, not {topics[name]}"
                )
        new = [
            NewTopic(name, number, -1 if replication is None else replication, config=dict(config))
            for name, number in topics.items()
            if name not in before
        ]
        for name, future in (self._admin.create_topics(new, request_timeout=_TIMEOUT) if new else {}).items():
            try:
                future.result()
            except KafkaException as error:
                raise KafkaTrouble(f"topic {name!r} can't be created: {error.args[0].str()}") from error
        deadline = time.monotonic() + _TIMEOUT
        while not all(_led(found.get(name)) for found in [self._topics()] for name in topics):
            if time.monotonic() >= deadline:
                raise KafkaTrouble(f"some partitions have no leader {_TIMEOUT:g} s after they were created")
            time.sleep(_LOOK / 4)
        return {name: name not in before for name in topics}

    def views(self, prefix: str) -> list[TopicView]:
        found = sorted((name, topic) for name, topic in self._topics().items() if name.startswith(prefix))
        consumer = self._consumer(read_committed=False)
        try:
            return [
                TopicView(
                    name,
                    len(topic.partitions),
                    max((len(one.replicas) for one in topic.partitions.values()), default=0),
                    sum(high - low for low, high in (self._bounds(consumer, name, n) for n in topic.partitions)),
                )
                for name, topic in found
            ]
        finally:
            consumer.close()

    def _bounds(self, consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT)
        except KafkaException as error:
            raise KafkaTrouble(f"the offsets of {topic}[{partition}] can't be read: {error.args[0].str()}") from error
        return low, high

    def partitions(self, topic: str) -> list[int]:
        """
        Raises:
            KafkaTrouble: there is no such topic.
        """
        found = self._topics()
        if topic not in found:
            raise KafkaTrouble(
                f"there is no topic {topic!r} at {self._servers}, or this client may not see it. Create it: "
                f"weir kafka create {topic}"
            )
        return sorted(found[topic].partitions)

    def _consumer(self, read_committed: bool) -> Consumer:
        consumer: Consumer = _made(
            Consumer,
            {
                **self._settings,
                "group.id": "weir-consume",  # required; nothing is ever committed to it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            },
        )
        return consumer

    def produce(self, topic: str, records: Iterable[Record]) -> int:
        """How many, once all are acknowledged. Those before one that fails are produced, too."""
        there = self.partitions(topic)
        failures: list[KafkaError] = []
        producer = _made(
            Producer,
            {
                **producer_settings(self._settings),
                "on_delivery": lambda error, _: failures.append(error) if error is not None else None,
            },
        )
        count = 0
        try:
            for record in records:
                if record.partition is not None and record.partition not in there:
                    raise KafkaTrouble(f"topic {topic!r} has no partition {record.partition}, only {len(there)}")
                try:
                    hand_over(producer, topic, record)
                except KafkaException as error:
                    raise KafkaTrouble(f"a record was not taken: {error.args[0].str()}") from error
                count += 1
                if failures:
                    break
        finally:
            left = producer.flush(_FLUSH)
        if failures:
            raise KafkaTrouble(f"a record was not taken by topic {topic!r}: {failures[0].str()}")
        if left:
            raise KafkaTrouble(
                f"topic {topic!r}: {counted(left, 'record was', 'records were')} not acknowledged within {_FLUSH:g} s"
            )
        return count

    def consume(
        self,
        topic: str,
        partitions: Sequence[int],
        start: str | int,
        *,
        read_committed: bool,
        to_end: bool,
        count: int | None,
        timeout: float | None,
    ) -> Iterator[list[Message]]:
        """Batches as they come, and an empty one at least five times a second, so that the caller can look up.

        Args:
            partitions: which; none = all.
            start: `earliest`, `latest` or an offset.
            to_end: end where each partition ended when it was looked at; an open transaction isn't waited for.
            timeout: seconds after which it ends.

        Raises:
            KafkaTrouble: also if `timeout` passes before `count` records or the end have come.
        """
        there = self.partitions(topic)
        wrong = [one for one in partitions if one not in there]
        if wrong:
            raise KafkaTrouble(f"topic {topic!r} has no partition {wrong[0]}, only {len(there)}")
        consumer = self._consumer(read_committed)
        chosen = list(partitions) or there
        offset = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}.get(str(start), start)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            ends = {one: self._bounds(consumer, topic, one)[1] for one in chosen} if to_end else {}
            pending = set(chosen)
            consumer.assign([TopicPartition(topic, one, int(offset)) for one in chosen])
            left = count
            while (pending or not to_end) and left != 0 and (deadline is None or time.monotonic() < deadline):
                wait = _LOOK if deadline is None else max(0.0, min(_LOOK, deadline - time.monotonic()))
                good = []
                for message in consumer.consume(_BATCH if left is None else min(_BATCH, left), wait):
                    error, partition = message.error(), message.partition() or 0
                    if error is None:
                        good.append(message)
                        if (message.offset() or 0) + 1 >= ends.get(partition, 0):
                            pending.discard(partition)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        pending.discard(partition)
                    else:
                        raise KafkaTrouble(f"{topic}[{partition}] can't be read: {error.str()}")
                left = None if left is None else left - len(good)
                yield good
            if count is not None and left and (not to_end or pending):
                raise KafkaTrouble(f"only {count - left:,} of {counted(count, 'record')} came within {timeout:g} s")
            if count is None and to_end and pending:
                raise KafkaTrouble(f"the end of partitions {sorted(pending)} did not come within {timeout:g} s")
        finally:
            consumer.close()


def _led(topic: Any) -> bool:
    return topic is not None and topic.error is None and all(one.leader >= 0 for one in topic.partitions.values())


def _made(client: Any, settings: Mapping[str, Any]) -> Any:
    try:
        return client(dict(settings))
    except KafkaException as error:
        raise KafkaTrouble(f"librdkafka doesn't take the settings: {error.args[0].str()}") from error
