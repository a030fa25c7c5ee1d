"""Handing rows to a librdkafka producer: in order, bounded in bytes, a full queue is backpressure."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from checkpoint.counted import counted
from sinks.kafka.errors import RecordRefused, RefusedRecord
from sinks.kafka.rows import KafkaRows

REFUSED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.POLICY_VIOLATION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""Delivery errors that another try doesn't mend."""

_SECONDARY: Final = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._INVALID_DIFFERENT_RECORD}
)
"""Errors of records that failed because of another one."""

_CHUNK: Final = 1_000
_LOOK: Final = 0.2
"""Seconds between two looks whether a record has failed while others are being delivered."""
_STALLED: Final = 1.0
"""Seconds without a delivery after which it is asked what is wrong."""
_WAIT: Final = 0.01
"""Seconds between two looks at a full queue: the client tells of no delivery that went well."""


class _Deliveries:
    """Remembers the error that matters. Apart from the sender, so that no cycle keeps a discarded producer alive."""

    def __init__(self) -> None:
        self.failure: RefusedRecord | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._matters(error):
            self.failure = _failed(error, message)

    def note(self, record: RefusedRecord) -> None:
        if self._matters(record.error):
            self.failure = record

    def _matters(self, error: KafkaError) -> bool:
        if error.code() in _SECONDARY:
            return False
        return self.failure is None or (error.code() in REFUSED and self.failure.error.code() not in REFUSED)


def _failed(error: KafkaError, message: Message) -> RefusedRecord:
    key, value = message.key(), message.value()
    return RefusedRecord(
        error,
        message.topic() or "",
        message.partition(),
        key if isinstance(key, bytes) else None,
        value if isinstance(value, bytes) else None,
    )


class OnTheWay:
    """Bytes of the rows that are not delivered yet, as far as the count of those that are tells. Pure.

    Rows that are brought together count until all of them are delivered, and everything before.
    """

    def __init__(self) -> None:
        self._rows = self._bytes = 0
        self._pieces: deque[tuple[int, int]] = deque()
        """The number of rows so far at the end of each, and its bytes."""

    def add(self, rows: int, size: int) -> None:
        """So many more rows, of `size` bytes, are sent."""
        self._rows += rows
        self._bytes += size
        self._pieces.append((self._rows, size))

    def left(self, delivered: int) -> int:
        """Bytes on the way, when so many rows are delivered in all."""
        while self._pieces and self._pieces[0][0] <= delivered:
            self._bytes -= self._pieces.popleft()[1]
        return self._bytes


