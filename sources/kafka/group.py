"""Offsets committed to the consumer group, for tools that show its lag. The truth is in the checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from checkpoint.brokers import REFUSES
from sources.kafka.client_errors import passes
from sources.kafka.errors import KafkaUnavailable
from sources.kafka.options import KafkaOptions, PartitionKey

log = logging.getLogger(f"weir.{__name__}")

_WARN_EVERY_S: Final = 10.0
"""While the group can't be reached every checkpoint fails to commit, perhaps many a second."""


def committed_offsets(
    consumer: Consumer, options: KafkaOptions, keys: Sequence[PartitionKey], timeout: float
) -> Mapping[PartitionKey, int | None]:
    """What the group has committed; `None` for a partition without. Waits up to `timeout` seconds.

    Raises:
        KafkaUnavailable: no answer, or it refused.
    """
    try:
        found = consumer.committed([TopicPartition(*key) for key in keys], timeout=timeout) if keys else []
    except KafkaException as e:
        raise KafkaUnavailable(
            f"cannot look up the committed offsets of the group {options.group_id} at {options.servers}: "
            f"{e.args[0].str()}. Check the broker, and the permission to read the group",
            refused=_refuses(e.args[0]),
            credentials=e.args[0].code() in REFUSES,
        ) from e
    for partition in found:
        if partition.error is not None:
            raise KafkaUnavailable(
                f"cannot look up the committed offset of {partition.topic}[{partition.partition}] for the group "
                f"{options.group_id}: {partition.error.str()}",
                refused=_refuses(partition.error),
                credentials=partition.error.code() in REFUSES,
            )
    return {(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in found}


def _refuses(error: KafkaError) -> bool:
    return not passes(error) or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


class GroupOffsets:
    """Commits the offsets of completed checkpoints, in their order. Never waits, and never fails the job."""

    def __init__(self, source_id: str) -> None:
        self._source_id = source_id
        self._taken: dict[int, Mapping[PartitionKey, int]] = {}
        """Offsets of the checkpoints that are not resolved yet."""
        self._warned_at = float("-inf")

    def remember(self, checkpoint_id: int, offsets: Mapping[PartitionKey, int]) -> None:
        self._taken[checkpoint_id] = offsets

    def forget(self, checkpoint_id: int) -> None:
        self._taken.pop(checkpoint_id, None)

    def commit(self, checkpoint_id: int, consumer: Consumer) -> None:
        """Commit a checkpoint's offsets; older ones that complete later, or again, change nothing any more."""
        offsets = self._taken.pop(checkpoint_id, None)
        if offsets is None:
            return
        self._taken = {number: taken for number, taken in self._taken.items() if number > checkpoint_id}
        if not offsets:
            return
        try:
            consumer.commit(
                offsets=[TopicPartition(*key, offset) for key, offset in offsets.items()], asynchronous=True
            )
        except KafkaException as e:
            self._warn(e.args[0])

    def on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """The consumer's callback with the outcome."""
        failed = error or next((p.error for p in partitions if p.error is not None), None)
        if failed is not None:
            self._warn(failed)

    def _warn(self, error: KafkaError) -> None:
        if (now := time.monotonic()) - self._warned_at < _WARN_EVERY_S:
            return
        self._warned_at = now
        log.warning(
            "source %s: the group's offsets could not be committed (%s): its lag is shown wrong until the next "
            "checkpoint; the job itself is not affected",
            self._source_id,
            error.str(),
        )
