"""Settings of the clients that a Kafka sink uses: which are Weir's, and which go to which client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

Delivery = Literal["exactly_once", "at_least_once", "none"]

OWNED: Final[Mapping[str, str]] = {
    "bootstrap.servers": "it is the first argument, servers",
    "metadata.broker.list": "it is the first argument, servers",
    "transactional.id": "it is made of transactional_id_prefix, the sink's id and the subtask",
    "delivery.report.only.error": "Weir handles the delivery reports",
    "on_delivery": "Weir handles the delivery reports",
    "dr_cb": "Weir handles the delivery reports",
    "dr_msg_cb": "Weir handles the delivery reports",
    "error_cb": "Weir decides by the client's errors when a producer must be replaced",
    "log_cb": "Weir decides by the client's log when a producer must be replaced",
    "logger": "Weir decides by the client's log when a producer must be replaced",
    "log.connection.close": "Weir decides by the client's log when a producer must be replaced",
}
"""Settings of librdkafka that a Kafka sink must set itself, with the reason."""

DEFAULT_MESSAGE_LIMIT: Final = 1_048_588
"""Kafka's default of `max.message.bytes`, for whoever knows of no topic (yet)."""

LARGEST_MESSAGE: Final = 1_000_000_000
"""librdkafka's largest `message.max.bytes`: records are checked against the topic's limit, not the client's."""

_BATCH_SIZE: Final = 1_000_000
_BATCH_MARGIN: Final = 512

_PRODUCER_ONLY: Final = frozenset(
    {
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.timeout.ms",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "linger.ms",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "request.required.acks",
        "request.timeout.ms",
        "retries",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
    }
)


def client_config(servers: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of clients that look things up: connection and security as the producer's."""
    return {
        "bootstrap.servers": servers,
        "log_level": 0,  # what goes wrong is raised; a client that is closed right after a look-up only adds noise
        **{k: v for k, v in config.items() if k not in _PRODUCER_ONLY},
    }


def batch_size(config: Mapping[str, Any], message_limit: int) -> int:
    """Bytes of a produce batch that a topic with this `max.message.bytes` takes (a broker's limit is for batches)."""
    return max(1, min(int(config.get("batch.size", _BATCH_SIZE)), message_limit - _BATCH_MARGIN))


def producer_config(servers: str, config: Mapping[str, Any], delivery: Delivery, message_limit: int) -> dict[str, Any]:
    """Settings of a producer.

    Args:
        message_limit: the smallest `max.message.bytes` of the topics it will write to.
    """
    defaults: dict[str, Any] = {
        # The partition of a key is the one that Kafka's own clients choose.
        "partitioner": "murmur2_random",
        # A transaction that follows another at once is told to try again while the first is being finished.
        "retry.backoff.ms": 10,
    }
    if delivery != "none":
        defaults["enable.idempotence"] = True
    return {
        **defaults,
        **config,
        "bootstrap.servers": servers,
        "message.max.bytes": LARGEST_MESSAGE,
        "batch.size": batch_size(config, message_limit),
        "delivery.report.only.error": True,
    }
