"""What the errors of Kafka's client mean for a committer: whether another try helps, and how they are told."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from checkpoint.brokers import REFUSES

_FENCED: Final = frozenset(
    {KafkaError._FATAL, KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)

_HOPELESS: Final = frozenset(
    {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._INVALID_ARG,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.UNSUPPORTED_VERSION,
    }
)
"""What another try doesn't help with."""

_AWAY: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


def is_outage(error: KafkaException) -> bool:
    """Whether it says that brokers are away, or not ready yet: not the client's fault, and over when they are back."""
    return error.args[0].code() in _AWAY


def is_refusal(error: KafkaException) -> bool:
    """Whether it says that the brokers don't let this client in."""
    return error.args[0].code() in REFUSES


def is_fenced(error: KafkaException) -> bool:
    return error.args[0].code() in _FENCED


def is_hopeless(error: KafkaException) -> bool:
    return error.args[0].code() in _HOPELESS


def reason(error: KafkaException) -> str:
    cause = error.args[0]
    return f"{cause.str()} ({cause.name()})"
