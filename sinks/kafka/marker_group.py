"""Where an owner's marker is kept: as the committed offset of a group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from sinks.kafka.clients import client_config
from sinks.kafka.marker import Marker

_TIMEOUT: Final = 30.0
"""Seconds in which a coordinator has to be there."""
_SETTLED_WITHIN: Final = 5.0
"""Seconds in which the coordinator that has acknowledged the end of a transaction tells the partitions, usually."""
_LOOK_AGAIN: Final = 0.002
_ANSWER_TIMEOUT: Final = 10.0
_TRY_AGAIN: Final = 0.1
_COORDINATOR_COMES: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


class HangingTransaction(KafkaException):
    """Kafka counts the marker as one that a transaction may still change, and it has no such transaction."""


class MarkerGroup:
    """Where an owner's marker is: a group of its own, one partition."""

    def __init__(self, servers: str, config: Mapping[str, Any], group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self._config = client_config(servers, config)
        self._admin: AdminClient | None = None  # one for all questions; it must be there when an answer comes

    @cached_property
    def metadata(self) -> bytes:
        """The group's, for `send_offsets_to_transaction`."""
        consumer = Consumer({**self._config, "group.id": self.group, "enable.auto.commit": False})
        try:
            metadata: bytes = consumer.consumer_group_metadata()
            return metadata
        finally:
            consumer.close()

    def read(self, settled_within: float = _SETTLED_WITHIN) -> Marker | None:
        """The committed marker, once no pending transaction may change it any more.

        Args:
            settled_within: seconds to wait for that.

        Raises:
            ForeignMarker: the offset is not Weir's.
            HangingTransaction: it still may.
            KafkaException: no answer.
        """
        deadline = time.monotonic() + settled_within
        while True:
            found = self._ask([TopicPartition(self.topic, 0)])[0]
            if found.error is None:
                return Marker.from_metadata(self.group, found.offset, found.metadata) if found.offset >= 0 else None
            if found.error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
                raise KafkaException(found.error)
            if time.monotonic() >= deadline:
                raise HangingTransaction(found.error)
            time.sleep(_LOOK_AGAIN)

    def everywhere(self) -> list[Marker]:
        """The committed markers at whatever topics, without a look at what is pending.

        Raises:
            ForeignMarker: an offset is not Weir's.
            KafkaException: no answer.
        """
        offsets = self._ask(None, require_stable=False)
        return [Marker.from_metadata(self.group, one.offset, one.metadata) for one in offsets if one.offset >= 0]

    def _ask(self, partitions: list[TopicPartition] | None, require_stable: bool = True) -> list[TopicPartition]:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            if self._admin is None:
                self._admin = AdminClient(self._config)
            asked = [ConsumerGroupTopicPartitions(self.group, partitions)]
            answers = self._admin.list_consumer_group_offsets(
                asked, require_stable=require_stable, request_timeout=_ANSWER_TIMEOUT
            )
            try:
                found: list[TopicPartition] = answers[self.group].result().topic_partitions
            except KafkaException as error:
                self._admin = None  # one that has lost its broker may wait for it for ever
                if error.args[0].code() not in _COORDINATOR_COMES or time.monotonic() >= deadline:
                    raise
                time.sleep(_TRY_AGAIN)
            else:
                return found

    def offset(self, marker: Marker) -> TopicPartition:
        return TopicPartition(self.topic, 0, marker.checkpoint, metadata=marker.to_metadata())
