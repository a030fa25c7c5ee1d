"""The partitions that are assigned to a reader's consumer: from where they are read, and to where."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from checkpoint import failpoints
from sources.kafka.client_errors import passes
from sources.kafka.cluster import DEFAULT_TIMEOUT
from sources.kafka.messages import key_of, topic_partitions
from sources.kafka.opening import START_TIMEOUT_S
from sources.kafka.options import KafkaOptions, PartitionKey
from sources.kafka.splits import Split, check_position
from sources.source import SourceContext

log = logging.getLogger(f"weir.{__name__}")

_LOOK_AGAIN_S: Final = 1.0


class AssignedPartitions:
    """A reader's splits, and which of them its consumer reads. For one thread."""

    def __init__(self, consumer: Consumer, options: KafkaOptions, ctx: SourceContext, splits: Sequence[Split]) -> None:
        self._consumer = consumer
        self._options = options
        self._ctx = ctx
        self.splits: dict[PartitionKey, Split] = {split.key: split for split in splits}
        """All of this subtask."""
        self.reading: dict[PartitionKey, Split] = {}
        """Those that are assigned to the consumer: they have not ended."""
        self.paused = False
        """Whether the consumer is paused, which a short closing does not do."""
        self._ends: dict[PartitionKey, int] = {}
        """Where the client has last found the ends of partitions."""
        self._look_again: dict[PartitionKey, float] = {}
        """Partitions whose position was out of range when no broker could say what their range is."""

    def pause(self) -> None:
        """Have the client throw away what it has fetched ahead, and fetch nothing."""
        self._consumer.pause(topic_partitions(self.reading))
        self.paused = True

    def resume(self) -> None:
        self._consumer.resume(topic_partitions(self.reading))
        self.paused = False

    def learn_leaders(self, topics: Collection[str]) -> None:
        """A client that is assigned partitions of a topic it knows nothing of asks for their leaders only when it looks
        after its topics the next time, which is once a second."""
        for topic in topics:
            try:
                self._consumer.list_topics(topic, timeout=START_TIMEOUT_S)
            except KafkaException as e:
                log.info("source %s: %s: its leaders are looked up later: %s", self._ctx.source_id, topic, e)

    def assign(self, splits: Sequence[Split]) -> None:
        """Begin to read splits, each at its position."""
        if not splits:
            return
        failpoints.hit("source.before_assign", subtask=self._ctx.subtask)
        self._consumer.incremental_assign([TopicPartition(s.topic, s.partition, s.position) for s in splits])
        failpoints.hit("source.after_assign", subtask=self._ctx.subtask)
        self.reading.update({split.key: split for split in splits})
        for split in splits:
            self._ends.pop(split.key, None)
        if self.paused:
            self._consumer.pause(topic_partitions(self.reading))

    def positions(self) -> dict[PartitionKey, int]:
        """The next offset of every assigned partition; a consumer knows none before the first message."""
        known = self._consumer.position(topic_partitions(self.reading))
        return {
            (p.topic, p.partition): p.offset if p.offset >= 0 else self.reading[p.topic, p.partition].position
            for p in known
        }

    def found_end(self, key: PartitionKey, offset: int) -> None:
        """The client has come to the end of a partition, as far as it may read: an open transaction ends it, too."""
        self._ends[key] = offset

    def behind(self) -> list[PartitionKey]:
        """The partitions that the client hasn't come to the end of, or that have got longer since. Offsets alone don't
        tell: the last ones may be those of markers and aborted records."""
        return [
            key
            for key, position in self.positions().items()
            if max(position, self._written(key)) > self._ends.get(key, -1)
        ]

    def _written(self, key: PartitionKey) -> int:
        """The end of a partition by the last fetch, open transactions included; negative before the first one."""
        return self._consumer.get_watermark_offsets(TopicPartition(*key), cached=True)[1]

    def cut_at_ends(self, messages: list[Message], events: list[Message]) -> list[Message]:
        """End the splits whose position reached their end, and drop what was polled from beyond it."""
        positions = self.positions()
        for event in events:
            # Where the last records were compacted away or aborted, no message brings the position to the end.
            error, key = event.error(), key_of(event)
            if error is not None and error.code() == KafkaError._PARTITION_EOF and key in positions:
                positions[key] = max(positions[key], event.offset() or 0)
        beyond = set()
        for key, split in list(self.reading.items()):
            if split.end is not None and positions[key] >= split.end:
                if positions[key] > split.end:
                    beyond.add(key)
                self.finish(split)
        if not beyond:
            return messages
        return [
            m for m in messages if (key := key_of(m)) not in beyond or (m.offset() or 0) < (self.splits[key].end or 0)
        ]

    def finish(self, split: Split) -> None:
        """A split has been read to its end."""
        failpoints.hit("source.partition_ended", subtask=self._ctx.subtask)
        split.ended = True
        split.position = split.end or 0
        self._consumer.incremental_unassign(topic_partitions([split.key]))
        del self.reading[split.key]

    def find_position(self, split: Split) -> None:
        """Go on where `on_data_loss` says: the position of a split is not in its log.

        Raises:
            DataLoss: by `on_data_loss`.
            KafkaException: the brokers refuse to say what the log has.
        """
        split.position = self.positions()[split.key]
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*split.key), timeout=DEFAULT_TIMEOUT)
        except KafkaException as e:
            if not passes(e.args[0]):
                raise
            self._look_again[split.key] = time.monotonic() + _LOOK_AGAIN_S
            return
        self._look_again.pop(split.key, None)
        warning = check_position(split, low, high, "the next offset to read", self._options.on_data_loss)
        if warning is not None:
            log.warning("source %s: %s", self._ctx.source_id, warning)
        if split.end is not None and split.position >= split.end:
            self.finish(split)
            return
        self._consumer.incremental_unassign(topic_partitions([split.key]))
        self.assign([split])

    def find_positions_again(self, now: float) -> None:
        """Try again with those splits for which no broker could say what the log has. Raises as `find_position`."""
        for key, due in list(self._look_again.items()):
            split = self.reading.get(key)
            if split is None:
                del self._look_again[key]
            elif now >= due:
                self.find_position(split)