class Sender:
    """Owns a producer. For one thread."""

    def __init__(
        self,
        sink_id: str,
        config: Mapping[str, Any],
        max_outstanding: int,
        on_stall: Callable[[Collection[str]], None] = lambda topics: None,
    ) -> None:
        """
        Args:
            config: of the producer to be made; needs `delivery.report.only.error`.
            max_outstanding: bytes that may be queued and not delivered yet; what one call of `send` brings may be more.
            on_stall: called again and again, with the topics of what is queued, while nothing is delivered: the client
                goes on for minutes in silence. May raise.
        """
        self._on_stall = on_stall
        self._topics: set[str] = set()
        """Topics of what was sent since the last flush."""
        self._last_delivered = -1
        self._last_change = 0.0
        self._sink_id = sink_id
        self._max_outstanding = max_outstanding
        self._on_the_way = OnTheWay()
        self._sent = 0
        self.deliveries = _Deliveries()
        self._queue_messages = int(config.get("queue.buffering.max.messages", 100_000))
        queue_bytes = 1024 * int(config.get("queue.buffering.max.kbytes", 1_048_576))
        # A full queue in the middle of produce_batch would let later records overtake; only produce stops at once.
        self._batches = self._queue_messages >= 2 * _CHUNK and queue_bytes >= 4 * max_outstanding
        self.producer = Producer({**config, "on_delivery": self.deliveries.report})

    def send(self, rows: KafkaRows) -> None:
        """Queue rows, waiting for room.

        Raises:
            RecordRefused: Kafka refused a record for good, this one or an earlier one.
            KafkaException: the producer can't go on.
        """
        size = rows.size
        self._topics.update(rows.topics or [rows.topic or ""])
        while (left := self._on_the_way.left(self.delivered)) and left + size > self._max_outstanding:
            self._wait()
        plain = rows.partitions is None and rows.timestamps is None and rows.headers is None
        if rows.topic is not None and plain and self._batches and size <= self._max_outstanding:
            self._send_batches(rows.topic, rows)
        else:
            self._send_each(rows)
        self._on_the_way.add(len(rows), size)
        self._sent += len(rows)
        self.poll(0)
        self._look_for_stall()

    @property
    def delivered(self) -> int:
        """Rows so far of those that calls of `send` have taken; at least so many."""
        return self._sent - len(self.producer)

    def push(self) -> None:
        """Send what is queued without lingering; doesn't wait."""
        _served(lambda: self.producer.flush(0))

    def flush(self, timeout: float) -> None:
        """Wait until everything is delivered.

        Args:
            timeout: seconds.

        Raises:
            RecordRefused: as `send`.
            KafkaException: a delivery failed, or it took too long.
        """
        deadline = time.monotonic() + timeout
        while True:
            wait = min(_LOOK, max(0.0, deadline - time.monotonic()))
            left = _served(lambda wait=wait: self.producer.flush(wait))  # type: ignore[misc]
            self.check()  # in a transaction nothing more is delivered once a record has failed
            self._look_for_stall()
            if not left or time.monotonic() >= deadline:
                break
        if left:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"{counted(left, 'record')} not delivered in {timeout:.0f} s")
            )
        self._topics.clear()

    def check(self) -> None:
        """
        Raises:
            RecordRefused: as `send`.
            KafkaException: a delivery failed.
        """
        if self.deliveries.failure is not None:
            record = self.deliveries.failure
            error = record.error
            if error.code() in REFUSED:
                raise RecordRefused(
                    f"sink {self._sink_id!r}: Kafka refused the record {record}: {error.str()} ({error.name()}). Make "
                    "the topic accept it (limits, permissions, partitions) and start again",
                    record,
                )
            raise KafkaException(error)

    def _send_batches(self, topic: str, rows: KafkaRows) -> None:
        # produce_batch needs half of produce's time, but ignores partitions and takes no timestamps and headers.
        producer, keys = self.producer, rows.keys
        for start in range(0, len(rows), _CHUNK):
            values = rows.values[start : start + _CHUNK]
            messages: list[dict[str, Any]] = (
                [{"value": value} for value in values]
                if keys is None
                else [{"value": v, "key": k} for v, k in zip(values, keys[start : start + _CHUNK], strict=True)]
            )
            while len(producer) + len(messages) > self._queue_messages:
                self._wait()
            if producer.produce_batch(topic, messages) < len(messages):
                failed = next(message["_error"] for message in messages if "_error" in message)
                self.poll(_LOOK)  # perhaps it can't because of a record that it is about to report
                raise failed if isinstance(failed, KafkaException) else KafkaException(failed)

    def _send_each(self, rows: KafkaRows) -> None:
        produce, count = self.producer.produce, len(rows)
        nothing = [None] * count
        topics = rows.topics or [rows.topic or ""] * count
        partitions = rows.partitions or [-1] * count
        for topic, value, key, partition, timestamp, headers in zip(
            topics,
            rows.values,
            rows.keys or nothing,
            partitions,
            rows.timestamps or nothing,
            rows.headers or nothing,
            strict=True,
        ):
            while True:
                try:
                    if headers:
                        produce(topic, value, key, partition=partition, timestamp=timestamp or 0, headers=list(headers))
                    else:
                        produce(topic, value, key, partition=partition, timestamp=timestamp or 0)
                    break
                except BufferError:
                    self._wait()
                except KafkaException as error:
                    if error.args[0].code() == KafkaError._STATE:
                        self.poll(_LOOK)  # as above
                    self.deliveries.note(RefusedRecord(error.args[0], topic, partition, key, value))
                    self.check()
                    raise

    def poll(self, timeout: float) -> None:
        """Let the client report.

        Raises:
            RecordRefused, KafkaException: as `check`; the latter also for what ends the producer.
        """
        _served(lambda: self.producer.poll(timeout))
        self.check()

    def _wait(self) -> None:
        self.poll(_WAIT)
        self._look_for_stall()

    def _look_for_stall(self) -> None:
        delivered, now = self.delivered, time.monotonic()
        if delivered != self._last_delivered or delivered == self._sent:
            self._last_delivered, self._last_change = delivered, now
        elif now - self._last_change >= _STALLED:
            self._on_stall(self._topics)
            self._last_change = time.monotonic()


def _served(call: Callable[[], int]) -> int:
    try:
        return call()
    except SystemError as error:
        # Of the client library: it raises what ends a producer out of poll and flush, but loses that exception if it
        # calls a delivery callback in between.
        raise KafkaException(KafkaError(KafkaError._FATAL, "the producer was ended, probably fenced")) from error
