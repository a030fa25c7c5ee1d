"""What the clients of a Kafka sink are told."""

from __future__ import annotations

from typing import Any

import pytest

from sinks.kafka.clients import batch_size, client_config, producer_config

LIMIT = 1_048_588
"""Kafka's default of `max.message.bytes`."""


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_producer_neither_doubles_nor_reorders_and_leaves_limits_to_the_topics(delivery: Any) -> None:
    assert producer_config("b:1", {}, delivery, LIMIT) == {
        "bootstrap.servers": "b:1",
        "partitioner": "murmur2_random",
        "retry.backoff.ms": 10,
        "enable.idempotence": True,
        "message.max.bytes": 1_000_000_000,
        "batch.size": 1_000_000,
        "delivery.report.only.error": True,
    }


def test_where_nothing_is_promised_the_client_decides_about_idempotence() -> None:
    assert "enable.idempotence" not in producer_config("b:1", {}, "none", LIMIT)


def test_the_users_settings_win_where_nothing_depends_on_them() -> None:
    mine = {"partitioner": "random", "retry.backoff.ms": 500, "linger.ms": 7, "message.max.bytes": 10}
    config = producer_config("b:1", {**mine, "bootstrap.servers": "other:1"}, "exactly_once", LIMIT)
    assert {name: config[name] for name in mine} == {**mine, "message.max.bytes": 1_000_000_000}
    assert config["bootstrap.servers"] == "b:1"


@pytest.mark.parametrize(
    ("config", "message_limit", "size"),
    [
        ({}, 1_000_512, 1_000_000),
        ({}, 1_000_511, 999_999),
        ({"batch.size": 5_000}, 1_000_512, 5_000),
        ({"batch.size": "5000"}, 1_000_512, 5_000),
        ({"batch.size": 5_000}, 4_512, 4_000),
        ({}, 512, 1),
        ({}, 100, 1),
    ],
)
def test_a_batch_with_what_is_around_it_fits_the_topics_limit(
    config: dict[str, Any], message_limit: int, size: int
) -> None:
    assert batch_size(config, message_limit) == size


def test_a_client_that_looks_things_up_has_the_connection_and_nothing_of_a_producer() -> None:
    config = {"sasl.username": "u", "acks": "all", "linger.ms": 5, "compression.type": "zstd", "log_level": 7}
    assert client_config("b:1", config) == {"bootstrap.servers": "b:1", "sasl.username": "u", "log_level": 7}
    assert client_config("b:1", {})["log_level"] == 0
