"""Records that steps fail on, in whole jobs: their letters come once, over a crash, and are sent again once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from pipeline import CheckpointConfig, DeadLetter, KeyedOperator, Pipeline, RestartStrategy, ValueState
from pipeline.cli import main
from pipeline.testing import KafkaBroker, failpoints
from sinks import KafkaSink
from sources import KafkaSource


class Total(KeyedOperator):
    total = ValueState(default=0)

    def process(self, order: Any, ctx: Any) -> Any:
        self.total.value += order["amount"]
        if order["amount"] == 13:
            raise ValueError("nobody buys 13")
        yield {"user": ctx.key, "total": self.total.value}


def priced(order: Any) -> Any:
    return {**order, "amount": 10 // order["count"]}


@pytest.mark.slow
def test_dead_letters_of_steps_come_exactly_once_over_a_crash_and_are_replayed_once(
    kafka: KafkaBroker, spark: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic, dead, out = unique_name("orders"), unique_name("dead"), unique_name("out")
    for name in (topic, dead, out):
        kafka.create_topic(name)
    orders = [{"user": f"u{i % 3}", "count": i % 5, "n": i} for i in range(500)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for order in orders:
        producer.produce(topic, json.dumps(order), order["user"], headers=[("trace", b"\xff\x00")])
    assert producer.flush(60) == 0
    pipeline = Pipeline(
        unique_name("job"),
        checkpoints=CheckpointConfig(tmp_path.as_uri(), interval=0.3),
        restart=RestartStrategy.fixed_delay(attempts=3, delay=0.1),
    )
    source = KafkaSource(kafka.bootstrap_servers, [topic], end="latest", rate_limit=200)
    stream = pipeline.source("in", source).map(priced, id="price", on_error=DeadLetter(dead))
    stream = stream.map(unlucky).key_by("user").process("total", Total(), on_error=DeadLetter(dead))
    stream.sink("out", KafkaSink(kafka.bootstrap_servers, topic=out))
    with failpoints.crash("source.before_snapshot", nth=4) as crash:
        handle = pipeline.start(spark=spark)
        handle.wait(300)
    assert crash.fired
    assert handle.restarts == 1
    no_count = [order for order in orders if order["count"] == 0]
    bad_luck = [order for order in orders if order["count"] and order["n"] % 7 == 0]
    good = [unlucky(priced(order)) for order in orders if order not in no_count and order not in bad_luck]
    totals: Counter[str] = Counter()
    expected = []
    for order in good:
        totals[order["user"]] += order["amount"]
        expected.append((order["user"], totals[order["user"]]))
    assert sorted((one["user"], one["total"]) for one in (r.json() for r in kafka.consume(out))) == sorted(expected)

    letters = kafka.consume(dead)
    by_step: dict[str, list[Any]] = {"price": [], "total": []}
    for letter in letters:
        by_step[dict(letter.headers)["weir.step.id"].decode()].append(letter)
    originals = {record.value: record for record in kafka.consume(topic)}
    assert len(by_step["price"]) == len(no_count)
    for letter in by_step["price"]:
        record, told = originals.pop(letter.value), dict(letter.headers)
        assert (letter.key, letter.headers[0]) == (record.key, ("trace", b"\xff\x00"))
        assert (told["weir.source.topic"], told["weir.source.offset"]) == (topic.encode(), str(record.offset).encode())
        assert (told["weir.error.class"], told["weir.value"]) == (b"ZeroDivisionError", b"source")
        assert b"in priced" in told["weir.error.traceback"]
    assert sorted(json.loads(one.value)["n"] for one in by_step["total"]) == [order["n"] for order in bad_luck]
    assert {dict(one.headers)["weir.value"] for one in by_step["total"]} == {b"json"}

    def weir(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["deadletters", *arguments, "--bootstrap", kafka.bootstrap_servers])
        assert result.exit_code == 0, result.output
        return result.output

    rows = json.loads(weir("list", dead, "--json"))["letters"]
    assert [(row["step"], row["error"], row["letters"], row["replayed"]) for row in rows] == [
        ("price", "ZeroDivisionError", len(no_count), 0),
        ("total", "ValueError", len(bad_luck), 0),
    ]
    first = json.loads(weir("show", dead, "--step", "price").splitlines()[0])
    assert first["told"]["weir.error.reason"] == "integer division or modulo by zero"
    assert weir("replay", dead, "--dry-run", "--step", "price") == f"{len(no_count)} records would be sent to {topic}\n"
    before = len(kafka.consume(topic))
    assert weir("replay", dead, "--step", "price", "--limit", "30") == f"30 records sent to {topic}\n"
    again = weir("replay", dead)
    assert f"{len(no_count) - 30} records sent to {topic}\n" in again
    assert f"{len(bad_luck)} left: the topic of its record isn't known" in again
    assert "nothing to be sent" in weir("replay", dead)
    replayed = sorted(kafka.consume(topic), key=lambda record: record.offset)[before:]
    firsts = {record.value: record for record in kafka.consume(topic) if record.offset < before}
    assert Counter(record.value for record in replayed) == Counter(one.value for one in by_step["price"])
    for record in replayed:
        one = firsts[record.value]
        assert (record.key, record.headers, record.timestamp) == (one.key, one.headers, one.timestamp)
    assert weir("replay", dead, "--to", out, "--error", "ValueError") == f"{len(bad_luck)} records sent to {out}\n"
    assert {row["replayed"] == row["letters"] for row in json.loads(weir("list", dead, "--json"))["letters"]} == {True}


def unlucky(order: Any) -> Any:
    return {**order, "amount": 13} if order["n"] % 7 == 0 else order
