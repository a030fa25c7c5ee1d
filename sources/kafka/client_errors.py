"""Which of the Kafka client's errors pass by themselves, and which stop the source."""

from __future__ import annotations

import logging
from typing import Final

from confluent_kafka import KafkaError

from checkpoint.brokers import REFUSED, REFUSES

log = logging.getLogger(f"weir.{__name__}")
client_log: Final = logging.getLogger("weir.sources.kafka.client")
"""Where the client's own log lines go, but for failed connections, of which its error events tell (`ErrorLog`)."""
client_log.addFilter(lambda record: not record.getMessage().startswith(("FAIL ", "ERROR ")))

_LOG_EVERY_S: Final = 10.0

_TRANSIENT: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
        KafkaError._NODE_UPDATE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        # Reading needs no group: it only costs the offsets that lag tools look at.
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)

_ADVICE: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Give this client's principal the READ permission for the topic",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "The topic or partition is gone; create it again, or take it out of the source",
    KafkaError._UNKNOWN_TOPIC: "The topic was deleted; create it again, or take it out of the source",
    KafkaError._UNKNOWN_PARTITION: "The partition is gone; was the topic created again with fewer partitions?",
    **dict.fromkeys(REFUSES, REFUSED),
}


def passes(error: KafkaError) -> bool:
    """Whether the client gets over this error by itself."""
    return not error.fatal() and (error.code() in _TRANSIENT or error.retriable())


def advice(error: KafkaError) -> str:
    return _ADVICE.get(error.code(), "The job may be restarted from its last checkpoint once this is repaired")


class ErrorLog:
    """Logs transient errors, each kind at most every ten seconds: a broker that is down says so many times a second."""

    def __init__(self, source_id: str) -> None:
        self._source_id = source_id
        self._logged: dict[int, float] = {}

    def warn(self, error: KafkaError, where: str, now: float) -> None:
        if now - self._logged.get(error.code(), float("-inf")) >= _LOG_EVERY_S:
            self._logged[error.code()] = now
            log.warning("source %s: %s: %s; trying again", self._source_id, where, error.str())
