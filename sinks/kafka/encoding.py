"""From records to bytes, and the checks that Kafka would make later: a record is refused while it is in progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Literal

from checkpoint.counted import counted
from checkpoint.options import is_whole
from formats import Encoder, NotInFormat, RegistryFormat, RegistryUnavailable
from formats.json_values import dumps, dumps_all
from sinks.kafka.errors import RecordRefused, TopicRefused, shorten
from sinks.kafka.rows import Headers, KafkaRows
from sinks.kafka.topics import TopicCatalog, TopicLimits
from sinks.sink import SinkBatch

PLAIN_FORMATS: Final = ("json", "str", "bytes")
Format = Literal["json", "str", "bytes"] | RegistryFormat
Field = str | int | Callable[[Any], Any]
"""A field's name, an index, or a function of the record."""

_BATCH_OVERHEAD: Final = 61
"""Bytes of a record batch of format 2 around its records."""
_RECORD_OVERHEAD: Final = 40
"""At most so many bytes are around the key and the value of a record without headers, its batch aside."""


@dataclass(frozen=True)
class RecordOptions:
    """How records become messages; see `KafkaSink`."""

    topic: str | Callable[[Any], str]
    key: Field | None = None
    value_format: Format = "json"
    key_format: Format | None = None
    headers: Callable[[Any], Mapping[str, Any] | Iterable[tuple[str, Any]] | None] | None = None
    timestamp: Field | None = None
    partitioner: Callable[[Any, int], int] | None = None
    value: Callable[[Any], Any] | None = None
    """What of the record is the message's value; `None` = all of it."""
    message_limit: int | None = None
    """A limit of the user's own for the size of a message, bytes."""


