"""What a client's log and errors tell of its connections."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from sinks.kafka.connection import ConnectionLog

COORDINATOR = "[thrd:TxnCoordinator]: TxnCoordinator: "
BROKER = "[thrd:127.0.0.1:9092/2]: 127.0.0.1:9092/2: "
BOOTSTRAP = "[thrd:127.0.0.1:9092/bootstrap]: 127.0.0.1:9092/bootstrap: "


@pytest.mark.parametrize("whose", [COORDINATOR, BROKER])
@pytest.mark.parametrize(
    "what", ["Disconnected (after 3 ms)", "Connect failed: refused", "3 requests timed out", "Closing connection"]
)
def test_a_connection_that_a_broker_had_is_lost(whose: str, what: str) -> None:
    connection = ConnectionLog()
    connection.log(6, "%s %s", whose, what)
    assert connection.lost is not None
    assert what in connection.lost
    assert "thrd" not in connection.lost


@pytest.mark.parametrize("line", [f"{BOOTSTRAP}Connect failed: refused", f"{BROKER}Connected", "100% done"])
def test_all_else_is_no_loss(line: str) -> None:
    connection = ConnectionLog()
    connection.log(6, line)
    assert connection.lost is None


@pytest.mark.parametrize(
    ("code", "text", "lost", "refused"),
    [
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", True, False),
        (KafkaError._TRANSPORT, "TxnCoordinator: Disconnected", True, False),
        (KafkaError._TRANSPORT, "127.0.0.1:9092/bootstrap: Connect failed", False, False),
        (KafkaError._AUTHENTICATION, "SASL authentication error", False, True),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "no such user", False, True),
    ],
)
def test_a_clients_errors_tell_of_losses_and_refusals(code: int, text: str, lost: bool, refused: bool) -> None:
    connection = ConnectionLog()
    connection.error(KafkaError(code, text))
    assert (connection.lost is not None, connection.refused is not None) == (lost, refused)
