"""Which errors of the client pass by themselves, and how often they are told."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from sources.kafka.client_errors import ErrorLog, advice, client_log, passes


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KafkaError(KafkaError._TRANSPORT), True),
        (KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), True),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), False),
        (KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), False),
        (KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, retriable=True), True),
        (KafkaError(KafkaError._TRANSPORT, fatal=True), False),
        (KafkaError(KafkaError._FATAL, fatal=True, retriable=True), False),
    ],
)
def test_what_the_client_gets_over_passes_unless_it_is_fatal(error: KafkaError, expected: bool) -> None:
    assert passes(error) is expected


def test_an_error_comes_with_what_to_do() -> None:
    assert "READ permission" in advice(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert "may be restarted" in advice(KafkaError(KafkaError._FAIL))


def test_each_kind_of_error_is_told_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    errors = ErrorLog("in")
    with caplog.at_level(logging.WARNING):
        for now in (100.0, 109.75, 110.0, 119.0):
            errors.warn(KafkaError(KafkaError._TRANSPORT), "b:1", now)
        errors.warn(KafkaError(KafkaError._RESOLVE), "b:1", 119.0)
    assert len(caplog.records) == 3
    assert all(record.getMessage().startswith("source in: b:1: ") for record in caplog.records)


def test_of_the_clients_own_lines_those_of_failed_connections_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for line in ("FAIL [thrd]: refused", "ERROR [thrd]: 1/1 brokers are down", "CONFWARN: odd", "told an ERROR "):
            client_log.warning(line)
    assert [record.getMessage() for record in caplog.records] == ["CONFWARN: odd", "told an ERROR "]
