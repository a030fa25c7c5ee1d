"""Troubles with Kafka, staged on real jobs without Spark and found from the page alone: what the cause is, and which
source, partition or subtask it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deadlines import eventually
from diagnosed_job import diagnosed
from passwords import rotate

from pipeline import CheckpointConfig, Pipeline, RestartStrategy
from pipeline.broker.security import Security
from pipeline.testing import KafkaBroker, TestingSink
from sources import KafkaSource
from sources.kafka import discovery

USER = "orders"
pytestmark = pytest.mark.sample(1 / 4, together="broker")


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    users = {"admin": "admin-password", USER: "first-password"}
    with KafkaBroker.start(kind="native", security=Security(users=users)) as started:
        yield started


@pytest.fixture
def topic(broker: KafkaBroker, unique_name: Callable[[str], str]) -> str:
    name = unique_name("topic")
    broker.create_topic(name)
    broker.produce(name, [{"id": 0}])
    return name


def job(broker: KafkaBroker, topic: str, folder: Path, sink: TestingSink, parallelism: int = 1) -> Pipeline:
    p = Pipeline(
        "job",
        parallelism=1,
        checkpoints=CheckpointConfig(str(folder), interval=0.5),
        restart=RestartStrategy.fixed_delay(attempts=1_000, delay=1.0),
    )
    config = broker.client_config(USER)
    source = KafkaSource(broker.bootstrap_servers, topics=[topic], config=config, discovery_interval=None)
    p.source("in", source, parallelism=parallelism).rebalance().sink("out", sink)
    return p


def test_partitions_that_nobody_reads_and_a_subtask_that_has_none(
    broker: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "DISCOVERY_S", 0.5)
    with diagnosed(job(broker, topic, tmp_path, TestingSink(), parallelism=2)) as running:
        without = running.await_sentence("has no partition to read", "Lower the parallelism of the source to 1")
        assert (without.severity, without.text[:3]) == ("note", "in[")
        broker.add_partitions(topic, 2)
        broker.produce(topic, [{"id": 1}, {"id": 2}], partition=1)
        unread = running.await_sentence(f"Nobody reads {topic}[1], with 2 records so far")
        assert unread.severity == "trouble"


def test_a_dead_broker(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    sink = TestingSink()
    with diagnosed(job(broker, topic, tmp_path, sink)) as running:
        eventually(lambda: bool(sink.records))
        broker.kill()
        try:
            found = running.await_sentence(
                f"in[0] waits for the Kafka brokers at {broker.bootstrap_servers} to read from (source 'in'), for "
            )
        finally:
            broker.restart()
        assert found.text.endswith("The job goes on by itself once they answer.")
        broker.produce(topic, [{"id": 1}])
        eventually(lambda: len(sink.records) == 2)
        assert running.handle.restarts == 0


@pytest.mark.slow
def test_a_password_that_is_rotated_while_the_job_runs(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    sink = TestingSink()
    with diagnosed(job(broker, topic, tmp_path, sink)) as running:
        eventually(lambda: bool(sink.records))
        rotate(broker, "first-password", "second-password")
        try:
            found = running.await_sentence("(source 'in'), which refuse its user, password or certificate, for ")
            again = running.await_sentence("The job was restarted", "The brokers refuse this client: correct user")
        finally:
            rotate(broker, "second-password", "first-password")
        assert found.severity == again.severity == "trouble"
        assert found.text.endswith(
            "Correct the user, the password or the certificate in config=, and start the job again."
        )
