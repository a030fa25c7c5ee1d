"""Topics from outside of a job: creating, filling and reading them, as the demo and the measurements need it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # public, not marked so in stubs

from checkpoint.counted import counted

_TIMEOUT_S: Final = 30.0
_FLUSH_TIMEOUT_S: Final = 120.0


class TopicTrouble(RuntimeError):
    """The broker doesn't do what is asked for; the message says what it was and why."""


def create_topics(servers: str, partitions: Mapping[str, int], *, existing_ok: bool = False) -> None:
    """Create topics (name → number of partitions) and return once every partition has a leader.

    Raises:
        TopicTrouble: the broker refuses, or doesn't answer.
    """
    admin = _admin(servers)
    made = admin.create_topics([NewTopic(name, number, 1) for name, number in partitions.items()]) if partitions else {}
    for name, future in made.items():
        _wait(future, f"topic {name!r} can't be created", KafkaError.TOPIC_ALREADY_EXISTS if existing_ok else None)
    deadline = time.monotonic() + _TIMEOUT_S
    for name in partitions:
        while not _led(admin, name):
            if time.monotonic() >= deadline:
                raise TopicTrouble(f"topic {name!r} has partitions without a leader after {_TIMEOUT_S:g} s")
            time.sleep(0.02)


def delete_topics(servers: str, names: Sequence[str]) -> None:
    """
    Raises:
        TopicTrouble: the broker refuses, or doesn't answer. Topics that don't exist are none.
    """
    admin = _admin(servers)  # kept, as its futures end with it
    for name, future in admin.delete_topics(list(names)).items():
        _wait(future, f"topic {name!r} can't be deleted", KafkaError.UNKNOWN_TOPIC_OR_PART)


def publish(servers: str, topic: str, records: Iterable[tuple[bytes, bytes]]) -> int:
    """Write (key, value) pairs, each key's in their order to one partition; return how many once all are acknowledged.

    Raises:
        TopicTrouble: a record was not taken.
    """
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,  # keeps the order over retries
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "batch.num.messages": 50_000,
            "queue.buffering.max.messages": 200_000,
            "compression.type": "lz4",
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(error) if error is not None else None,
            "log_level": 0,
        }
    )
    count = 0
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if failures:
            break
    left = producer.flush(_FLUSH_TIMEOUT_S)
    if failures:
        raise TopicTrouble(f"a record was not taken by topic {topic!r}: {failures[0]}")
    if left:
        raise TopicTrouble(
            f"topic {topic!r}: {counted(left, 'record was', 'records were')} not acknowledged in {_FLUSH_TIMEOUT_S:g} s"
        )
    return count


class Follower:
    """Reads a topic from its beginning, as it grows, seeing what is committed only. Not thread-safe."""

    def __init__(self, servers: str, topic: str) -> None:
        """
        Raises:
            TopicTrouble: the topic doesn't exist, or the broker doesn't answer.
        """
        self._topic = topic
        self._reads = False
        """It fetches nothing until records are asked for; the client keeps up to 64 MiB of what it has fetched."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "weir-follower",  # required, but nothing is ever committed
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            found = self._consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            self._partitions = list(found.partitions)
        except KafkaException as error:
            self._consumer.close()
            raise TopicTrouble(f"topic {topic!r} can't be read: {error}") from error

    def poll(self, timeout: float) -> list[Message]:
        """What has come, at once if there is anything; else after up to `timeout` seconds an empty list."""
        return [message for message in self._consume(timeout) if message.error() is None]

    def to_end(self) -> Iterator[list[Message]]:
        """Batches up to the end of every partition. An open transaction is not waited for: it isn't there yet.

        Raises:
            TopicTrouble: nothing comes for half a minute before the end.
        """
        pending = set(self._partitions)
        heard = time.monotonic()
        while pending:
            messages = self._consume(0.2)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _TIMEOUT_S:
                raise TopicTrouble(f"the end of partitions {sorted(pending)} of {self._topic!r} does not come")
            good = []
            for message in messages:
                if message.error() is None:
                    good.append(message)
                else:
                    pending.discard(message.partition() or 0)
            if good:
                yield good

    def end_offset(self) -> int:
        """The sum of the partitions' ends, as far as committed. Transactions' own marks count, too.

        Raises:
            TopicTrouble: the broker doesn't answer.
        """
        try:
            ends = [
                self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=_TIMEOUT_S)[1]
                for number in self._partitions
            ]
        except KafkaException as error:
            raise TopicTrouble(f"the ends of topic {self._topic!r} can't be read: {error}") from error
        return sum(ends)

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _consume(self, timeout: float) -> list[Message]:
        if not self._reads:
            self._reads = True
            self._consumer.assign([TopicPartition(self._topic, number, 0) for number in self._partitions])
        messages = self._consumer.consume(1, timeout)  # alone, since more would be waited for
        if messages:
            messages += self._consumer.consume(10_000, 0)
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise TopicTrouble(f"topic {self._topic!r} can't be read: {error}")
        return messages


def _admin(servers: str) -> AdminClient:
    config: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
    return AdminClient(config)


def _led(admin: AdminClient, name: str) -> bool:
    try:
        topic = admin.list_topics(name, timeout=_TIMEOUT_S).topics[name]
    except KafkaException as error:
        raise TopicTrouble(f"topic {name!r} can't be looked up: {error}") from error
    partitions = topic.partitions.values()
    return topic.error is None and bool(partitions) and all(p.error is None and p.leader >= 0 for p in partitions)


def _wait(future: Future[Any], what: str, fine: int | None) -> None:
    try:
        future.result(_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != fine:
            raise TopicTrouble(f"{what}: {error.args[0].str()}") from error
