"""How far a source is behind the ends of its partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # documented

from sources.kafka.options import KafkaOptions, PartitionKey

log = logging.getLogger(f"weir.{__name__}")

_ASK_EVERY_S: Final = 5.0
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Lag:
    """Ends are what the last fetches told. While nothing is fetched (closed, held up) the cluster is asked, every few
    seconds and beside the task thread, which never waits for the answer."""

    def __init__(self, options: KafkaOptions, source_id: str) -> None:
        self._options = options
        self._source_id = source_id
        self._admin: AdminClient | None = None
        self._asked_at = float("-inf")
        self._told: dict[PartitionKey, int] = {}

    def behind(
        self,
        consumer: Consumer,
        positions: Mapping[PartitionKey, int],
        last: Mapping[PartitionKey, int],
        unread: Mapping[PartitionKey, int],
    ) -> dict[PartitionKey, int | None]:
        """Offsets between `positions` and the ends by partition; `None` as long as an end is not known.

        Args:
            last: where partitions are read to, of which not all is read.
            unread: beginnings of partitions that are not read; they count once their end is known.
        """
        lag: dict[PartitionKey, int | None] = {
            key: max(0, self._told.get(key, low) - low) for key, low in unread.items()
        }
        for key, position in positions.items():
            _, fetched = consumer.get_watermark_offsets(TopicPartition(*key), cached=True)
            end = last.get(key, max(fetched, self._told.get(key, -1)))
            lag[key] = None if end < 0 else max(0, end - position)
        return lag

    def ask(self, keys: Iterable[PartitionKey], now: float) -> None:
        """Ask for the ends of partitions, unless that was done a moment ago."""
        request: dict[TopicPartition, OffsetSpec] = {TopicPartition(*key): _LATEST for key in keys}
        if not request or now - self._asked_at < _ASK_EVERY_S:
            return
        self._asked_at = now
        if self._admin is None:
            self._admin = AdminClient(self._options.admin_config())
        for key, future in self._admin.list_offsets(request, request_timeout=_ASK_EVERY_S).items():
            future.add_done_callback(partial(self._on_answer, (key.topic, key.partition)))

    def _on_answer(self, key: PartitionKey, future: Future[Any]) -> None:
        """Called by the client's thread."""
        try:
            self._told[key] = future.result().offset
        except KafkaException as e:
            log.info("source %s: the end of %s[%d] is not known: %s", self._source_id, *key, e.args[0].str())
