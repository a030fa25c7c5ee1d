"""`weir kafka markers` and `weir kafka transactions`: looks into a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition

from pipeline.cli import main
from pipeline.testing import KafkaBroker
from sinks import CommittableName, Lineage
from sinks.kafka.marker import Marker


def weir(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def commit(kafka: KafkaBroker, group: str, topic: str, offset: int, metadata: str) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata=metadata)], asynchronous=False)
    consumer.close()


@pytest.fixture
def markers(kafka: KafkaBroker, make_topic: Callable[..., str], unique_name: Callable[[str], str]) -> tuple[str, str]:
    """Prefix and topic of two markers, beside which there is an ordinary group's offset."""
    prefix, topic = unique_name("job"), make_topic("out")
    first = Marker(Lineage("L2", ("L1", 3)), 7, CommittableName(7, 1), "me")
    commit(kafka, f"{prefix}-out-0", topic, 7, first.to_metadata())
    commit(kafka, f"{prefix}-out-1", topic, 4, Marker(Lineage("L2"), 4, None, "you").to_metadata())
    commit(kafka, f"{prefix}-reader", topic, 12, "")
    return prefix, topic


def test_markers_tell_what_is_committed_and_other_groups_are_left_out(
    kafka: KafkaBroker, markers: tuple[str, str], tmp_path: Path
) -> None:
    prefix, topic = markers
    config = tmp_path / "client.properties"
    config.write_text("# how to connect\nsecurity.protocol = PLAINTEXT\n\n")
    servers = ("--bootstrap", kafka.bootstrap_servers)
    result = weir("kafka", "markers", prefix, *servers, "--config", str(config), "--json")
    assert result.exit_code == 0, result.output
    common = {"topic": topic, "lineage": "L2"}
    first = {"checkpoint": 7, "parent": ["L1", 3], "last": "7/1", "writer": "me"}
    second = {"checkpoint": 4, "parent": None, "last": None, "writer": "you"}
    assert json.loads(result.output)["markers"] == [
        {"group": f"{prefix}-out-0", **common, **first},
        {"group": f"{prefix}-out-1", **common, **second},
    ]
    table = weir("kafka", "markers", prefix, *servers).output
    assert all(part in table for part in ("checkpoint", "7/1", "L2"))
    assert "no marker" in weir("kafka", "markers", f"{prefix}-none", *servers).output


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--set", "security.protocol"), 2, "is not NAME=VALUE"),
        (("--set", "no.such.setting=1"), 1, "can't be listed: No such configuration property"),
    ],
)
def test_a_setting_that_is_none_is_refused(options: tuple[str, ...], status: int, message: str) -> None:
    result = weir("kafka", "markers", "--bootstrap", "127.0.0.1:1", *options)
    assert (result.exit_code, message in result.output) == (status, True), result.output


def test_brokers_that_do_not_answer_are_reported_with_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.cli.kafka_markers._TIMEOUT", 1.0)
    result = weir("kafka", "markers", "x", "--bootstrap", "127.0.0.1:1")
    assert (result.exit_code, type(result.exception)) == (1, SystemExit), result.output
    assert "the groups at 127.0.0.1:1 can't be listed: Local: Timed out. Check that" in result.output


def test_options_of_the_broker_do_not_go_with_a_look_into_a_cluster() -> None:
    result = weir("kafka", "--port", "0", "markers")
    assert (result.exit_code, "don't go with 'markers'" in result.output) == (2, True), result.output


@pytest.fixture
def open_transaction(
    kafka: KafkaBroker, make_topic: Callable[..., str], unique_name: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """Its transactional id, and the topic that it has written to, beside one that has ended."""
    topic, name = make_topic("out", 2), unique_name("job")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{name}-open"})
    ended = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{name}-ended"})
    for one in (ended, producer):
        one.init_transactions(30)
        one.begin_transaction()
        one.produce(topic, b"x", partition=1)
        one.produce(topic, b"x", partition=0)
        one.flush(30)
        if one is ended:
            one.commit_transaction(30)
    yield f"{name}-open", topic
    producer.abort_transaction(30)


@pytest.mark.slow
def test_open_transactions_are_listed_and_ended_ones_are_not(
    kafka: KafkaBroker, open_transaction: tuple[str, str]
) -> None:
    name, topic = open_transaction
    result = weir("kafka", "transactions", name.removesuffix("open"), "--bootstrap", kafka.bootstrap_servers, "--json")
    assert result.exit_code == 0, result.output
    mine = json.loads(result.output)["open"]
    assert [(one["transactional_id"], one["state"], one["epoch"]) for one in mine] == [(name, "Ongoing", 0)]
    assert mine[0]["partitions"] == [f"{topic}-0", f"{topic}-1"]
    assert 0 < mine[0]["seconds"] < mine[0]["timeout"] == 60


@pytest.mark.slow
def test_a_transaction_that_its_coordinator_will_end_does_not_hang(
    kafka: KafkaBroker, open_transaction: tuple[str, str]
) -> None:
    _, topic = open_transaction
    result = weir("kafka", "transactions", "--bootstrap", kafka.bootstrap_servers, "--hanging", topic)
    assert (result.exit_code, "no transaction hangs" in result.output) == (0, True), result.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "root_cause"),
    [
        (
            "security.protocol=NONE_SUCH\n",
            "ConfigException: Invalid value NONE_SUCH for configuration security.protocol",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=me\nsasl.password=s3cret\n",
            "IllegalArgumentException: Could not find a 'KafkaClient' entry in the JAAS configuration",
        ),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/no/such.pem\n",
            "NoSuchFileException: /no/such.pem",
        ),
    ],
    ids=["outermost exception", "settings of librdkafka", "cause of a cause"],
)
def test_the_root_cause_of_what_kafkas_tool_says_is_passed_on(tmp_path: Path, settings: str, root_cause: str) -> None:
    config = tmp_path / "admin.properties"
    config.write_text(settings)
    result = weir("kafka", "transactions", "--bootstrap", "127.0.0.1:1", "--command-config", str(config))
    assert result.exit_code == 1
    assert f"could not list transactions at 127.0.0.1:1: {root_cause}" in result.output
    assert "sasl.jaas.config" in result.output
    assert "\tat " not in result.output
    assert "s3cret" not in result.output


@pytest.mark.slow
def test_what_kafkas_tool_says_without_a_stack_trace_is_passed_on(kafka: KafkaBroker) -> None:
    result = weir("kafka", "transactions", "--bootstrap", kafka.bootstrap_servers, "--hanging", "no-such-topic")
    assert result.exit_code == 1
    told = f"could not find hanging transactions of topic 'no-such-topic' at {kafka.bootstrap_servers}: Failed to"
    assert told in result.output
    assert "debug logging" not in result.output
