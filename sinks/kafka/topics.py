"""What topics accept, so that a record that Kafka would refuse is refused while it is in progress."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
)

from checkpoint.brokers import REFUSES, is_topic_name, no_topic_name
from checkpoint.outage import Outage
from sinks.kafka.client_errors import is_outage
from sinks.kafka.clients import DEFAULT_MESSAGE_LIMIT, client_config
from sinks.kafka.errors import BrokerUnavailable, TopicRefused

_log = logging.getLogger(f"weir.{__name__}")

LOOKUP_TIMEOUT: Final = 15.0
"""Seconds."""

_TRY_AGAIN: Final = 0.5
_STALL_TIMEOUT: Final = 3.0
_CONFIRMED_AFTER: Final = 1.0
"""Seconds."""
_UNREACHABLE: Final = frozenset(
    {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}
)
_DEFAULT_AFTER_MS: Final = 3_600_000
_NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicLimits:
    name: str
    partitions: int
    max_message_bytes: int
    """Largest batch of records, in bytes; a record travels in a batch of its own if need be."""
    before_ms: int = _NO_LIMIT
    """How far a record's timestamp may lie in the past, ms."""
    after_ms: int = _NO_LIMIT
    """How far a record's timestamp may lie in the future, ms."""
    needs_key: bool = False
    """Compacted topics take no records without key."""


class TopicCatalog:
    """Looks topics up and remembers them. Blocks when it does: for up to `LOOKUP_TIMEOUT`, or for an outage; for one
    thread."""

    def __init__(self, servers: str, config: Mapping[str, Any], outage: Outage | None = None) -> None:
        """`outage`: brokers that are away are waited for by it; `None` = they are an error."""
        self._outage = outage
        self._servers = servers
        self._config = config
        self._known: dict[str, TopicLimits] = {}

    def get(self, topic: str) -> TopicLimits:
        """
        Raises:
            TopicRefused: no such topic, or it can't be written to.
            BrokerUnavailable: nobody could tell.
        """
        return self._known.get(topic) or self.refresh(topic)

    def refresh(self, topic: str) -> TopicLimits:
        """As `get`, but looks again: partitions and limits may have been raised."""
        self._known.pop(topic, None)
        limits = self._await_limits(topic)
        self._known[topic] = limits
        return limits

    def _await_limits(self, topic: str) -> TopicLimits:
        outage = self._outage
        while True:
            began = time.monotonic()
            try:
                limits = self._look_up(topic)
            except (BrokerUnavailable, TopicRefused) as error:
                unavailable = error if isinstance(error, BrokerUnavailable) else None
                if outage is None or not outage.after_look(unavailable, began):
                    raise
                time.sleep(_TRY_AGAIN)
            else:
                if outage is not None:
                    outage.over()
                return limits

    def _look_up(self, topic: str) -> TopicLimits:
        if not topic:
            raise TopicRefused("the topic's name is empty")
        if not is_topic_name(topic):
            raise TopicRefused(no_topic_name(topic))
        errors: list[KafkaError] = []
        settings: dict[str, Any] = {**client_config(self._servers, self._config), "error_cb": errors.append}
        admin = AdminClient(settings)
        try:
            described = admin.describe_topics(
                TopicCollection([topic]), include_authorized_operations=True, request_timeout=LOOKUP_TIMEOUT
            )
            description = described[topic].result()
        except KafkaException as error:
            admin.poll(0)  # hands over what the connections said
            raise topic_error(topic, self._servers, error, errors) from error
        if description.is_internal:
            raise TopicRefused(f"topic {topic!r} is internal to Kafka, which doesn't let it be written to")
        allowed = description.authorized_operations
        if allowed is not None and AclOperation.WRITE not in allowed:
            raise TopicRefused(f"the permission WRITE on topic {topic!r} is missing; grant it to the sink's user")
        return limits_of(topic, len(description.partitions), self._settings(admin, topic))

    def _settings(self, admin: AdminClient, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            entries = admin.describe_configs([resource], request_timeout=LOOKUP_TIMEOUT)[resource].result()
        except KafkaException as error:
            if error.args[0].code() in _UNREACHABLE:
                raise topic_error(topic, self._servers, error) from error
            _log.warning(
                "the settings of topic %r can't be read (%s), so Kafka's defaults are assumed; with the permission "
                "DESCRIBE_CONFIGS records that the topic refuses are found when they are written",
                topic,
                error.args[0].str(),
            )
            return {}
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def refuse_missing(servers: str, config: Mapping[str, Any], sink_id: str, topics: Collection[str]) -> None:
    """For topics that take no records for a while.

    Raises:
        TopicRefused: one has been deleted. Where brokers don't tell, nothing is raised: they may come back.
    """
    missing: set[str] = set(topics)
    for wait in (0.0, _CONFIRMED_AFTER):  # a broker that has just started may not know a topic yet
        time.sleep(wait)
        missing = _missing(servers, config, missing)
        if not missing:
            return
    raise TopicRefused(
        f"sink {sink_id!r}: topic {', '.join(map(repr, sorted(missing)))} doesn't exist at {servers} any more, though "
        "there are records for it. Create it again and start again: what a checkpoint holds for it is written then"
    )


def _missing(servers: str, config: Mapping[str, Any], topics: Collection[str]) -> set[str]:
    admin = AdminClient(client_config(servers, config))
    answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_STALL_TIMEOUT)
    missing = set()
    for topic, answer in answers.items():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                missing.add(topic)
    return missing


