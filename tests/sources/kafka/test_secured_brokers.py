"""KafkaSource on a broker with TLS, passwords and permissions: what it needs, and what it says when that is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from deadlines import PATIENCE

from pipeline.broker.security import Security
from pipeline.testing import KafkaBroker
from sources import END, KafkaSource, SourceBatch, SourceContext, SourceReader
from sources.kafka import KafkaUnavailable, MissingPermission

JOB = "job"


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaBroker]:
    users = {"admin": "admin-password", JOB: "job-password"}
    with KafkaBroker.start(kind="native", security=Security(users=users, tls=True, acls=True)) as broker:
        yield broker


@pytest.fixture
def topic(secured: KafkaBroker, unique_name: Callable[[str], str]) -> str:
    """With three records, and nothing granted."""
    name = unique_name("topic")
    secured.create_topic(name)
    secured.produce(name, [{"id": i} for i in range(3)])
    return name


@pytest.fixture
def source(secured: KafkaBroker, topic: str) -> Callable[..., KafkaSource]:
    """`source(group_id=…)`: reads the topic as the user `job`."""

    def make(**options: Any) -> KafkaSource:
        chosen = {"topics": [topic], "config": secured.client_config(JOB), **options}
        return KafkaSource(secured.bootstrap_servers, **chosen)

    return make


Make = Callable[..., KafkaSource]


def test_reads_over_tls_with_a_password_and_commits_to_its_group(
    secured: KafkaBroker, topic: str, source: Make, unique_name: Callable[[str], str]
) -> None:
    group = unique_name("group")
    _grant(secured, topic, AclOperation.READ)
    _grant(secured, group, AclOperation.READ, ResourceType.GROUP)
    made = source(group_id=group, end="latest", start="group")
    made.validate()
    reader = _open(made.resolve())
    assert _read_to_end(reader) == [0, 1, 2]
    reader.snapshot(1, 0)
    reader.on_checkpoint_complete(1)
    reader.close()

    assert _committed(secured, group, topic) == 3


@pytest.mark.parametrize("start", ["earliest", "latest", {"timestamp": 0}])
def test_reading_needs_no_more_than_read_on_the_topic(
    secured: KafkaBroker, topic: str, source: Make, start: Any
) -> None:
    _grant(secured, topic, AclOperation.READ)
    made = source(start=start, end="latest")
    made.validate()
    reader = _open(made.resolve())
    assert _read_to_end(reader) == ([] if start == "latest" else [0, 1, 2])
    reader.snapshot(1, 0)
    reader.on_checkpoint_complete(1)
    reader.close()


def test_a_wrong_password_is_told_at_the_start(source: Make, secured: KafkaBroker) -> None:
    wrong = {**secured.client_config(JOB), "sasl.password": "wrong"}

    with pytest.raises(KafkaUnavailable, match=r"(?i)authentication failed.*security settings in config"):
        source(config=wrong).validate()


def test_a_certificate_that_nobody_vouches_for_is_told_at_the_start(source: Make, secured: KafkaBroker) -> None:
    unknown = {k: v for k, v in secured.client_config(JOB).items() if k != "ssl.ca.location"}

    with pytest.raises(KafkaUnavailable, match=r"certificate verify failed.*security settings in config"):
        source(config=unknown).validate()


def test_a_client_without_tls_is_told_at_the_start(source: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.kafka.source.VALIDATE_TIMEOUT_S", 2.0)
    with pytest.raises(KafkaUnavailable, match="security settings in config"):
        source(config={}).validate()


def test_a_topic_that_may_not_be_seen_or_read_is_told_at_the_start(
    secured: KafkaBroker, topic: str, source: Make
) -> None:
    with pytest.raises(ValueError, match=f"no topic {topic} .* may not see it"):
        source().validate()
    _grant(secured, topic, AclOperation.DESCRIBE)
    with pytest.raises(MissingPermission, match=f"may not read '{topic}' .* READ on the topic"):
        source().validate()


def test_a_group_that_may_not_be_seen_or_committed_to_is_told_at_the_start(
    secured: KafkaBroker, topic: str, source: Make, unique_name: Callable[[str], str]
) -> None:
    group = unique_name("group")
    _grant(secured, topic, AclOperation.READ)
    with pytest.raises(MissingPermission, match=f"may not see the group '{group}'.* READ on the group"):
        source(group_id=group).validate()
    _grant(secured, group, AclOperation.DESCRIBE, ResourceType.GROUP)
    with pytest.raises(MissingPermission, match=f"may not commit offsets to the group '{group}'.* READ on the group"):
        source(group_id=group).validate()


def test_a_topic_for_dead_letters_must_be_writable(
    secured: KafkaBroker, topic: str, source: Make, unique_name: Callable[[str], str]
) -> None:
    dead = unique_name("dead")
    secured.create_topic(dead)
    secured.produce(topic, [b"{broken"])
    _grant(secured, topic, AclOperation.READ)
    with pytest.raises(ValueError, match=f"{dead}.* which doesn't exist .* or this client may not see it"):
        source(on_bad_record=dead).validate()
    _grant(secured, dead, AclOperation.DESCRIBE)
    with pytest.raises(MissingPermission, match=f"'{dead}': grant its principal the permission WRITE"):
        source(on_bad_record=dead).validate()
    reader = _open(source(on_bad_record=dead, end="latest"))
    with pytest.raises(RuntimeError, match=f"could not be delivered to the topic {dead}.* WRITE permission"):
        _read_to_end(reader)
    reader.close()
    _grant(secured, dead, AclOperation.WRITE)
    made = source(on_bad_record=dead, end="latest")
    made.validate()
    reader = _open(made)
    assert _read_to_end(reader) == [0, 1, 2]
    reader.close()
    assert [record.value for record in secured.consume(dead)] == [b"{broken"]


def test_a_permission_that_is_taken_away_stops_the_running_source(
    secured: KafkaBroker, topic: str, source: Make
) -> None:
    _grant(secured, topic, AclOperation.READ)
    reader = _open(source())
    _poll(reader, lambda values: len(values) == 3)
    _revoke(secured, topic)

    with pytest.raises(RuntimeError, match=f"Kafka refuses {topic}.*Give this client's principal the READ permission"):
        _poll(reader, lambda _: False)
    reader.close()


def test_a_reader_with_a_wrong_password_fails(secured: KafkaBroker, topic: str, source: Make) -> None:
    """Brokers that don't answer it would wait for."""
    wrong = {**secured.client_config(JOB), "sasl.password": "wrong"}

    with pytest.raises(KafkaUnavailable, match=r"(?i)authentication fail"):
        _open(source(config=wrong))


