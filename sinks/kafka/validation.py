"""Checks against the brokers before a job starts."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from checkpoint.brokers import REFUSES, nobody_listens
from sinks.kafka.clients import DEFAULT_MESSAGE_LIMIT, Delivery, client_config, producer_config
from sinks.kafka.errors import BrokerUnavailable, TopicRefused
from sinks.kafka.topics import LOOKUP_TIMEOUT

_log = logging.getLogger(f"weir.{__name__}")

_LISTENS: Final = 0.6
"""Seconds within which a broker that is just coming up should listen."""
_LOOK: Final = 0.2
"""Seconds between two looks whether the client was refused, which no broker changes its mind about."""


def check_brokers(servers: str, config: Mapping[str, Any], delivery: Delivery) -> None:
    """
    Raises:
        ValueError: librdkafka or the brokers don't take a setting.
        BrokerUnavailable: no broker answers, or they refuse the client.
    """
    settings = producer_config(servers, config, delivery, DEFAULT_MESSAGE_LIMIT)
    if delivery == "exactly_once":
        settings["transactional.id"] = "weir-validate"  # makes librdkafka check more; the id is never initialised
    try:
        Producer({**settings, "log_level": 0})
    except KafkaException as error:
        raise ValueError(f"config is not what librdkafka takes: {error.args[0].str()}") from error
    said: list[KafkaError] = []
    settings = {**client_config(servers, config), "error_cb": said.append}
    admin = AdminClient(settings)
    broker = _any_broker(servers, admin, said)
    if delivery == "exactly_once" and "transaction.timeout.ms" in config:
        timeout_ms, largest = int(config["transaction.timeout.ms"]), _largest_transaction_timeout(admin, broker)
        if largest is not None and timeout_ms > largest:
            raise ValueError(
                f"config sets transaction.timeout.ms={timeout_ms}, but the brokers allow at most {largest} "
                "(transaction.max.timeout.ms). Weir's transactions are short; the default of 60,000 is ample"
            )


def largest_transaction_timeout(servers: str, admin: AdminClient) -> int | None:
    """What the brokers allow, ms; `None` if this user may not know."""
    return _largest_transaction_timeout(admin, _any_broker(servers, admin))


def check_topic(servers: str, config: Mapping[str, Any], topic: str) -> None:
    """
    Raises:
        TopicRefused: it doesn't exist.
    """
    admin = AdminClient(client_config(servers, config))
    if topic not in admin.list_topics(timeout=LOOKUP_TIMEOUT).topics:
        raise TopicRefused(f"marker_topic {topic!r} doesn't exist at {servers}; create it")


def _any_broker(servers: str, admin: AdminClient, said: Sequence[KafkaError] = ()) -> int:
    """The id of one.

    Args:
        said: what the client's error callback was told, and is being told.

    Raises:
        BrokerUnavailable: none answers, or they refuse the client.
    """
    begun = time.monotonic()
    answer = admin.describe_cluster(request_timeout=LOOKUP_TIMEOUT)
    try:
        while True:
            try:
                id: int = answer.result(_LOOK).nodes[0].id
                break
            except TimeoutError:
                admin.poll(0)
                refusal = next((error for error in said if error.code() in REFUSES), None)
                if refusal is not None:
                    raise BrokerUnavailable(
                        f"the Kafka brokers at {servers} refuse this client: {refusal.str()}. Check the security "
                        "settings in config: user, password, mechanism, certificates"
                    ) from None
                if time.monotonic() - begun > _LISTENS and nobody_listens(said):
                    raise BrokerUnavailable(
                        f"no Kafka broker listens at {servers}: {said[0].str()}. Check that it runs, and that the "
                        "address is right"
                    ) from None
    except KafkaException as error:
        raise BrokerUnavailable(
            f"no Kafka broker at {servers} answers: {error.args[0].str()}. Check that it runs, that the address is "
            "right, and the security settings in config"
        ) from error
    return id


def _largest_transaction_timeout(admin: AdminClient, broker: int) -> int | None:
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        entries = admin.describe_configs([resource], request_timeout=LOOKUP_TIMEOUT)[resource].result()
    except KafkaException as error:
        _log.info("the broker's settings can't be read (%s), so transaction.max.timeout.ms isn't known", error.args[0])
        return None
    largest = entries.get("transaction.max.timeout.ms")
    return None if largest is None or largest.value is None else int(largest.value)