def limits_of(topic: str, partitions: int, settings: Mapping[str, str]) -> TopicLimits:
    """What a topic with these settings takes, and Kafka's defaults where one is missing."""
    # Brokers before 3.6 have one limit for both directions.
    both = settings.get("message.timestamp.difference.max.ms")
    before = int(settings.get("message.timestamp.before.max.ms") or both or _NO_LIMIT)
    after = int(settings.get("message.timestamp.after.max.ms") or both or _DEFAULT_AFTER_MS)
    if settings.get("message.timestamp.type") == "LogAppendTime":
        before = after = _NO_LIMIT
    return TopicLimits(
        name=topic,
        partitions=partitions,
        max_message_bytes=int(settings.get("max.message.bytes", DEFAULT_MESSAGE_LIMIT)),
        before_ms=before,
        after_ms=after,
        needs_key="compact" in settings.get("cleanup.policy", ""),
    )


def topic_error(
    topic: str, servers: str, error: KafkaException, said: Sequence[KafkaError] = ()
) -> BrokerUnavailable | TopicRefused:
    """What to raise for it.

    Args:
        said: what the client's error callback was told meanwhile.
    """
    cause: KafkaError = error.args[0]
    refusal = next((one for one in (*said, cause) if one.code() in REFUSES), None)
    if refusal is not None:
        return BrokerUnavailable(
            f"the Kafka brokers at {servers} refuse this client: {refusal.str()}. Check user, password and "
            "certificates in config",
            refused=True,
            credentials=True,
        )
    if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return TopicRefused(f"topic {topic!r} doesn't exist at {servers}; create it")
    if cause.code() == KafkaError.TOPIC_EXCEPTION:
        return TopicRefused(f"{topic!r} is not a valid name of a topic")
    if cause.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return TopicRefused(f"the permission DESCRIBE on topic {topic!r} is missing; grant it to the sink's user")
    if not is_outage(error) and not cause.retriable():
        return BrokerUnavailable(
            f"the Kafka brokers at {servers} don't tell about topic {topic!r}: {cause.str()} ({cause.name()}). Check "
            "the permissions of the sink's user, and the brokers' log",
            refused=True,
        )
    return BrokerUnavailable(
        f"no answer about topic {topic!r} from the Kafka brokers at {servers}: {cause.str()}. "
        "Check that they run, that the address is right, and the security settings in config"
    )
