"""The options of a Kafka sink, without brokers."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from sinks import KafkaSink
from sinks.sink import WriterRestore


def sink(**options: Any) -> KafkaSink:
    return KafkaSink("localhost:1", **{"topic": "out", **options})


def test_options_that_are_not_given_have_the_values_that_help_tells() -> None:
    made = sink()
    assert (made.delivery, made.on_marker_lost, made.config, made.outage_timeout) == ("exactly_once", "fail", {}, None)
    assert made.max_transaction_bytes == 64 * 1024 * 1024
    assert made.transactional_id_prefix is None
    assert made.needs_checkpoints
    records = made._records
    assert (records.value_format, records.key_format, records.message_limit) == ("json", None, None)
    assert (records.key, records.headers, records.timestamp, records.partitioner) == (None, None, None, None)


@pytest.mark.parametrize(
    ("options", "marker_topic"),
    [
        ({}, "out"),
        ({"topic": lambda record: "out"}, "__consumer_offsets"),
        ({"marker_topic": "markers"}, "markers"),
        ({"topic": lambda record: "out", "marker_topic": "markers"}, "markers"),
    ],
)
def test_the_marker_is_kept_at_the_topic_unless_a_function_says_where_records_go(
    options: dict[str, Any], marker_topic: str
) -> None:
    assert sink(**options).marker_topic == marker_topic


def test_the_least_values_are_taken_as_they_are() -> None:
    assert sink(max_transaction_bytes=1).max_transaction_bytes == 1
    assert sink(outage_timeout=0.1).outage_timeout == 0.1
    assert sink(outage_timeout=timedelta(minutes=2)).outage_timeout == 120.0
    assert sink(config={"message.max.bytes": "2000"})._records.message_limit == 2000
    with pytest.raises(ValueError, match=r"outage_timeout must be at least 0\.1 s"):
        sink(outage_timeout=0.09)


@pytest.mark.parametrize("delivery", ["at_least_once", "none"])
def test_a_sink_that_writes_at_once_needs_no_checkpoints_commits_nothing_and_owns_no_names(delivery: Any) -> None:
    made = sink(delivery=delivery)
    assert not made.needs_checkpoints
    assert made.exclusive_names("job", "out") == ()
    assert made.uncommitted("job", "out", 0, {"any": "state"}, []) == []
    made.validate_as("job", "out", 2)  # asks no broker
    made.check_restore(WriterRestore("job", "out", 0, None, 3, {"any": "state"}, [], False, False))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ({"enable.idempotence": False}, "enable.idempotence=False"),
        ({"enable.idempotence": "false"}, "enable.idempotence='false'"),
        ({"acks": 1}, "acks=1"),
        ({"request.required.acks": "0"}, "request.required.acks='0'"),
    ],
)
def test_settings_that_could_lose_or_double_records_are_refused_unless_nothing_is_promised(
    config: dict[str, Any], refused: str
) -> None:
    for delivery in ("exactly_once", "at_least_once"):
        with pytest.raises(ValueError, match=re.escape(f"config may not set {refused}")):
            sink(config=config, delivery=delivery)
    assert sink(config=config, delivery="none").config == config


@pytest.mark.parametrize(
    "config",
    [{"enable.idempotence": "True"}, {"enable.idempotence": 1}, {"acks": "ALL"}, {"request.required.acks": -1}],
)
def test_what_the_promise_needs_may_be_written_in_any_way(config: dict[str, Any]) -> None:
    assert sink(config=config).config == config
