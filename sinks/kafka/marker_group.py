"""Where an owner's marker is kept: as the committed offset of a group."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from sinks.kafka.clients import client_config
from sinks.kafka.marker import Marker

_TIMEOUT: Final = 10.0
"""Seconds in which a coordinator has to be there, and to have told the group's partition how a transaction ended."""
_LOOK_TIMEOUT: Final = 5.0
_RETRY_MS: Final = 10
"""Right after a commit the group's partition is mostly being told, which takes a few milliseconds."""


class HangingTransaction(KafkaException):
    """Kafka counts the marker as one that a transaction may still change, and it has no such transaction."""


class MarkerGroup:
    """Where an owner's marker is: a group of its own, one partition."""

    def __init__(self, servers: str, config: Mapping[str, Any], group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self._config = client_config(servers, config)
        self._consumer: Consumer | None = None

    @cached_property
    def metadata(self) -> bytes:
        """The group's, for `send_offsets_to_transaction`."""
        metadata: bytes = self._connected().consumer_group_metadata()
        return metadata

    def read(self, timeout: float = _TIMEOUT) -> Marker | None:
        """The committed marker, once no pending transaction may change it any more.

        Args:
            timeout: seconds to wait for that.

        Raises:
            ForeignMarker: the offset is not Weir's.
            HangingTransaction: it still may.
            KafkaException: no answer.
        """
        try:
            found = self._connected().committed([TopicPartition(self.topic, 0)], timeout=timeout)[0]
            if found.error is not None:
                raise KafkaException(found.error)
        except KafkaException as error:
            self.close()  # one that has lost its coordinator may wait for it for ever
            if error.args[0].code() == KafkaError._TIMED_OUT and (cause := self._unstable()) is not None:
                raise HangingTransaction(cause) from error
            raise
        return Marker.from_metadata(self.group, found.offset, found.metadata) if found.offset >= 0 else None

    def everywhere(self) -> list[Marker]:
        """The committed markers at whatever topics, without a look at what is pending.

        Raises:
            ForeignMarker: an offset is not Weir's.
            KafkaException: no answer.
        """
        offsets = self._ask(None, require_stable=False)
        return [Marker.from_metadata(self.group, one.offset, one.metadata) for one in offsets if one.offset >= 0]

    def close(self) -> None:
        """May be used again."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _connected(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    **self._config,
                    "group.id": self.group,
                    "enable.auto.commit": False,
                    # Makes the broker answer with stable offsets only, that no pending transaction may still change.
                    "isolation.level": "read_committed",
                    "retry.backoff.ms": _RETRY_MS,
                }
            )
        return self._consumer

    def _unstable(self) -> KafkaError | None:
        """What a consumer hears and doesn't pass on."""
        try:
            error: KafkaError | None = self._ask([TopicPartition(self.topic, 0)], require_stable=True)[0].error
        except KafkaException:
            return None
        return error if error is not None and error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT else None

    def _ask(self, partitions: list[TopicPartition] | None, require_stable: bool) -> list[TopicPartition]:
        admin = AdminClient(self._config)  # kept until it has answered
        asked = [ConsumerGroupTopicPartitions(self.group, partitions)]
        answers = admin.list_consumer_group_offsets(asked, require_stable=require_stable, request_timeout=_LOOK_TIMEOUT)
        found: list[TopicPartition] = answers[self.group].result().topic_partitions
        return found

    def offset(self, marker: Marker) -> TopicPartition:
        return TopicPartition(self.topic, 0, marker.checkpoint, metadata=marker.to_metadata())