class NoMetrics:
    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: float | str | None) -> None: ...


# -- helpers ---------------------------------------------------------------------------------------------------------


def _open(source: Any) -> SourceReader:
    return source.create_reader(SourceContext("p", "in", 0, 1, NoMetrics()))  # type: ignore[no-any-return]


def _poll(reader: SourceReader, until: Callable[[list[int]], bool]) -> list[int]:
    values: list[int] = []
    deadline = time.monotonic() + PATIENCE
    while not until(values):
        assert time.monotonic() < deadline, values
        batch = reader.poll(100, 0.01)
        if batch is END:
            return values
        if isinstance(batch, SourceBatch):
            values += [value["id"] for value in batch.values]
    return values


def _read_to_end(reader: SourceReader) -> list[int]:
    return _poll(reader, lambda _: False)


def _admin(broker: KafkaBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, **broker.client_config()})


def _grant(broker: KafkaBroker, name: str, operation: AclOperation, kind: ResourceType = ResourceType.TOPIC) -> None:
    allow = AclPermissionType.ALLOW
    binding = AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{JOB}", "*", operation, allow)
    admin = _admin(broker)
    admin.create_acls([binding])[binding].result(60)


def _revoke(broker: KafkaBroker, name: str) -> None:
    everything = (None, None, AclOperation.ANY, AclPermissionType.ANY)
    chosen = AclBindingFilter(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, *everything)
    admin = _admin(broker)
    assert admin.delete_acls([chosen])[chosen].result(60)


def _committed(broker: KafkaBroker, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, **broker.client_config()})
    (partition,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    consumer.close()
    return partition.offset
