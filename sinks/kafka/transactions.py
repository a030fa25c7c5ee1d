"""One transactional producer: the I/O of a committer, each step once."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sinks.kafka.clients import REFUSING, producer_config
from sinks.kafka.rows import Rows
from sinks.kafka.sender import Sender
from sinks.kafka.topics import refuse_missing

_log = logging.getLogger(f"weir.{__name__}")

STEP_TIMEOUT: Final = 30.0
"""Seconds for one request to the transaction coordinator. A producer of which one takes longer is discarded."""
_OFFSETS_TIMEOUT: Final = 10.0
"""Seconds for the marker. The client keeps asking the group coordinator that it knows, even if another took over, so
waiting is less use than a new producer, which looks for it."""
_ABORT_TIMEOUT: Final = 5.0
_GRACE: Final = 2.0
_SLOW_COMMIT: Final = 5.0
"""A commit that took longer was perhaps sent twice, so the producer isn't used again."""
_DELIVERY_TIMEOUT: Final = 60.0
_MAX_OUTSTANDING: Final = 16 * 1024 * 1024
_ABORTED_KEY: Final = b"weir: aborted"
"""Of tombstones that nobody is to see; compacted topics take no record without a key."""
_PROBED: Final = 500
"""Rows that are sent one by one before the next look whether one was refused."""

_LOG_LEVEL: Final = 6
"""Syslog's "info": that a connection was lost."""
_LOST: Final = ("Disconnected", "failed:", "timed out", "Closing connection")
_KNOWN_BROKER: Final = re.compile(r"/\d+: ")
"""How the log names a broker that the client was told of, unlike one that it was only given the address of."""

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
"""What trying again doesn't mend."""


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


class _Connection:
    """What a client says about its connections to brokers. Passes its log on to Python's.

    Only the log tells of a connection that was lost and is back at once. The transaction coordinator may still hold
    requests of it, and an old one that ends a transaction would end the next. Any broker may have been the marker
    group's coordinator, which the client goes on to wait for when another has taken over.
    """

    def __init__(self) -> None:
        self.lost: str | None = None
        self.refused: KafkaError | None = None
        """What a broker said that doesn't let this client in: requests only time out then."""

    def log(self, level: int, message: str, *args: object) -> None:
        """Called by the client, as a logger's."""
        text = message % args if args else message
        if any(part in text for part in _LOST) and ("TxnCoordinator" in text or _KNOWN_BROKER.search(text)):
            self.lost = text.rpartition("]: ")[2]
        # What the sink can't mend it raises, so that this is for looking into trouble.
        _log.log(min(level, logging.INFO), "%s", text)

    def error(self, error: KafkaError) -> None:
        if error.code() in REFUSING:
            self.refused = error
        if error.code() == KafkaError._ALL_BROKERS_DOWN or "TxnCoordinator" in error.str():
            self.lost = error.str()


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
        self._connection = _Connection()
        settings = {
            **producer_config(servers, config, "exactly_once", message_limit),
            "transactional.id": transactional_id,
            "error_cb": self._connection.error,
            "logger": self._connection,
            "log_level": max(_LOG_LEVEL, int(config.get("log_level", 0))),
            "log.connection.close": True,
        }
        self._sender = Sender(sink_id, settings, _MAX_OUTSTANDING, partial(refuse_missing, servers, config, sink_id))
        self._open = False
        self._stuck = False
        self._slow = False

    def init(self) -> None:
        """Fence whoever had the id before, and settle what it left open.

        Raises:
            KafkaException
        """
        self._within(STEP_TIMEOUT, self._sender.producer.init_transactions)
        self._sender.poll(0)
        self._connection.lost = None  # being found and connected to isn't a loss

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
        if self._connection.lost is not None:
            _log.info("%s: the producer is replaced: %s", self._id, self._connection.lost)
        return self._connection.lost is None and not self._slow

    def transact(
        self,
        pieces: Iterable[Rows],
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

    def probe(self, pieces: Iterable[Rows]) -> None:
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
        """† End what hangs (see hanging.py): the end of a later transaction of the same id counts for it, too, in the
        group and in each partition that it touches.

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
        if self._stuck:
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
        if not self._stuck:
            producer.purge(blocking=False)

    def _check_connection(self) -> None:
        self._sender.poll(0)
        if self._connection.lost is not None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, self._connection.lost))

    def _within(self, timeout: float, call: Callable[[float], object]) -> None:
        """Calls the client, and gives it up if it doesn't keep to its own timeout: after a broker's restart
        send_offsets_to_transaction was seen to wait for ever."""
        outcome: list[BaseException | None] = []

        def run() -> None:
            try:
                call(timeout)
                outcome.append(None)
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=run, name=f"kafka-{self._id}", daemon=True)
        thread.start()
        thread.join(timeout + _GRACE)
        if outcome and outcome[0] is not None:
            raise self._with_refusal(outcome[0])
        if not outcome:
            self._stuck = True
            late = KafkaError(KafkaError._TIMED_OUT, f"the client didn't return within {timeout:.0f} s")
            raise self._with_refusal(KafkaException(late))

    def _with_refusal(self, error: BaseException) -> BaseException:
        """The refusal that is behind a request without an answer, or the error itself."""
        if not isinstance(error, KafkaException) or not is_outage(error):
            return error
        with suppress(KafkaException):
            self._sender.poll(0)  # hands over what the connections said
        refused = self._connection.refused
        return error if refused is None else KafkaException(refused)


def is_outage(error: KafkaException) -> bool:
    """Whether it says that brokers are away, or not ready yet: not the client's fault, and over when they are back."""
    return error.args[0].code() in _AWAY


def is_refusal(error: KafkaException) -> bool:
    """Whether it says that the brokers don't let this client in."""
    return error.args[0].code() in REFUSING


def is_fenced(error: KafkaException) -> bool:
    return error.args[0].code() in _FENCED


def is_hopeless(error: KafkaException) -> bool:
    return error.args[0].code() in _HOPELESS


def reason(error: KafkaException) -> str:
    cause = error.args[0]
    return f"{cause.str()} ({cause.name()})"
