"""One transactional producer: the I/O of a committer, each step once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sinks.kafka.bounded_calls import BoundedCalls
from sinks.kafka.client_errors import is_outage, reason
from sinks.kafka.clients import producer_config
from sinks.kafka.connection import ConnectionLog
from sinks.kafka.rows import KafkaRows
from sinks.kafka.sender import Sender
from sinks.kafka.topics import refuse_missing

_log = logging.getLogger(f"weir.{__name__}")

STEP_TIMEOUT: Final = 30.0
"""Seconds for one request to the transaction coordinator. A producer of which one takes longer is discarded."""
_OFFSETS_TIMEOUT: Final = 10.0
"""Seconds for the marker. The client keeps asking the group coordinator that it knows, even if another took over, so
waiting is less use than a new producer, which looks for it."""
_CONNECT_TIMEOUT: Final = 1.0
_ABORT_TIMEOUT: Final = 5.0
_SLOW_COMMIT: Final = 5.0
"""A commit that took longer was perhaps sent twice, so the producer isn't used again."""
_DELIVERY_TIMEOUT: Final = 60.0
_MAX_OUTSTANDING: Final = 1024 * 1024
"""Bytes of content on their way: as many as brokers acknowledge in 10 ms at 100 MB/s. Small records take three times
that in the client's memory."""
_ABORTED_KEY: Final = b"weir: aborted"
"""The key of tombstones that nobody is to see; compacted topics take no record without a key."""
_PROBED: Final = 500
"""Rows that are sent one by one before the next look whether one was refused."""

_LOG_LEVEL: Final = 6
"""Syslog's "info": that a connection was lost."""