class RecordEncoder:
    """For one thread."""

    def __init__(
        self,
        options: RecordOptions,
        topics: TopicCatalog,
        sink_id: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            now: seconds since the epoch; brokers compare timestamps with it.
        """
        self._options = options
        self._topics = topics
        self._sink_id = sink_id
        self._now = now
        self._value = _encoder(options.value_format, "value_format")
        self._key: _Encode = _encoder(options.key_format, "key_format") if options.key_format else _key_as_it_is

    def encode(self, batch: SinkBatch) -> KafkaRows:
        """
        Raises:
            RecordRefused: a record can't be encoded, or the topic would not take it.
            BrokerUnavailable: a topic had to be looked up, and nobody answered.
            RegistryUnavailable: the schema registry had to be asked, and it did not answer.
        """
        options, values = self._options, batch.values
        rows = KafkaRows(topic=None, topics=None, values=[])
        if callable(options.topic):
            rows.topics = self._each(_topic(options.topic), values, values, "topic", skip_none=False)
        column = values if options.value is None else self._each(options.value, values, values, "its value")
        rows.values = self._encoded(self._value, column, values, rows.topics, "its value")
        if options.key is not None:
            keys = self._field(options.key, values, "key")
            rows.keys = self._encoded(self._key, keys, values, rows.topics, "its key")
        if options.headers is not None:
            found = self._each(options.headers, values, values, "headers", skip_none=False)
            rows.headers = self._each(_headers, found, values, "its headers")
        if options.timestamp is not None:
            record = options.timestamp == "record"
            times = batch.timestamps if record else self._field(options.timestamp, values, "timestamp")
            rows.timestamps = self._each(_timestamp, times, values, "its timestamp")
        if isinstance(options.topic, str):
            rows.topic = options.topic
            limits = self._limits(options.topic, values[0]) if values else None
            if limits is not None:
                self._check(rows, values, limits, range(len(values)))
        else:
            self._check_topics(rows, values)
        return rows

    def _check_topics(self, rows: KafkaRows, values: list[Any]) -> None:
        members: dict[str, list[int]] = {}
        for i, topic in enumerate(rows.topics or ()):
            members.setdefault(topic, []).append(i)
        for topic, indices in members.items():
            self._check(rows, values, self._limits(topic, values[indices[0]]), indices)

    # -- columns ----------------------------------------------------------------------------------------------------

    def _field(self, field: Field, values: list[Any], what: str) -> list[Any]:
        if callable(field):
            return self._each(field, values, values, what, skip_none=False)

        with suppress(Exception):  # which record it was is found out next
            return list(map(itemgetter(field), values))

        def item(value: Any) -> Any:
            try:
                return value[field]
            except TypeError as error:
                if value is not None:
                    raise
                raise TypeError(
                    f"a tombstone, a record that is None, has no fields. Give {what} as a function of the record, "
                    "which gets None then; or leave such records out in front of the sink"
                ) from error

        return self._each(item, values, values, f"{what}={field!r}", skip_none=False)

    def _encoded(
        self, encode: _Encode, column: list[Any], values: list[Any], topics: list[str] | None, what: str
    ) -> list[Any]:
        if encode is dumps:
            try:
                return [None if item is None else text for item, text in zip(column, dumps_all(column), strict=True)]
            except NotInFormat:
                pass  # which record it was is found out next
        if encode is _key_as_it_is and set(map(type, column)) == {str}:
            try:
                return list(map(str.encode, column))
            except UnicodeEncodeError:
                pass  # as above
        if not isinstance(encode, _PerTopic):
            return self._each(encode, column, values, what)
        to = encode.encoder
        if topics is None:
            fixed = str(self._options.topic)
            return self._each(lambda item: to(item, fixed), column, values, what)
        pairs = [None if item is None else (item, topic) for item, topic in zip(column, topics, strict=True)]
        return self._each(lambda pair: to(*pair), pairs, values, what)

    def _each(
        self,
        function: Callable[[Any], Any],
        column: Sequence[Any],
        values: list[Any],
        what: str,
        skip_none: bool = True,
    ) -> list[Any]:
        try:
            if skip_none:
                return [None if item is None else function(item) for item in column]
            return [function(item) for item in column]
        except RegistryUnavailable:
            raise
        except Exception:
            # Once more, slowly, to find out which one it was.
            done = []
            for item, value in zip(column, values, strict=True):
                try:
                    done.append(None if skip_none and item is None else function(item))
                except RegistryUnavailable:
                    raise
                except Exception as error:
                    raise self._refused(value, f"{what}: {type(error).__name__}: {error}") from error
            return done

    # -- what the broker would refuse ---------------------------------------------------------------------------

    def _limits(self, topic: str, value: Any) -> TopicLimits:
        try:
            return self._topics.get(topic)
        except TopicRefused as error:
            raise self._refused(value, str(error)) from error

    def _check(self, rows: KafkaRows, values: list[Any], limits: TopicLimits, indices: Sequence[int]) -> None:
        message_limit = self._message_limit(limits)
        rows.message_limit = min(rows.message_limit, message_limit)
        if self._options.partitioner is not None:
            self._partition(rows, values, limits, indices, self._options.partitioner)
        if limits.needs_key:
            for i in indices:
                if rows.keys is None or rows.keys[i] is None:
                    raise self._refused(
                        values[i], f"topic {limits.name!r} is compacted and takes no record without key"
                    )
        self._check_sizes(rows, values, limits, indices, message_limit)
        if rows.timestamps is not None:
            self._check_timestamps(rows.timestamps, values, limits, indices)

    def _partition(
        self,
        rows: KafkaRows,
        values: list[Any],
        limits: TopicLimits,
        indices: Sequence[int],
        partitioner: Callable[[Any, int], int],
    ) -> None:
        if rows.partitions is None:
            rows.partitions = [0] * len(values)
        for i in indices:
            try:
                partition = partitioner(values[i], limits.partitions)
            except Exception as error:
                raise self._refused(values[i], f"partitioner: {type(error).__name__}: {error}") from error
            if not is_whole(partition):
                raise self._refused(values[i], f"the partitioner returned {partition!r}, which is not an int")
            if not 0 <= partition < limits.partitions:
                limits = self._topics.refresh(limits.name)
                if not 0 <= partition < limits.partitions:
                    raise self._refused(
                        values[i],
                        f"the partitioner returned partition {partition}, but topic {limits.name!r} has only the "
                        f"partitions 0 to {limits.partitions - 1}",
                    )
            rows.partitions[i] = partition

    def _check_sizes(
        self, rows: KafkaRows, values: list[Any], limits: TopicLimits, indices: Sequence[int], message_limit: int
    ) -> None:
        if rows.headers is None:
            longest = max(map(len, filter(None, rows.values)), default=0)
            if rows.keys is not None:
                longest += max(map(len, filter(None, rows.keys)), default=0)
            if longest + _BATCH_OVERHEAD + _RECORD_OVERHEAD <= message_limit:
                return
        for i in indices:
            key = rows.keys[i] if rows.keys is not None else None
            size = message_size(key, rows.values[i], rows.headers[i] if rows.headers is not None else None)
            if size > message_limit:
                limits = self._topics.refresh(limits.name)
                message_limit = self._message_limit(limits)
            if size > message_limit:
                option = (
                    f"max.message.bytes of topic {limits.name!r}"
                    if message_limit == limits.max_message_bytes
                    else "message.max.bytes in the sink's config"
                )
                raise self._refused(
                    values[i],
                    f"it takes {counted(size, 'byte')} as a message (compression isn't counted on), and {option} "
                    f"allows {message_limit}. Raise the limit, or make the record smaller",
                )

    def _message_limit(self, limits: TopicLimits) -> int:
        return min(limits.max_message_bytes, self._options.message_limit or limits.max_message_bytes)

    def _check_timestamps(
        self, timestamps: list[int | None], values: list[Any], limits: TopicLimits, indices: Sequence[int]
    ) -> None:
        now = int(self._now() * 1000)
        earliest, latest = now - limits.before_ms, now + limits.after_ms
        present = [t for t in timestamps if t is not None]
        if not present or (min(present) >= earliest and max(present) <= latest):
            return
        for i in indices:
            time_ms = timestamps[i]
            if time_ms is None or earliest <= time_ms <= latest:
                continue
            past = time_ms < earliest
            distance = now - time_ms if past else time_ms - now
            option = f"message.timestamp.{'before' if past else 'after'}.max.ms"
            raise self._refused(
                values[i],
                f"its timestamp {time_ms} lies {distance} ms in the {'past' if past else 'future'}, and {option} of "
                f"topic {limits.name!r} allows {limits.before_ms if past else limits.after_ms} ms. Raise that limit, "
                "or set another timestamp",
            )

    def _refused(self, value: Any, reason: str) -> RecordRefused:
        return RecordRefused(f"sink {self._sink_id!r} can't write the record {shorten(value)} to Kafka: {reason}")


def message_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Bytes of the record alone in a batch (format 2), uncompressed: what a broker compares with its limit."""
    body = 3 + _varint(len(key) if key is not None else -1) + _varint(len(value) if value is not None else -1)
    body += len(key or b"") + len(value or b"") + _varint(len(headers or ()))
    for name, content in headers or ():
        encoded = len(name.encode())
        body += _varint(encoded) + encoded + _varint(len(content) if content is not None else -1) + len(content or b"")
    return _BATCH_OVERHEAD + _varint(body) + body


def _varint(number: int) -> int:
    zigzag = (number << 1) ^ (number >> 31)
    return max(1, -(-zigzag.bit_length() // 7))


@dataclass(frozen=True)
class _PerTopic:
    """The encoder of a format that has to know the topic."""

    encoder: Encoder


_Encode = Callable[[Any], bytes] | _PerTopic


def _encoder(name: Format, option: Literal["key_format", "value_format"]) -> _Encode:
    if isinstance(name, RegistryFormat):
        return _PerTopic(name.encoder("key" if option == "key_format" else "value"))
    if name == "json":
        return dumps
    if name == "str":
        return lambda item: _str(item, option)
    return lambda item: _bytes(item, option)


def _str(item: Any, option: str) -> bytes:
    if type(item) is not str:
        raise TypeError(f'{option}="str" takes str, not {type(item).__name__}')
    return item.encode()


def _bytes(item: Any, option: str) -> bytes:
    if type(item) is not bytes:
        raise TypeError(f'{option}="bytes" takes bytes, not {type(item).__name__}; write bytes(x)')
    return item


def _key_as_it_is(item: Any) -> bytes:
    if type(item) is str:
        return item.encode()
    if type(item) is bytes:
        return item
    return dumps(item)


def _headers(found: Any) -> Headers:
    pairs = list(found.items() if isinstance(found, Mapping) else found)
    headers: list[tuple[str, bytes | None]] = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is a str, not {name!r}")
        if value is not None and not isinstance(value, str | bytes):
            raise TypeError(f"header {name!r} is bytes, str or None, not {value!r}")
        if b"\0" in name.encode():
            raise ValueError(f"the name of header {name!r} has a NUL, at which Kafka's client cuts it off")
        headers.append((name, value.encode() if isinstance(value, str) else value))
    return headers


def _timestamp(found: Any) -> int:
    if not is_whole(found):
        raise TypeError(f"a timestamp is an int, milliseconds since 1970, not {found!r}")
    if found <= 0:
        raise ValueError(f"Kafka's client takes {found} for no timestamp; it must be positive")
    return found


def _topic(function: Callable[[Any], str]) -> Callable[[Any], str]:
    def checked(value: Any) -> str:
        topic = function(value)
        if not isinstance(topic, str):
            raise TypeError(f"it returned {topic!r}, which is not the name of a topic")
        return topic

    return checked
