"""From Kafka messages to records: values a batch at a time, everything else only when it is asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, overload

import orjson
from confluent_kafka import Message

from checkpoint.metrics import MetricSink

from .errors import BadRecord
from .options import Format, PartitionKey

log = logging.getLogger(__name__)

_SHOWN: Final = 200
"""Bytes of a bad value in an error."""

_DECODERS: Final[dict[Format, Callable[[bytes], Any]]] = {
    "bytes": bytes,
    "str": bytes.decode,
    "json": orjson.loads,
}


class RecordDecoder:
    """Turns a batch of messages into values; a tombstone is `None` in every format."""

    def __init__(self, value_format: Format, on_bad_record: str, metrics: MetricSink) -> None:
        self._format = value_format
        self._decode = _DECODERS[value_format]
        self._skip = on_bad_record == "skip"
        self._metrics = metrics

    def decode(self, messages: list[Message], raw: list[bytes]) -> tuple[list[Message], list[Any]]:
        """The values of `raw`, and the messages that they come from (all, unless bad ones are skipped).

        Raises:
            BadRecord: a value is not of the format, and bad records are not skipped.
        """
        if self._format == "bytes":
            return messages, raw
        try:
            return messages, list(map(self._decode, raw))
        except (ValueError, TypeError):  # a bad value, or a tombstone
            return self._decode_each(messages, raw)

    def _decode_each(self, messages: list[Message], raw: list[bytes]) -> tuple[list[Message], list[Any]]:
        good: list[Message] = []
        values: list[Any] = []
        for message, content in zip(messages, raw, strict=True):
            try:
                value = None if content is None else self._decode(content)
            except ValueError as e:
                self._bad(message, content, e)
                continue
            good.append(message)
            values.append(value)
        return good, values

    def _bad(self, message: Message, content: bytes, error: ValueError) -> None:
        text = (
            f"{message.topic()}[{message.partition()}] offset {message.offset()}: the value is not {self._format} "
            f"({error}): {_shortened(content)}"
        )
        if not self._skip:
            raise BadRecord(
                f"{text}. The source stands before this record and has lost nothing; correct value_format, or set "
                'on_bad_record="skip" to leave such records out and count them (recordsSkipped)'
            ) from error
        self._metrics.count("recordsSkipped")
        log.warning("skipped a bad record: %s", text)


class RecordContext:
    """What an operator behind the source sees of one record besides its value."""

    __slots__ = ("_key_format", "_message")

    def __init__(self, message: Message, key_format: Format) -> None:
        self._message = message
        self._key_format = key_format

    @property
    def topic(self) -> str:
        return self._message.topic() or ""

    @property
    def partition(self) -> int:
        return self._message.partition() or 0

    @property
    def offset(self) -> int:
        return self._message.offset() or 0

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self._message.headers() or ())  # type: ignore[arg-type]  # a list of pairs when it comes from Kafka

    @property
    def kafka_key(self) -> Any:
        """The key in the source's `key_format`.

        Raises:
            BadRecord: the key is not of that format.
        """
        key = self._message.key()
        if key is None:
            return None
        try:
            return _DECODERS[self._key_format](key)
        except ValueError as e:
            raise BadRecord(
                f"{self.topic}[{self.partition}] offset {self.offset}: the key is not {self._key_format} ({e}): "
                f"{_shortened(key)}. Correct key_format"
            ) from e


class RecordContexts(Sequence[RecordContext]):
    """One context a message, made when it is looked at."""

    __slots__ = ("_key_format", "_messages")

    def __init__(self, messages: list[Message], key_format: Format) -> None:
        self._messages = messages
        self._key_format = key_format

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> RecordContext: ...
    @overload
    def __getitem__(self, index: slice) -> RecordContexts: ...
    def __getitem__(self, index: int | slice) -> RecordContext | RecordContexts:
        if isinstance(index, slice):
            return RecordContexts(self._messages[index], self._key_format)
        return RecordContext(self._messages[index], self._key_format)


def timestamps(messages: list[Message]) -> list[int | None] | None:
    """Milliseconds since the epoch of every message, `None` where Kafka knows none."""
    times: list[int | None] = [time for _, time in map(Message.timestamp, messages)]
    if times and min(times) < 0:  # type: ignore[type-var,operator]  # all are numbers so far
        return [time if time is not None and time >= 0 else None for time in times]
    return times


def partitions(messages: list[Message]) -> list[PartitionKey]:
    """Topic and partition of every message; equal ones are one object."""
    known: dict[PartitionKey, PartitionKey] = {}
    keys = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
    return [known.setdefault(key, key) for key in keys]  # type: ignore[arg-type]  # of messages without an error


def _shortened(content: bytes) -> str:
    return repr(content) if len(content) <= _SHOWN else f"{content[:_SHOWN]!r}… ({len(content)} bytes)"
