"""A sink that writes to Kafka at once, without brokers: what its producers are told, when brokers are waited for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka_sink_helpers import NoMetrics, batch

from checkpoint.outage import Outage
from checkpoint.waiting import Waiting
from sinks import WriterContext
from sinks.kafka import writers
from sinks.kafka.clients import Delivery
from sinks.kafka.errors import BrokerUnavailable
from sinks.kafka.rows import KafkaRows
from sinks.kafka.writers import DirectWriter


class Sender:
    """Takes rows, and delivers them when a test says so."""

    def __init__(
        self, log: list[Any], config: Mapping[str, Any], on_stall: Callable[[Collection[str]], None] | None = None
    ) -> None:
        self.config = config
        self.on_stall = on_stall
        self.delivered = 0
        self.trouble: KafkaException | None = None
        self._log = log

    def send(self, rows: KafkaRows) -> None:
        self._log.append("send")
        self.check()

    def push(self) -> None:
        self._log.append("push")

    def flush(self, timeout: float) -> None:
        self._log.append(("flush", timeout))

    def check(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    def stall(self) -> None:
        """Nothing is delivered for a second."""
        assert self.on_stall is not None
        self.on_stall({"t"})


class Writing:
    """The clock only moves when a test says so."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        delivery: Delivery = "at_least_once",
        timeout: float | None = None,
        **config: Any,
    ) -> None:
        self.log: list[Any] = []
        """What its senders were asked for, and which topics were looked for."""
        self.senders: list[Sender] = []
        self.now = 1_000.0
        self.limit = 1_000
        self.waiting = Waiting(lambda: self.now)
        monkeypatch.setattr(writers, "Sender", self._sender)
        monkeypatch.setattr(writers, "refuse_missing", lambda *where: self.log.append(sorted(where[-1])))
        ctx = WriterContext("job", "out", 0, 1, None, NoMetrics(), self.waiting)  # type: ignore[arg-type]
        outage = Outage(self.waiting, "the brokers", timeout, lambda: self.now)
        encoder: Any = self
        self.writer = DirectWriter(encoder, ctx, "b:1", config, delivery, outage)

    def encode(self, batch: Any) -> KafkaRows:
        return KafkaRows("t", None, [b"x"] * len(batch), message_limit=self.limit)

    def _sender(self, sink_id: str, config: Mapping[str, Any], most: int, on_stall: Any) -> Sender:
        self.senders.append(Sender(self.log, config, on_stall))
        return self.senders[-1]

    def write(self) -> None:
        self.writer.write_batch(batch([{"x": 1}]))

    def waits(self) -> list[tuple[str, str]]:
        return [(what, kind) for what, _, kind in self.waiting.report()]


@pytest.mark.parametrize(
    ("timeout", "patience_ms", "flush"), [(None, 0, float("inf")), (0.5, 1_000, 300.5), (30.0, 30_000, 330.0)]
)
def test_records_wait_as_long_as_an_outage_may_last(
    monkeypatch: pytest.MonkeyPatch, timeout: float | None, patience_ms: int, flush: float
) -> None:
    one = Writing(monkeypatch, timeout=timeout)
    one.write()
    assert one.senders[0].config["message.timeout.ms"] == patience_ms
    one.writer.prepare_commit(1)
    assert one.log == ["send", "push", ("flush", flush)]


def test_a_timeout_that_the_user_sets_under_either_name_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("message.timeout.ms", "delivery.timeout.ms"):
        one = Writing(monkeypatch, timeout=30.0, **{name: 7})
        one.write()
        config = one.senders[0].config
        assert {each: config[each] for each in config if each.endswith("y.timeout.ms") or "message.time" in each} == {
            name: 7
        }


def test_without_a_promise_a_barrier_only_asks_whether_something_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Writing(monkeypatch, delivery="none")
    assert one.writer.prepare_commit(1) == []
    one.write()
    assert one.writer.prepare_commit(2) == []
    assert one.log == ["send"]
    one.senders[0].trouble = KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, "too late"))
    with pytest.raises(BrokerUnavailable, match="sink 'out': Kafka didn't take the records: too late"):
        one.writer.prepare_commit(3)


def test_batches_get_smaller_with_the_topics_met_and_never_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Writing(monkeypatch)
    for limit in (1_000, 5_000, 1_000, 900, 950):
        one.limit = limit
        one.write()
    assert [each.config["batch.size"] for each in one.senders] == [1_000 - 512, 900 - 512]
    assert one.log == ["send", "send", "send", ("flush", float("inf")), "send", "send"]


def test_brokers_that_deliver_nothing_are_waited_for_until_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Writing(monkeypatch)
    one.write()
    (sender,) = one.senders
    sender.stall()
    one.now += 5.0
    sender.stall()
    assert one.log == ["send", ["t"], ["t"]]
    assert one.waits() == [("the brokers", "brokers")]
    one.write()
    assert one.waits() == [("the brokers", "brokers")]
    sender.delivered = 1
    one.write()
    assert one.waits() == []
    sender.stall()
    one.now += 5.0
    sender.stall()
    assert one.waits() != []
    one.writer.prepare_commit(1)
    assert one.waits() == []


def test_what_a_new_producer_delivers_ends_an_outage_too(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Writing(monkeypatch)
    one.write()
    one.senders[0].delivered = 100
    one.senders[0].stall()
    one.limit = 900
    one.write()
    one.senders[1].stall()
    one.now += 5.0
    one.senders[1].stall()
    assert one.waits() != []
    one.senders[1].delivered = 1
    one.write()
    assert one.waits() == []


def test_an_outage_that_lasts_too_long_fails_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Writing(monkeypatch, timeout=10.0)
    one.write()
    (sender,) = one.senders
    sender.stall()
    one.now += 9.9
    sender.stall()
    one.now += 0.1
    with pytest.raises(KafkaException, match="lasts too long"):
        sender.stall()


def test_brokers_that_refuse_the_client_are_believed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Writing(monkeypatch)
    one.write()
    (sender,) = one.senders
    tell = sender.config["error_cb"]
    tell(KafkaError(KafkaError._TRANSPORT, "down"))
    sender.stall()
    tell(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    one.now += 5.0
    sender.stall()
    assert [kind for _, kind in one.waits()] == ["credentials"]
    one.now += 10.0
    with pytest.raises(KafkaException, match="wrong password"):
        sender.stall()


def test_a_refusal_is_forgotten_once_something_was_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Writing(monkeypatch)
    one.write()
    (sender,) = one.senders
    sender.config["error_cb"](KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    sender.stall()
    sender.delivered = 1
    one.write()
    for _ in range(5):
        one.now += 5.0
        sender.stall()
    assert [kind for _, kind in one.waits()] == ["brokers"]
