"""A broker that asks for passwords, TLS and permissions."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from deadlines import eventually

from pipeline.broker import NativeBroker
from pipeline.broker.java import find_java
from pipeline.broker.security import CertificateFailed, Security
from pipeline.testing import KafkaBroker
from pipeline.testing.kafka_backends import BackendKind

PASSWORDS = {"admin": "admin-secret", "job": "job-secret"}


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaBroker]:
    """Passwords, TLS and permissions."""
    with KafkaBroker.start(kind="native", security=Security(users=PASSWORDS, tls=True, acls=True)) as broker:
        yield broker


@pytest.fixture(scope="module")
def topic(secured: KafkaBroker) -> str:
    secured.create_topic("topic")
    return "topic"


def produce(broker: KafkaBroker, topic: str, config: dict[str, Any]) -> KafkaError | None:
    """What came of one record."""
    outcome: list[KafkaError | None] = []
    base: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 5000, "log_level": 0}
    producer = Producer({**base, **config})
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(20)
    return outcome[0]


def troubles(broker: KafkaBroker, config: dict[str, Any]) -> list[int]:
    """The codes of what a client that tries to connect is told."""
    codes: list[int] = []
    base: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    client = AdminClient({**base, **config, "error_cb": lambda error: codes.append(error.code())})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    client.poll(1)
    return codes


def test_the_brokers_own_methods_act_as_admin(secured: KafkaBroker, topic: str) -> None:
    secured.produce(topic, [b"from the admin"])
    assert b"from the admin" in [record.value for record in secured.consume(topic)]
    assert secured.client_config() == secured.client_config("admin")


def test_a_user_may_do_what_an_acl_allows_and_nothing_else(secured: KafkaBroker, topic: str) -> None:
    as_job = secured.client_config("job")
    refused = produce(secured, topic, as_job)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    pattern, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    write = AclBinding(ResourceType.TOPIC, topic, pattern, "User:job", "*", AclOperation.WRITE, allow)
    admin = AdminClient({"bootstrap.servers": secured.bootstrap_servers, **secured.client_config()})
    for future in admin.create_acls([write]).values():
        future.result(60)
    assert produce(secured, topic, as_job) is None


def test_a_transaction_is_committed_among_the_secured_partitions(secured: KafkaBroker, topic: str) -> None:
    """Its markers go from broker to broker, which log in, too."""
    config = {"bootstrap.servers": secured.bootstrap_servers, **secured.client_config()}
    producer = Producer({**config, "transactional.id": "tx"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction")
    producer.commit_transaction(30)
    eventually(lambda: b"in a transaction" in [record.value for record in secured.consume(topic)])


def test_a_wrong_password_is_told_from_a_broker_that_is_away(secured: KafkaBroker) -> None:
    assert KafkaError._AUTHENTICATION in troubles(secured, {**secured.client_config("job"), "sasl.password": "wrong"})


def test_a_client_that_does_not_know_the_certificate_does_not_connect(secured: KafkaBroker) -> None:
    config = secured.client_config("job")
    del config["ssl.ca.location"]
    assert KafkaError._SSL in troubles(secured, config)


def test_a_client_without_tls_and_password_gets_no_answer(secured: KafkaBroker) -> None:
    assert KafkaError._ALL_BROKERS_DOWN in troubles(secured, {})


def test_kafkas_java_tools_act_as_admin(secured: KafkaBroker) -> None:
    native = secured._backend
    assert isinstance(native, NativeBroker)
    servers, config = ("--bootstrap-server", native.bootstrap_servers), str(native.admin_config_path)
    tool = "org.apache.kafka.tools.TransactionsCommand"
    listed = native.java_tool(tool, *servers, "--command-config", config, "list")
    assert (listed.returncode, listed.stdout.split()[0]) == (0, "TransactionalId"), listed.stderr


def test_data_and_certificate_outlive_a_kill(secured: KafkaBroker, topic: str) -> None:
    authority = Path(secured.client_config()["ssl.ca.location"]).read_text()
    secured.kill()
    secured.restart()
    assert Path(secured.client_config()["ssl.ca.location"]).read_text() == authority
    secured.produce(topic, [b"after"])


@pytest.mark.parametrize(
    ("security", "protocol"),
    [
        (Security(users=PASSWORDS), "SASL_PLAINTEXT"),
        pytest.param(Security(tls=True), "SSL", marks=pytest.mark.matrix),
        pytest.param(Security(users=PASSWORDS, acls=True), "SASL_PLAINTEXT", marks=pytest.mark.matrix),
    ],
)
def test_passwords_and_tls_can_be_had_alone(security: Security, protocol: str) -> None:
    with KafkaBroker.start(kind="native", security=security) as broker:
        assert broker.client_config()["security.protocol"] == protocol
        broker.create_topic("topic")
        broker.produce("topic", [b"x"])
        assert [record.value for record in broker.consume("topic")] == [b"x"]


def test_the_certificate_names_host_and_localhost_and_is_readable_for_the_owner_only(tmp_path: Path) -> None:
    Security(tls=True).prepare(tmp_path, find_java(), "weir.test")
    authority = Security(tls=True).client_config(None, tmp_path)["ssl.ca.location"]
    loaded = ssl.create_default_context(cafile=authority)
    assert dict(part[0] for part in loaded.get_ca_certs()[0]["subject"])["commonName"] == "weir.test"
    assert (tmp_path / "keystore.password").stat().st_mode & 0o077 == 0


def test_without_keytool_the_error_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CertificateFailed, match=f"{tmp_path}/keytool can't be run"):
        Security(tls=True).prepare(tmp_path / "security", str(tmp_path / "java"), "127.0.0.1")


@pytest.mark.parametrize("kind", [None, "docker", "running"])
def test_only_a_native_broker_can_be_given_security(kind: BackendKind | None) -> None:
    with pytest.raises(ValueError, match=r'only a native broker.*kind="native"'):
        KafkaBroker.start(kind=kind, security=Security(users=PASSWORDS))


def test_a_broker_without_security_has_no_users(kafka: KafkaBroker) -> None:
    assert kafka.client_config() == {}
    with pytest.raises(ValueError, match="no user 'job'"):
        kafka.client_config("job")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Security(users={"job": "x"}), "must include 'admin'"),
        (lambda: Security(acls=True), "needs users"),
        (lambda: Security(users={"admin": 'a"b'}), "without quotes"),
        (lambda: Security(users={"admin": ""}), "visible ASCII"),
        (lambda: Security(users={"admin": "x", "a b": "x"}), "letters, digits"),
    ],
)
def test_what_kafka_could_not_be_told_is_refused(make: Callable[[], Security], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
