"""A cluster that answers, but has no coordinator for the names of an exactly-once sink: never, or not yet."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from deadlines import eventually

from pipeline.testing import KafkaBroker
from sinks import KafkaSink
from sinks.kafka import permissions
from sinks.kafka.errors import BrokerUnavailable


@pytest.fixture(scope="module")
def lone_broker() -> Iterator[KafkaBroker]:
    """It would need a second one for the topic in which its transaction coordinators write."""
    with KafkaBroker.start(kind="native", transaction_state_log_replication_factor=2) as broker:
        yield broker


def test_a_coordinator_that_comes_late_or_never(
    lone_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "orders"
    lone_broker.create_topic(topic)
    sink = KafkaSink(lone_broker.bootstrap_servers, topic)
    monkeypatch.setattr(permissions, "TIMEOUT", 1.0)
    monkeypatch.setattr(permissions, "COORDINATOR_TIMEOUT", 3.0)
    with pytest.raises(
        BrokerUnavailable,
        match=r"have no coordinator for 'job-out-0' after .* s: .*state\.log\.replication\.factor",
    ):
        sink.validate_as("job", "out", 1)
    assert "to have a coordinator for 'job-out-0'" in caplog.text

    monkeypatch.undo()
    monkeypatch.setattr(permissions, "TIMEOUT", 1.0)
    caplog.clear()
    with ThreadPoolExecutor(1) as pool:
        validated = pool.submit(sink.validate_as, "job", "out", 1)
        eventually(lambda: validated.done() or "to have a coordinator" in caplog.text)
        admin = AdminClient({"bootstrap.servers": lone_broker.bootstrap_servers})
        admin.create_topics([NewTopic("__transaction_state", 5, 1)])["__transaction_state"].result(60)
        validated.result(240)
