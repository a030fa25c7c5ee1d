"""`weir kafka create|topics|produce|consume` against a broker."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from weir_process import await_line, started

from pipeline.broker import NativeBroker
from pipeline.broker.ports import free_ports
from pipeline.cli import kafka_client, main
from pipeline.testing import KafkaBroker

Name = Callable[[str], str]
Kafka = Callable[..., Result]


@pytest.fixture
def weir(kafka: KafkaBroker) -> Kafka:
    """`weir kafka COMMAND …` against the broker."""

    def run(command: str, *arguments: str, lines: str | bytes | None = None) -> Result:
        options = ("--bootstrap", kafka.bootstrap_servers)
        return CliRunner().invoke(main, ["kafka", command, *arguments, *options], input=lines)

    return run


def printed(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def error_of(result: Result) -> str:
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    return result.stderr


def test_topics_are_created_listed_and_not_created_twice(weir: Kafka, unique_name: Name) -> None:
    name = unique_name("topic")
    assert weir("create", f"{name}-a:3", f"{name}-b", "--topic-config", "retention.ms=1000000").exit_code == 0
    assert f"topic '{name}-a' exists already" in error_of(weir("create", f"{name}-a:3"))
    assert weir("create", f"{name}-a:3", f"{name}-c", "--if-missing").exit_code == 0
    assert "has 3 partitions, not 2" in error_of(weir("create", f"{name}-a:2", "--if-missing"))
    assert "can't be created" in error_of(weir("create", f"{name}-d", "--topic-config", "cleanup.policy=sometimes"))
    weir("produce", f"{name}-a", lines="1\n2\n")
    found = json.loads(weir("topics", name, "--json").stdout)["topics"]
    assert [(one["name"], one["partitions"], one["replicas"], one["records"]) for one in found] == [
        (f"{name}-a", 3, 1, 2),
        (f"{name}-b", 1, 1, 0),
        (f"{name}-c", 1, 1, 0),
    ]
    assert "records, about" in weir("topics", name).output


def test_values_go_in_by_their_key_and_come_out_as_they_were(weir: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic("orders", partitions=3)
    lines = [f'{{"user": "u{n % 5}",  "n": {n}}}' for n in range(20)]
    result = weir("produce", topic, "--key", "user", lines="\n".join(lines) + "\n\n")
    assert "20 records produced" in result.stderr
    assert sorted(printed(weir("consume", topic, "--to-end"))) == sorted(lines)
    records = [json.loads(line) for line in printed(weir("consume", topic, "--to-end", "--records"))]
    places: dict[str, set[int]] = {}
    for record in records:
        assert record["key"] == record["value"]["user"]
        places.setdefault(record["key"], set()).add(record["partition"])
    assert all(len(partitions) == 1 for partitions in places.values())


def test_what_the_topic_takes_goes_in_whatever_its_size(weir: Kafka, kafka: KafkaBroker, unique_name: Name) -> None:
    large, narrow = unique_name("large"), unique_name("narrow")
    kafka.create_topic(large, config={"max.message.bytes": 6_000_000})
    kafka.create_topic(narrow, config={"max.message.bytes": 70_000})
    record = json.dumps("x" * 5_000_000)
    assert "1 record produced" in weir("produce", large, lines=f"{record}\n").stderr
    assert "900 records produced" in weir("produce", narrow, lines=f"{json.dumps('x' * 1_000)}\n" * 900).stderr
    assert len(kafka.consume(large)[0].value or b"") == len(record)
    assert len(kafka.consume(narrow)) == 900


def test_whole_records_are_copied_from_one_topic_to_another(
    weir: Kafka, kafka: KafkaBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target, file = make_topic("source", partitions=2), make_topic("target", partitions=2), tmp_path / "lines"
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", b"\xff"), ("b", None)]
    producer.produce(source, b"\xff\x00", b"\xfe", partition=1, timestamp=1_700_000_000_000, headers=headers)
    producer.produce(source, None, b"gone", partition=1)
    producer.produce(source, "größe".encode(), None, partition=0)
    producer.produce(source, b'{"a":[1,2.5,null]}', b"", partition=0)
    producer.flush()
    file.write_text(weir("consume", source, "--to-end", "--records").stdout)
    assert "4 records" in weir("produce", target, str(file), "--records").stderr

    def whole(topic: str) -> set[object]:
        return {
            (one.partition, one.offset, one.key, one.value, tuple(one.headers), one.timestamp)
            for one in kafka.consume(topic)
        }

    assert whole(target) == whole(source)


def test_what_transactions_leave_open_is_read_unless_only_committed_is_wanted(
    weir: Kafka, kafka: KafkaBroker, make_topic: Callable[..., str], unique_name: Name
) -> None:
    topic = make_topic("totals")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique_name("writer")})
    producer.init_transactions()
    for value, end in (("committed", producer.commit_transaction), ("aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        end()
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush()
    assert printed(weir("consume", topic, "--to-end", "--read-committed")) == ["committed"]
    assert printed(weir("consume", topic, "--to-end")) == ["committed", "aborted", "open"]
    producer.abort_transaction()


def test_where_reading_begins_and_ends_can_be_chosen(weir: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic("numbers", partitions=2)
    weir("produce", topic, "--partition", "1", lines="0\n1\n2\n3\n")
    assert printed(weir("consume", topic, "--count", "2")) == ["0", "1"]
    assert printed(weir("consume", topic, "--from", "2", "--partition", "1", "--to-end")) == ["2", "3"]
    assert printed(weir("consume", topic, "--from", "latest", "--timeout", "0.5")) == []
    assert printed(weir("consume", topic, "--partition", "0", "--to-end")) == []
    late = error_of(weir("consume", topic, "--count", "5", "--timeout", "1"))
    assert re.search(r"only \d of 5 records came within 1 s", late)


def test_records_are_printed_as_they_come(kafka: KafkaBroker, make_topic: Callable[..., str], weir: Kafka) -> None:
    topic = make_topic("live")
    with started("kafka", "consume", topic, "--bootstrap", kafka.bootstrap_servers) as process:
        for n in range(2):
            weir("produce", topic, lines=f'{{"n": {n}}}\n')
            assert await_line(process, '"n"') == f'{{"n": {n}}}\n'


@pytest.mark.parametrize(
    ("arguments", "lines", "message"),
    [
        ((), "1\n{\n3\n", "line 2: it is no JSON"),
        (("--key", "user"), '{"user": 1}\n{"usr": 2}\n', "line 2: there is no field 'user'"),
        (("--records",), '{"value": 1}\n{"value": 1, "key": 2}\n', "line 2: key is text"),
        (("--partition", "7"), "1\n", "has no partition 7, only 1"),
        ((), b"1\n\xff\n", "line 2: 'utf-8' codec can't decode"),
    ],
)
def test_a_bad_line_is_named_with_how_many_are_in_the_topic(
    weir: Kafka, make_topic: Callable[..., str], arguments: tuple[str, ...], lines: str | bytes, message: str
) -> None:
    topic = make_topic("bad")
    error = error_of(weir("produce", topic, *arguments, lines=lines))
    assert message in error
    there = len(printed(weir("consume", topic, "--to-end")))
    assert f"Before it {there} record{' is' if there == 1 else 's are'} in the topic" in error or there == 0


def test_text_needs_no_json(weir: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic("text")
    weir("produce", topic, "--text", lines="to be or not\n  {\n")
    assert printed(weir("consume", topic, "--to-end")) == ["to be or not", "  {"]


def test_bytes_are_refused_where_only_text_can_be_printed(
    weir: Kafka, make_topic: Callable[..., str], kafka: KafkaBroker
) -> None:
    topic = make_topic("bytes")
    kafka.produce(topic, [b"\xff"])
    assert "offset 0, is no text: --records prints it in base64" in error_of(weir("consume", topic, "--to-end"))


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_topic_that_is_not_there_is_not_created_by_the_way(weir: Kafka, unique_name: Name, command: str) -> None:
    name = unique_name("none")
    assert f"there is no topic '{name}'" in (error := error_of(weir(command, name, lines="1\n")))
    assert f"weir kafka create {name}" in error
    assert json.loads(weir("topics", name, "--json").stdout) == {"topics": []}


@pytest.mark.slow
def test_a_broker_that_comes_up_late_is_waited_for() -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    with started("kafka", "create", "late:2", "--wait", "100", "--bootstrap", address) as process:
        with NativeBroker.start(port=port):
            output, _ = process.communicate(timeout=300)
        assert (process.returncode, output) == (0, "late: created with 2 partitions\n")


def test_a_broker_is_waited_for_as_long_as_it_was_said_however_long_nobody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client tells only once that nobody listens; then a look has no answer within the client's own time."""
    monkeypatch.setattr(kafka_client, "_TIMEOUT", 1.0)
    cluster = kafka_client.ClusterClient({"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}"})
    began = time.monotonic()
    with pytest.raises(kafka_client.NoAnswer):
        cluster.await_broker(5.0)
    assert time.monotonic() - began >= 5.0


@pytest.mark.parametrize("command", ["create", "topics", "produce", "consume"])
def test_a_broker_that_is_not_there_is_told_with_what_to_do(command: str) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    result = CliRunner().invoke(main, ["kafka", command, "topic", "--bootstrap", address], input="1\n")
    assert f"no Kafka broker listens at {address}: start one (`weir kafka` does)" in error_of(result)