class TransactionalProducer:
    """Lives until the first trouble: afterwards nobody knows which of its requests the broker still holds."""

    def __init__(
        self, servers: str, config: Mapping[str, Any], transactional_id: str, sink_id: str, message_limit: int
    ) -> None:
        """
        Args:
            message_limit: the smallest `max.message.bytes` of the topics it will write to.
        """
        self.message_limit = message_limit
        self._id = transactional_id
        self.connection = ConnectionLog()
        settings = {
            **producer_config(servers, config, "exactly_once", message_limit),
            "transactional.id": transactional_id,
            "error_cb": self.connection.error,
            "logger": self.connection,
            "log_level": max(_LOG_LEVEL, int(config.get("log_level", 0))),
            "log.connection.close": True,
        }
        self._sender = Sender(sink_id, settings, _MAX_OUTSTANDING, partial(refuse_missing, servers, config, sink_id))
        self._open = False
        self.calls = BoundedCalls(f"kafka-{transactional_id}")
        self._slow = False

    def init(self) -> None:
        """Fence whoever had the id before, and end the transaction that it left open.

        Raises:
            KafkaException
        """
        self._within(STEP_TIMEOUT, self._init)
        self._sender.poll(0)
        self.connection.lost = None  # being found and connected to isn't a loss

    def _init(self, timeout: float) -> None:
        # One that isn't connected yet when it looks for the coordinator looks again half a second later.
        with suppress(KafkaException):  # the next call says what is wrong with the brokers
            self._sender.producer.list_topics(timeout=_CONNECT_TIMEOUT)
        self._sender.producer.init_transactions(timeout - _CONNECT_TIMEOUT)

    @property
    def in_transaction(self) -> bool:
        """Whether one is open, or may be."""
        return self._open

    def healthy(self) -> bool:
        """Whether it may be used for another transaction.

        Raises:
            KafkaException: it has ended.
        """
        self._sender.poll(0)
        if self.connection.lost is not None:
            _log.info("%s: the producer is replaced: %s", self._id, self.connection.lost)
        return self.connection.lost is None and not self._slow

    def transact(
        self,
        pieces: Iterable[KafkaRows],
        offset: TopicPartition,
        group_metadata: bytes,
        *,
        mid_produce: Callable[[], None],
        after_produce: Callable[[], None],
        before_commit: Callable[[], None],
    ) -> None:
        """One transaction: rows and marker. If it raises, the outcome is open; if not, Kafka has promised to commit.

        Args:
            mid_produce: called once, when part of the rows are produced.
            after_produce: called when the rows are acknowledged, before the marker is sent.
            before_commit: called when everything is in the transaction; raises to keep it from being committed.

        Raises:
            RecordRefused: Kafka refused a record for good.
            TopicRefused: a record's topic has been deleted.
            KafkaException: anything else that it or a client reported.
        """
        sender, producer = self._sender, self._sender.producer
        producer.begin_transaction()
        self._open = True
        halfway: Callable[[], None] | None = mid_produce
        for rows in pieces:
            if halfway is not None:
                middle = len(rows) // 2
                sender.send(rows.slice(0, middle))
                halfway()
                halfway, rows = None, rows.slice(middle)
            sender.send(rows)
        # Flushed apart from the commit, so that a record that was refused can be named.
        sender.flush(_DELIVERY_TIMEOUT)
        after_produce()
        self._check_connection()
        self._within(_OFFSETS_TIMEOUT, lambda t: producer.send_offsets_to_transaction([offset], group_metadata, t))
        before_commit()
        self._check_connection()
        started = time.monotonic()
        self._within(STEP_TIMEOUT, producer.commit_transaction)
        self._slow = time.monotonic() - started > _SLOW_COMMIT
        self._open = False

    def probe(self, pieces: Iterable[KafkaRows]) -> None:
        """Send rows in a transaction that is left open, to be aborted by `discard`.

        Raises:
            RecordRefused, KafkaException: as `transact`.
        """
        self._sender.producer.begin_transaction()
        self._open = True
        for rows in pieces:
            for start in range(0, len(rows), _PROBED):
                self._sender.send(rows.slice(start, start + _PROBED))
                self._sender.flush(_DELIVERY_TIMEOUT)

    def abort_hanging(
        self, partitions: Iterable[TopicPartition], offset: TopicPartition, group_metadata: bytes
    ) -> None:
        """End a transaction that hangs (see hanging.py): the end of a later one of the same id counts for it, too, in
        the group and in each partition that the later one touches.

        Args:
            partitions: that have open records.
            offset: any one at the marker's place.

        Raises:
            KafkaException
        """
        sender, producer = self._sender, self._sender.producer
        producer.begin_transaction()
        self._open = True
        for partition in partitions:
            producer.produce(partition.topic, None, _ABORTED_KEY, partition=partition.partition)
        sender.flush(_DELIVERY_TIMEOUT)
        self._within(_OFFSETS_TIMEOUT, lambda t: producer.send_offsets_to_transaction([offset], group_metadata, t))
        self._within(STEP_TIMEOUT, producer.abort_transaction)
        self._open = False

    def discard(self, abort: bool) -> None:
        """Never to be used again.

        Args:
            abort: end an open transaction now, since no successor may come soon to do it: readers wait for it.
        """
        producer = self._sender.producer
        if self.calls.stuck:
            return
        if abort and self._open:
            try:
                self._within(_ABORT_TIMEOUT, producer.abort_transaction)
            except KafkaException as error:
                _log.warning(
                    "%s: a transaction could not be aborted (%s); the next producer with this id does, or the broker "
                    "after transaction.timeout.ms",
                    self._id,
                    reason(error),
                )
        if not self.calls.stuck:
            producer.purge(blocking=False)

    def _check_connection(self) -> None:
        self._sender.poll(0)
        if self.connection.lost is not None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, self.connection.lost))

    def _within(self, timeout: float, call: Callable[[float], object]) -> None:
        try:
            self.calls.run(timeout, call)
        except KafkaException as error:
            cause = self._with_refusal(error)
            if cause is error:
                raise
            raise cause from error

    def _with_refusal(self, error: KafkaException) -> KafkaException:
        """The refusal that is behind a request without an answer, or the error itself."""
        if not is_outage(error):
            return error
        with suppress(KafkaException):
            self._sender.poll(0)  # hands over what the connections said
        refused = self.connection.refused
        return error if refused is None else KafkaException(refused)
