"""When a start may say at once that nobody listens, rather than wait for an answer."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from checkpoint.brokers import nobody_listens

REFUSED = KafkaError(KafkaError._TRANSPORT, "a:9/bootstrap: Connect to ipv4#127.0.0.1:9 failed: Connection refused")
NO_HOST = KafkaError(KafkaError._RESOLVE, "b:9/bootstrap: Failed to resolve 'b:9'")
TIMED_OUT = KafkaError(KafkaError._TRANSPORT, "c:9/bootstrap: Connection setup timed out in state CONNECT")
CUT = KafkaError(KafkaError._TRANSPORT, "d:9/bootstrap: Disconnected while requesting ApiVersion")
PASSWORD = KafkaError(KafkaError._AUTHENTICATION, "e:9/bootstrap: SASL authentication error")
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([REFUSED, ALL_DOWN], True),
        ([NO_HOST, ALL_DOWN], True),
        ([REFUSED, NO_HOST, ALL_DOWN, REFUSED], True),
        ([], False),
        ([REFUSED], False),  # the others haven't been tried yet
        ([REFUSED, TIMED_OUT, ALL_DOWN], False),
        ([CUT, ALL_DOWN], False),
        ([PASSWORD, ALL_DOWN], False),
    ],
)
def test_only_refused_connections_are_definite(said: list[KafkaError], expected: bool) -> None:
    assert nobody_listens(said) is expected
