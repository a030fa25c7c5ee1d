"""What a dead letter says that comes behind a fatal error of its producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sources import DeadLetter, KafkaSource, SourceContext
from sources.kafka import dead_letters
from sources.kafka.letters import Letter

LETTER = Letter("orders", 0, 3, None, None, b"{broken", (), "no JSON", "ValueError")


class NoMetrics:
    def count(self, name: str, amount: int = 1) -> None: ...

    def gauge(self, name: str, value: object) -> None: ...


class Dead:
    """A producer that may not get an id: each call says only that there was a fatal error, but what it tells of
    errors by `poll`, or `poll` itself, says which."""

    raises = False

    def __init__(self, config: dict[str, Any], logger: Any) -> None:
        self._tell: Callable[[KafkaError], None] = config["error_cb"]

    def produce(self, *_: Any, **options: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "Local: Fatal error"))

    def poll(self, timeout: float) -> None:
        refused = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Failed to acquire idempotence PID", fatal=True)
        if self.raises:
            raise KafkaException(refused)
        self._tell(refused)


@pytest.mark.parametrize("raises", [False, True])
def test_it_says_what_was_refused_and_what_to_grant(monkeypatch: pytest.MonkeyPatch, raises: bool) -> None:
    monkeypatch.setattr(dead_letters, "Producer", Dead)
    monkeypatch.setattr(Dead, "raises", raises)
    options = KafkaSource("b:1", topics=["orders"], on_bad_record=DeadLetter("dead")).options
    letters = dead_letters.DeadLetters(options, SourceContext("p", "in", 0, 1, NoMetrics()))
    letters.take_over([LETTER])
    with pytest.raises(RuntimeError, match=r"to the topic dead: .*idempotence PID.* the WRITE permission"):
        letters.serve()
    assert letters.pending == [LETTER]
