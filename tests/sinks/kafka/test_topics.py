"""What a topic takes, by its settings; whom a look-up waits for, and for how long."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from checkpoint.outage import REFUSAL_S, Outage
from checkpoint.waiting import Waiting
from sinks.kafka import topics
from sinks.kafka.errors import BrokerUnavailable, TopicRefused
from sinks.kafka.topics import TopicCatalog, TopicLimits, limits_of, topic_error

HOUR_MS = 3_600_000
EVER = 2**63 - 1
BOTH = {"message.timestamp.difference.max.ms": "5"}


@pytest.mark.parametrize(
    ("settings", "before_ms", "after_ms"),
    [
        ({}, EVER, HOUR_MS),
        ({"message.timestamp.before.max.ms": "7"}, 7, HOUR_MS),
        ({"message.timestamp.after.max.ms": "7"}, EVER, 7),
        (BOTH, 5, 5),
        ({**BOTH, "message.timestamp.before.max.ms": "7", "message.timestamp.after.max.ms": "8"}, 7, 8),
        ({**BOTH, "message.timestamp.type": "LogAppendTime"}, EVER, EVER),
        ({**BOTH, "message.timestamp.type": "CreateTime"}, 5, 5),
    ],
)
def test_times_may_lie_as_far_off_as_the_newest_settings_say(
    settings: dict[str, str], before_ms: int, after_ms: int
) -> None:
    assert limits_of("t", 3, settings) == TopicLimits("t", 3, 1_048_588, before_ms, after_ms)


@pytest.mark.parametrize(
    ("policy", "needs_key"), [("delete", False), ("compact", True), ("compact,delete", True), ("", False)]
)
def test_compacted_topics_need_keys(policy: str, needs_key: bool) -> None:
    limits = limits_of("t", 1, {"cleanup.policy": policy, "max.message.bytes": "900"})
    assert (limits.needs_key, limits.max_message_bytes) == (needs_key, 900)


@pytest.mark.parametrize(
    ("code", "refused", "credentials"),
    [
        (KafkaError.SASL_AUTHENTICATION_FAILED, True, True),
        (KafkaError._SSL, True, True),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, True, False),
        (KafkaError.UNSUPPORTED_VERSION, True, False),
        (KafkaError._TRANSPORT, False, False),
        (KafkaError.LEADER_NOT_AVAILABLE, False, False),
    ],
)
def test_a_refusal_is_told_from_one_of_credentials_and_from_an_outage(
    code: int, refused: bool, credentials: bool
) -> None:
    error = topic_error("t", "kafka:9092", KafkaException(KafkaError(code)))
    assert isinstance(error, BrokerUnavailable)
    assert (error.refused, error.credentials) == (refused, credentials)


def test_what_connections_were_told_of_credentials_counts_before_a_request_that_timed_out() -> None:
    timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    error = topic_error("t", "kafka:9092", timed_out, [KafkaError(KafkaError._AUTHENTICATION)])
    assert isinstance(error, BrokerUnavailable)
    assert error.credentials


class Lookup:
    """Fails with these errors, one a second, until there are no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
        self.now = 0.0
        self.errors = list(errors)
        self.waiting = Waiting(lambda: self.now)
        self.told: set[str] = set()
        monkeypatch.setattr(topics, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=lambda seconds: None))
        monkeypatch.setattr(TopicCatalog, "_look_up", lambda catalog, topic: self._look_up())

    def _look_up(self) -> TopicLimits:
        self.told.update(kind for _, _, kind in self.waiting.report())
        self.now += 1.0
        if self.errors:
            raise self.errors.pop(0)
        return limits_of("t", 1, {})

    def run(self) -> TopicLimits:
        outage = Outage(self.waiting, "the brokers", None, lambda: self.now)
        try:
            return TopicCatalog("kafka:9092", {}, outage).get("t")
        finally:
            assert self.waiting.report() == []


@pytest.mark.parametrize(("credentials", "kind"), [(True, "credentials"), (False, "brokers")])
def test_only_what_is_wrong_with_credentials_is_told_to_be_and_a_refusal_counts_in_the_end(
    credentials: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = Lookup(monkeypatch, *[BrokerUnavailable("no", True, credentials)] * 100)
    with pytest.raises(BrokerUnavailable, match="no"):
        lookup.run()
    assert (lookup.told, lookup.now) == ({kind}, REFUSAL_S + 1)


def test_brokers_that_are_away_are_waited_for_and_may_not_know_a_topic_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookup = Lookup(monkeypatch, *[BrokerUnavailable("away")] * 100, *[TopicRefused("unknown")] * 3)
    assert lookup.run().name == "t"
    assert lookup.told == {"brokers"}


def test_a_topic_that_does_not_come_back_after_an_outage_and_one_that_was_never_there_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for away in (5, 0):
        lookup = Lookup(monkeypatch, *[BrokerUnavailable("away")] * away, *[TopicRefused("unknown")] * 100)
        with pytest.raises(TopicRefused, match="unknown"):
            lookup.run()
        assert lookup.now == (away + REFUSAL_S + 1 if away else 1)
