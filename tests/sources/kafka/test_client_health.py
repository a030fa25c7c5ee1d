"""What a reader's client says of its brokers, without any: outages are waited for, refusals and fatal errors raised."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError

from checkpoint.outage import Refusals
from checkpoint.waiting import Waiting
from sources import KafkaSource, SourceContext
from sources.kafka.client_errors import ErrorLog
from sources.kafka.client_health import ClientHealth
from sources.kafka.errors import KafkaUnavailable

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


class NoMetrics:
    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: float | str | None) -> None: ...


def health(**options: Any) -> ClientHealth:
    source = KafkaSource("b:1", topics=["t"], **options)
    return ClientHealth(source.options, SourceContext("p", "in", 0, 1, NoMetrics()), ErrorLog("in"))


def test_only_brokers_that_are_all_down_are_an_outage() -> None:
    found = health()
    found.on_error(KafkaError(KafkaError._TRANSPORT))
    assert not found.outage.lasts
    found.on_error(DOWN)
    assert found.outage.lasts


def test_a_fatal_error_ends_the_client_unless_it_is_being_closed() -> None:
    found = health()
    with pytest.raises(RuntimeError, match="source in: the Kafka client failed: "):
        found.on_error(KafkaError(KafkaError._FATAL, fatal=True))
    found.closing = True
    found.on_error(KafkaError(KafkaError._FATAL, fatal=True))
    found.on_error(DOWN)
    assert not found.outage.lasts


def test_a_refusal_is_no_failure_at_once() -> None:
    found = health()
    found.on_error(KafkaError(KafkaError._AUTHENTICATION))
    assert not found.outage.lasts


def test_refusals_that_have_not_come_for_a_minute_are_no_longer_told() -> None:
    found, now = health(), 0.0
    waiting = Waiting(lambda: now)
    found._refusals = Refusals(waiting, "brokers", lambda: now)
    found.on_error(KafkaError(KafkaError._AUTHENTICATION))
    now = 3.0
    found.on_error(KafkaError(KafkaError._AUTHENTICATION))
    now = 63.0
    found.check(now)
    assert waiting
    now = 63.25
    found.check(now)
    assert not waiting


def test_an_outage_that_has_lasted_too_long_is_raised_and_begins_anew() -> None:
    found = health(outage_timeout=0.1)
    found.check(0.0)  # there is none
    found.outage.away(time.monotonic() - 0.2)
    with pytest.raises(
        KafkaUnavailable, match=r"no Kafka broker at b:1 could be reached for 0\.1 s \(outage_timeout\)"
    ):
        found.check(0.0)
    assert not found.outage.lasts


def test_an_outage_is_looked_at_once_a_second() -> None:
    found = health(outage_timeout=1000.0)
    found.outage.away()
    found.check(50.0)
    found.outage.timeout = 0.0
    found.check(50.75)
    with pytest.raises(KafkaUnavailable):
        found.check(51.0)
