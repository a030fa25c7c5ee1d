"""What Kafka must permit the user of an exactly-once sink, asked so that nothing changes and nobody is fenced.

A transactional id: it is initialised with a timeout longer than a broker allows. The broker looks at the permission
first and at the timeout next, and then refuses. A marker's group and topic: an offset is committed to a partition that
no topic has; the broker looks at the permissions first, and has nowhere to write it to.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from sinks.kafka.clients import DEFAULT_MESSAGE_LIMIT, client_config, producer_config
from sinks.kafka.errors import BrokerUnavailable, MissingPermission
from sinks.kafka.validation import largest_transaction_timeout

_log = logging.getLogger(f"weir.{__name__}")

TIMEOUT: Final = 15.0
"""Seconds for brokers that don't answer."""
COORDINATOR_TIMEOUT: Final = 300.0
"""Seconds for brokers that answer, but have no coordinator for the name yet: a new cluster first makes the topics in
which its coordinators write, and one that has restarted reads them."""

_NEVER: Final = (
    "A cluster with fewer brokers than its settings transaction.state.log.replication.factor and "
    "offsets.topic.replication.factor never has one"
)
_TRY_AGAIN: Final = 0.2
_AT_ONCE: Final = 8
"""Names that are asked about at the same time."""
_LONGEST_TIMEOUT_MS: Final = 2**31 - 1
_NO_PARTITION: Final = 2**31 - 1

_TRANSACTIONAL_ID: Final = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_GROUP: Final = KafkaError.GROUP_AUTHORIZATION_FAILED
_TOPIC: Final = KafkaError.TOPIC_AUTHORIZATION_FAILED
REFUSALS: Final = frozenset({_TRANSACTIONAL_ID, _GROUP, _TOPIC, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
"""Errors that say that a permission is missing."""


def check_writers(servers: str, config: Mapping[str, Any], writers: Iterable[str], marker_topic: str) -> None:
    """That each of these writers can commit its marker, as far as Kafka tells.

    Args:
        writers: their names, those of transactional ids and marker groups.

    Raises:
        MissingPermission: it may not; names what is to be granted.
        BrokerUnavailable: no answer within `TIMEOUT`, or no coordinator within `COORDINATOR_TIMEOUT`.
    """
    admin = AdminClient(client_config(servers, config))
    asks_ids = largest_transaction_timeout(servers, admin) != _LONGEST_TIMEOUT_MS

    def ask(question: Callable[[], KafkaError | None], writer: str) -> None:
        _ask(question, servers, admin, writer, marker_topic, COORDINATOR_TIMEOUT)

    def check(writer: str) -> None:
        if asks_ids:
            ask(lambda: _transactional_id(servers, config, writer), writer)
        ask(lambda: _marker_group(admin, writer, marker_topic), writer)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="kafka-permissions") as pool:
        for _ in pool.map(check, writers):
            pass


def check_group(servers: str, config: Mapping[str, Any], writer: str, marker_topic: str) -> None:
    """That the writer's marker can be committed to its group.

    Raises:
        MissingPermission: it may not; names what is to be granted.
        BrokerUnavailable: no answer within `TIMEOUT`.
    """
    admin = AdminClient(client_config(servers, config))
    _ask(lambda: _marker_group(admin, writer, marker_topic), servers, admin, writer, marker_topic, TIMEOUT)


def to_grant(code: int, writer: str, marker_topic: str) -> str:
    """What to grant for an error of `REFUSALS`, as part of a sentence."""
    if code == _TRANSACTIONAL_ID:
        return f"grant the sink's user WRITE on transactional id {writer!r}"
    if code == _GROUP:
        return f"grant the sink's user READ on group {writer!r}, where its marker is"
    if code == _TOPIC:
        return (
            f"grant the sink's user READ on topic {marker_topic!r}, at which its marker is kept as a committed offset, "
            "and WRITE on the topics it writes to"
        )
    return "grant the sink's user IDEMPOTENT_WRITE on the cluster"


class _Silent:
    def log(self, level: int, message: str, *args: object) -> None:
        """Called by the client, as a logger's."""


def _transactional_id(servers: str, config: Mapping[str, Any], writer: str) -> KafkaError | None:
    settings = {
        **producer_config(servers, config, "exactly_once", DEFAULT_MESSAGE_LIMIT),
        "transactional.id": writer,
        "transaction.timeout.ms": _LONGEST_TIMEOUT_MS,
        "logger": _Silent(),  # else it writes to stderr that the timeout is refused
    }
    try:
        producer = Producer(settings)
        # One that isn't connected yet when it looks for the coordinator looks again half a second later.
        producer.list_topics(timeout=TIMEOUT)
        producer.init_transactions(TIMEOUT)
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        return None if cause.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT else cause
    return None


def _marker_group(admin: AdminClient, writer: str, marker_topic: str) -> KafkaError | None:
    nowhere = ConsumerGroupTopicPartitions(writer, [TopicPartition(marker_topic, _NO_PARTITION, 0)])
    try:
        answer = admin.alter_consumer_group_offsets([nowhere], request_timeout=TIMEOUT)[writer].result()
    except KafkaException as error:
        return error.args[0]  # type: ignore[no-any-return]
    cause: KafkaError | None = answer.topic_partitions[0].error
    return None if cause is None or cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART else cause


def _ask(
    question: Callable[[], KafkaError | None],
    servers: str,
    admin: AdminClient,
    writer: str,
    marker_topic: str,
    patience: float,
) -> None:
    """Again while the answer is neither yes nor no: a coordinator may be starting.

    Args:
        patience: seconds for brokers that answer.
    """
    began = time.monotonic()
    told = False
    while (cause := question()) is not None:
        if cause.code() in REFUSALS:
            advice = to_grant(cause.code(), writer, marker_topic)
            raise MissingPermission(f"a permission is missing at {servers} ({cause.str()}): {advice}")
        waited = time.monotonic() - began
        if waited >= TIMEOUT:
            if not _answer(admin):
                raise BrokerUnavailable(
                    f"the Kafka brokers at {servers} don't tell whether {writer!r} may be used: {cause.str()}. Check "
                    "that they run and can be reached, and the security settings in config"
                )
            if waited >= patience:
                raise BrokerUnavailable(
                    f"the Kafka brokers at {servers} answer, but have no coordinator for {writer!r} after "
                    f"{waited:.0f} s: {cause.str()}. {_NEVER}; else see the brokers' logs"
                )
            if not told:
                _log.warning(
                    "waiting for the Kafka brokers at %s to have a coordinator for %r (%s), for up to %.0f s. %s",
                    servers,
                    writer,
                    cause.str(),
                    patience,
                    _NEVER,
                )
                told = True
        time.sleep(_TRY_AGAIN)


def _answer(admin: AdminClient) -> bool:
    try:
        admin.list_topics(timeout=TIMEOUT)
    except KafkaException:
        return False
    return True
