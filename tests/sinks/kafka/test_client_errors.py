"""What the errors of Kafka's client mean for a committer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinks.kafka.client_errors import is_fenced, is_hopeless, is_outage, is_refusal, reason

KINDS: tuple[Callable[[KafkaException], bool], ...] = (is_outage, is_refusal, is_fenced, is_hopeless)


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        (KafkaError._TRANSPORT, {is_outage}),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, {is_outage}),
        (KafkaError._AUTHENTICATION, {is_refusal, is_hopeless}),
        (KafkaError.SASL_AUTHENTICATION_FAILED, {is_refusal, is_hopeless}),
        (KafkaError._SSL, {is_refusal}),
        (KafkaError.PRODUCER_FENCED, {is_fenced}),
        (KafkaError.INVALID_PRODUCER_EPOCH, {is_fenced}),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, {is_hopeless}),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, {is_hopeless}),
        (KafkaError.CONCURRENT_TRANSACTIONS, set()),
    ],
)
def test_what_an_error_means(code: int, kinds: set[Callable[[KafkaException], bool]]) -> None:
    error = KafkaException(KafkaError(code))
    assert {kind for kind in KINDS if kind(error)} == kinds


def test_an_error_is_told_with_its_name() -> None:
    assert reason(KafkaException(KafkaError(KafkaError._TRANSPORT, "gone"))) == "gone (_TRANSPORT)"
