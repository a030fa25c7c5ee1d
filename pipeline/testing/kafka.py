"""`KafkaBroker`: a real broker for tests, with what tests do to one."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self, cast

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but not marked so in its stubs
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from checkpoint.counted import counted
from checkpoint.options import named_options
from pipeline.broker.security import Security
from pipeline.testing.kafka_backends import Backend, BackendKind, start_backend
from sources.kafka.cluster import NEW_LEADER

Isolation = Literal["read_committed", "read_uncommitted"]

_ADMIN_TIMEOUT_S: Final = 60.0
_FLUSH_TIMEOUT_S: Final = 60.0
_RETRY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as a reader outside of the job sees it.

    Attributes:
        key: `None` if it has none.
        value: `None` of a tombstone.
        headers: names and values, in their order.
        timestamp: milliseconds since 1970.
        partition: its number, from 0.
        offset: its place in the partition.
    """

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int | None
    partition: int
    offset: int

    def json(self) -> Any:
        """The value, decoded."""
        return None if self.value is None else json.loads(self.value)


@named_options
class KafkaBroker:
    """A Kafka broker; see `start`. A context manager that stops it.

    Its clients are made for each call and belong to it, so a broker may be used from several threads, but for `kill`,
    `restart` and `stop`.
    """

    def __init__(self, kind: BackendKind, backend: Backend) -> None:
        self.kind = kind
        self._backend = backend

    @classmethod
    def start(cls, *, kind: BackendKind | None = None, security: Security | None = None, **properties: object) -> Self:
        """The first that can be had of: a running broker (`WEIR_KAFKA_BOOTSTRAP`), a container (`WEIR_KAFKA_IMAGE`,
        by default `apache/kafka`, pinned; where a Docker engine answers and has or gets the image), a child process.

        Args:
            kind: take this one or fail.
            security: passwords, TLS and permissions (`kind="native"` only). This object's own methods act as `admin`.
            properties: broker settings, underscores for dots: `offsets_retention_minutes=1`. A running broker isn't
                used then, as it can't be given any.

        Raises:
            BackendUnavailable: `kind` was given and can't be had; the message says why.
            BrokerFailed, JavaMissing, FetchFailed, CertificateFailed: a child process is what it came to, and it
                failed.
            ValueError: `security` without `kind="native"`.
        """
        settings = {name.replace("_", "."): value for name, value in properties.items()}
        return cls(*start_backend(kind, settings, security))

    @property
    def bootstrap_servers(self) -> str:
        return self._backend.bootstrap_servers

    def client_config(self, user: str | None = None) -> dict[str, Any]:
        """librdkafka's settings to reach this broker besides `bootstrap.servers`, for the `config=` of sources and
        sinks; empty for a broker without security.

        Args:
            user: whom the client acts as; `None` = `admin`, if there are users.

        Raises:
            ValueError: the broker has no such user.
        """
        return self._backend.client_config(user)

    def kill(self) -> None:
        """SIGKILL the broker; its data stays.

        Raises:
            RuntimeError: it is a running one (`WEIR_KAFKA_BOOTSTRAP`), so not the test's to kill.
        """
        self._backend.kill()

    def restart(self) -> None:
        """Start again, on the same port with the same data, and return once it answers. Shuts it down first if it
        runs.

        Raises:
            RuntimeError: as `kill`; or it did not come up again.
        """
        self._backend.restart()

    def stop(self) -> None:
        """Stop it for good (not a running one)."""
        self._backend.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- topics -----------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        replication_factor: int = 1,
    ) -> None:
        """Create a topic and return once every partition has a leader.

        Args:
            config: topic settings, `{"cleanup.policy": "compact"}`.

        Raises:
            RuntimeError: the broker refuses (the topic exists, a setting is unknown).
        """
        admin = self._admin()
        topic = NewTopic(name, partitions, replication_factor, config={k: str(v) for k, v in (config or {}).items()})
        _result(admin.create_topics([topic])[name], f"topic {name!r} can't be created")
        self._await_partitions(admin, name, partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let the topic have `total` partitions.

        Raises:
            RuntimeError: the broker refuses (it has as many already, or does not exist).
        """
        admin = self._admin()
        _result(admin.create_partitions([NewPartitions(topic, total)])[topic], f"topic {topic!r} can't grow")
        self._await_partitions(admin, topic, total)

    def delete_topic(self, name: str) -> None:
        """Raises RuntimeError if the broker refuses."""
        admin = self._admin()  # kept until the result is there: an admin client that is dropped gives its requests up
        _result(admin.delete_topics([name])[name], f"topic {name!r} can't be deleted")

    # -- records ----------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        values: Iterable[Any],
        key: Callable[[Any], Any] | bytes | str | None = None,
        partition: Callable[[Any], int] | int | None = None,
        timestamp: Callable[[Any], int] | int | None = None,
    ) -> None:
        """Write `values` and return once all are acknowledged.

        Args:
            values: bytes as they are, `None` as a tombstone, anything else as JSON.
            key: of all records, or a function of the value. Bytes as they are, text as UTF-8, anything else as JSON.
            partition: of all records, or a function of the value; `None` = by key as the Java client does it.
            timestamp: milliseconds since the epoch, or a function of the value; `None` = now.

        Raises:
            KafkaException: a record was not taken.
        """
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer(
            {
                **self._client(),
                "acks": "all",
                "enable.idempotence": True,  # keeps the order over retries
                "partitioner": "murmur2_random",
                "linger.ms": 5,
            }
        )
        for value in values:
            options: dict[str, Any] = {}
            if partition is not None:
                options["partition"] = partition(value) if callable(partition) else partition
            if timestamp is not None:
                options["timestamp"] = timestamp(value) if callable(timestamp) else timestamp
            encoded_key = _encode_key(key(value) if callable(key) else key)
            while True:
                try:
                    producer.produce(topic, _encode(value), encoded_key, on_delivery=delivered, **options)
                    break
                except BufferError:
                    producer.poll(0.1)
            if failed:
                break
        left = producer.flush(_FLUSH_TIMEOUT_S)
        if failed:
            raise KafkaException(failed[0])
        if left:
            raise TimeoutError(
                f"topic {topic!r}: {counted(left, 'record was', 'records were')} not acknowledged within "
                f"{_FLUSH_TIMEOUT_S:g} s"
            )

    def consume(self, topic: str, isolation: Isolation = "read_committed", timeout: float = 60.0) -> list[KafkaRecord]:
        """All records from the start of the topic to its end at the time of the call, by partition and offset.

        With `read_committed` the end is the last stable offset: what an open transaction, and whatever lies behind
        it, has written is not there yet.

        Args:
            timeout: seconds.

        Raises:
            KafkaException: the topic does not exist, or reading fails.
            TimeoutError: the end was not reached in time; the message says how far it came.
        """
        ends = self.end_offsets(topic, isolation)
        consumer = Consumer(
            {
                **self._client(),
                "group.id": "weir-testing",  # required, but nothing is ever committed
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # so long the broker keeps a fetch at the end, in front of that event
            }
        )
        try:
            starts = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout)[0] for p in ends}
            # Records may end before the end offset, at a transaction's marker. Then the end-of-partition event tells.
            pending = {p for p, end in ends.items() if starts[p] < end}
            records: list[KafkaRecord] = []
            consumer.assign([TopicPartition(topic, p, starts[p]) for p in pending])
            deadline = time.monotonic() + timeout
            while pending:
                if time.monotonic() >= deadline:
                    reached = {p: (consumer.position([TopicPartition(topic, p)])[0].offset, ends[p]) for p in pending}
                    raise TimeoutError(f"{topic!r} was not read to its end in {timeout:g} s: {reached} (at, end)")
                for message in consumer.consume(10_000, 0.05):
                    _take(message, ends, pending, records)
        finally:
            consumer.close()
        records.sort(key=lambda record: (record.partition, record.offset))
        return records

    def end_offsets(self, topic: str, isolation: Isolation = "read_committed") -> dict[int, int]:
        """The end of each partition; with `read_committed` the last stable offset. A leader that is new is waited for.

        Raises:
            KafkaException: the topic does not exist, or a leader doesn't know its end for a minute.
        """
        admin = self._admin()
        metadata = admin.list_topics(topic, timeout=_ADMIN_TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        committed = isolation == "read_committed"
        deadline = time.monotonic() + _ADMIN_TIMEOUT_S
        while True:
            asked = admin.list_offsets(
                {TopicPartition(topic, p): latest for p in metadata.partitions},
                isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
                request_timeout=_ADMIN_TIMEOUT_S,
            )
            try:
                return {at.partition: future.result().offset for at, future in sorted(asked.items(), key=_partition)}
            except KafkaException as error:
                if error.args[0].code() not in NEW_LEADER or time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY_S)

    # -- inside -----------------------------------------------------------------------------------------------

    def _admin(self) -> AdminClient:
        config: dict[str, Any] = {**self._client(), "logger": _CLIENT_LOG}
        return AdminClient(config)

    def _client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap_servers, **self.client_config()}

    def _await_partitions(self, admin: AdminClient, topic: str, count: int) -> None:
        deadline = time.monotonic() + _ADMIN_TIMEOUT_S
        while True:
            metadata = admin.list_topics(topic, timeout=_ADMIN_TIMEOUT_S).topics[topic]
            led = sum(p.error is None and p.leader >= 0 for p in metadata.partitions.values())
            if led >= count:
                return
            if time.monotonic() >= deadline:
                raise RuntimeError(
                    f"{led} of {counted(count, 'partition')} of {topic!r} have a leader: {metadata.error}"
                )
            time.sleep(_RETRY_S)


_CLIENT_LOG = logging.getLogger("weir.testing.kafka.client")


def _take(message: Message, ends: Mapping[int, int], pending: set[int], records: list[KafkaRecord]) -> None:
    error, partition, offset = message.error(), message.partition(), message.offset()
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if partition is not None:
            pending.discard(partition)
        return
    assert partition is not None
    assert offset is not None
    if offset < ends[partition]:
        kind, timestamp = message.timestamp()
        records.append(
            KafkaRecord(
                key=message.key(),
                value=message.value(),
                headers=cast(list[tuple[str, bytes | None]], message.headers() or []),
                timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
                partition=partition,
                offset=offset,
            )
        )
    if offset >= ends[partition] - 1:
        pending.discard(partition)


def _partition(item: tuple[TopicPartition, object]) -> int:
    return item[0].partition


def _result(future: Future[Any], what: str) -> None:
    try:
        future.result(_ADMIN_TIMEOUT_S)
    except KafkaException as error:
        raise RuntimeError(f"{what}: {error}") from error


def _encode(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()


def _encode_key(key: Any) -> bytes | None:
    return key.encode() if isinstance(key, str) else _encode(key)
