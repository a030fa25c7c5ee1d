"""Where a writer's marker is kept: as the committed offset of a group."""

from __future__ import annotations

import time
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
_COORDINATOR_COMES: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""What a broker says that has just started. The client gives up after a few tries, which are over soon at that pace."""
_TRY_AGAIN: Final = 0.1


class HangingTransaction(KafkaException):
    """Kafka counts the marker as one that a transaction may still change, and it has no such transaction."""


class MarkerGroup:
    """Where a writer's marker is: a group of its own, one partition."""

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
        for patience in (timeout, _LOOK_TIMEOUT):
            try:
                return self._committed(patience)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or not self._coordinator_answers():
                    raise
        raise HangingTransaction(KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT, "the marker stays pending"))

    def everywhere(self) -> list[Marker]:
        """The committed markers at whatever topics, without a look at what is pending.

        Raises:
            ForeignMarker: an offset is not Weir's.
            KafkaException: no answer.
        """
        admin = AdminClient(self._config)  # kept until it has answered
        asked = [ConsumerGroupTopicPartitions(self.group)]
        answers = admin.list_consumer_group_offsets(asked, request_timeout=_TIMEOUT)
        offsets = answers[self.group].result().topic_partitions
        return [Marker.from_metadata(self.group, one.offset, one.metadata) for one in offsets if one.offset >= 0]

    def close(self) -> None:
        """May be used again."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _committed(self, timeout: float) -> Marker | None:
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                found = self._connected().committed([TopicPartition(self.topic, 0)], timeout=left)[0]
                if found.error is not None:
                    raise KafkaException(found.error)
            except KafkaException as error:
                self.close()  # one that has lost its coordinator may wait for it for ever
                if error.args[0].code() not in _COORDINATOR_COMES or time.monotonic() >= deadline:
                    raise
                time.sleep(_TRY_AGAIN)
            else:
                return Marker.from_metadata(self.group, found.offset, found.metadata) if found.offset >= 0 else None

    def _coordinator_answers(self) -> bool:
        """Whether it is there. A consumer that waits doesn't tell for what."""
        consumer = self._consumer_with("read_uncommitted")
        try:
            return consumer.committed([TopicPartition(self.topic, 0)], timeout=_LOOK_TIMEOUT)[0].error is None
        except KafkaException:
            return False
        finally:
            consumer.close()

    def _connected(self) -> Consumer:
        if self._consumer is None:
            # Makes the broker answer with stable offsets only, that no pending transaction may still change.
            self._consumer = self._consumer_with("read_committed")
        return self._consumer

    def _consumer_with(self, isolation: str) -> Consumer:
        return Consumer(
            {
                **self._config,
                "group.id": self.group,
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "retry.backoff.ms": _RETRY_MS,
            }
        )

    def offset(self, marker: Marker) -> TopicPartition:
        return TopicPartition(self.topic, 0, marker.checkpoint, metadata=marker.to_metadata())
