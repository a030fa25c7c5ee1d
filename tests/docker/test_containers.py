"""The same broker in a container, and broker and demo job by compose."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deadlines import PATIENCE, eventually

from pipeline.broker.ports import free_ports
from pipeline.broker.readiness import await_broker
from pipeline.testing import KafkaBroker
from pipeline.testing.kafka_backends import docker_trouble

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
Compose = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def container() -> Iterator[KafkaBroker]:
    with KafkaBroker.start(kind="docker", message_max_bytes=2_000_000) as broker:
        yield broker


def test_a_container_keeps_records(container: KafkaBroker) -> None:
    container.create_topic("records", partitions=2)
    container.produce("records", [{"n": n} for n in range(100)], key=lambda value: str(value["n"]))
    assert sorted(record.json()["n"] for record in container.consume("records")) == list(range(100))


def test_properties_reach_a_container(container: KafkaBroker) -> None:
    container.create_topic("large", config={"max.message.bytes": 2_000_000})
    container.produce("large", [os.urandom(900_000)])
    assert len(container.consume("large")) == 1


def test_a_transaction_in_a_container_ends(container: KafkaBroker) -> None:
    """Its markers come from the broker itself, so it must reach itself; until they are there, the next commit waits."""
    container.create_topic("sums")
    servers = {"bootstrap.servers": container.bootstrap_servers}
    producer = Producer({**servers, "transactional.id": "sums-0"})
    reader = Consumer({**servers, "group.id": "sums-0"})
    try:
        producer.init_transactions(PATIENCE)
        for offset, value in ((3, b"first"), (7, b"second")):
            producer.begin_transaction()
            producer.produce("sums", value)
            offsets = [TopicPartition("sums", 0, offset)]
            producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), PATIENCE)
            producer.commit_transaction(PATIENCE)
        assert [record.value for record in container.consume("sums")] == [b"first", b"second"]
        eventually(lambda: reader.committed([TopicPartition("sums", 0)], PATIENCE)[0].offset == 7)
    finally:
        reader.close()


def test_data_and_address_of_a_container_outlive_a_kill(container: KafkaBroker) -> None:
    address = container.bootstrap_servers
    container.create_topic("kept")
    container.produce("kept", [b"before"])
    container.kill()
    with pytest.raises(TimeoutError):
        await_broker(address, 0.5)
    container.restart()
    container.produce("kept", [b"after"])
    assert container.bootstrap_servers == address
    assert [record.value for record in container.consume("kept")] == [b"before", b"after"]


@pytest.fixture
def compose() -> Iterator[Compose]:
    """Runs docker compose on this repository's file, as a project of its own."""
    command = _compose_command()
    environment = {**os.environ, "WEIR_KAFKA_PORT": str(free_ports(1)[0]), "WEIR_DEMO_RECORDS": "20000"}
    project = f"weir-test-{uuid.uuid4().hex[:8]}"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "-f", str(ROOT / "compose.yaml"), "-p", project, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    try:
        yield run
    finally:
        run("down", "--volumes", "--timeout", "5")


def test_the_broker_of_compose_serves_the_host(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    up = compose("up", "-d", "kafka")
    assert up.returncode == 0, up.stderr
    address = compose("port", "kafka", "9094").stdout.strip()
    monkeypatch.setenv("WEIR_KAFKA_BOOTSTRAP", address)
    with KafkaBroker.start(kind="running") as broker:
        broker.create_topic("from-host")
        broker.produce("from-host", [b"hello"])
        assert [record.value for record in broker.consume("from-host")] == [b"hello"]


@pytest.mark.sample(1 / 4)
def test_the_demo_of_compose_loses_and_doubles_nothing(compose: Compose) -> None:
    if trouble := docker_trouble(os.environ.get("WEIR_IMAGE", "weir:local")):
        pytest.skip(trouble)
    up = compose("up", "-d", "kafka")
    assert up.returncode == 0, up.stderr
    demo = compose("run", "--rm", "-T", "demo")
    assert demo.returncode == 0, f"{demo.stdout[-3000:]}\n{demo.stderr[-3000:]}"
    result = json.loads(demo.stdout.strip().splitlines()[-1])
    assert (result["records_in"], result["lost"], result["duplicated"], result["wrong"]) == (20_000, 0, 0, 0)


def _compose_command() -> list[str]:
    docker = shutil.which("docker")
    for command in ([docker, "compose"] if docker else [], ["docker-compose"]):
        if command and shutil.which(command[0]):
            told = subprocess.run([*command, "version"], capture_output=True, stdin=subprocess.DEVNULL)
            if told.returncode == 0:
                return command
    pytest.skip("there is neither `docker compose` nor docker-compose")
