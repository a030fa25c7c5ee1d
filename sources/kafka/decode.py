"""From Kafka messages to records: values a batch at a time, everything else only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import pyarrow as pa
from confluent_kafka import Message

from formats import Decoder
from formats.errors import BadRecord
from sources.kafka.arrow_json import ArrowJson
from sources.kafka.bad_records import BadRecords, shortened
from sources.kafka.formats import Format, decoder, typed_decoder, whole_batches
from sources.kafka.messages import headers_of, told_headers_of
from sources.kafka.options import PartitionKey

Decoded = tuple[list[Message], list[Any] | pa.RecordBatch]


class RecordDecoder:
    """Turns a batch of messages into values; a tombstone is `None` in every format but `ArrowJson`."""

    def __init__(
        self, value_format: Format, bad_records: BadRecords, key_format: Format = "bytes", value_type: Any = None
    ) -> None:
        """`value_type`: what values are turned into; `None` = they stay what the format gives."""
        self._bad_records = bad_records
        self._key_format = key_format
        self._decode_key: Decoder | None = None
        self._values: Callable[[list[Message], list[bytes]], Decoded]
        if value_format == "bytes":
            self._values = lambda messages, raw: (messages, raw)
        elif isinstance(value_format, ArrowJson):
            self._parse = value_format.parser()
            self._values = self._decode_columns
        else:
            self._decode_whole = whole_batches(value_format, value_type)
            typed = value_type is not None
            self._decode = typed_decoder(value_format, value_type) if typed else decoder(value_format, "value")
            self._values = self._decode_rows if self._decode_whole is None else self._decode_plain

    def decode(self, messages: list[Message], raw: list[bytes]) -> Decoded:
        """The values of `raw`, and the messages that they come from (all but the bad ones).

        Raises:
            BadRecord: a value is not of the format, and the policy for bad records is to stop.
            RegistryUnavailable: the schema registry had to be asked and didn't answer.
        """
        return self._values(messages, raw)

    def contexts(self, messages: list[Message]) -> RecordContexts:
        """What operators see of each message besides its value."""
        return RecordContexts(messages, self.key)

    def key(self, message: Message) -> Any:
        """The key in the source's `key_format`.

        Raises:
            BadRecord: it is not of that format.
            RegistryUnavailable: the schema registry had to be asked and didn't answer.
        """
        key = message.key()
        if key is None:
            return None
        if self._decode_key is None:
            self._decode_key = decoder(self._key_format, "key")
        try:
            return self._decode_key(key, message.topic() or "")
        except ValueError as e:
            raise BadRecord(
                f"{message.topic()}[{message.partition()}] offset {message.offset()}: the key is not "
                f"{self._key_format} ({e}): {shortened(key)}. Correct key_format"
            ) from e

    # -- rows ---------------------------------------------------------------------------------------------------

    def _decode_plain(self, messages: list[Message], raw: list[bytes]) -> Decoded:
        assert self._decode_whole is not None
        try:
            return messages, self._decode_whole(raw)
        except (ValueError, TypeError):  # a bad value, or a tombstone
            return self._decode_rows(messages, raw)

    def _decode_rows(self, messages: list[Message], raw: list[bytes]) -> Decoded:
        decode = self._decode
        good: list[Message] = []
        values: list[Any] = []
        for message, content in zip(messages, raw, strict=True):
            try:
                value = None if content is None else decode(content, message.topic() or "")
            except ValueError as e:
                self._bad(message, content, e)
                continue
            good.append(message)
            values.append(value)
        return good, values

    # -- columns ------------------------------------------------------------------------------------------------

    def _decode_columns(self, messages: list[Message], raw: list[bytes]) -> Decoded:
        good: list[Message] = []
        batches: list[pa.RecordBatch] = []
        self._parse_good(messages, raw, good, batches)
        if not batches:
            return [], []
        return good, batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def _parse_good(
        self, messages: list[Message], raw: list[bytes], good: list[Message], batches: list[pa.RecordBatch]
    ) -> None:
        """Halves what can't be parsed as a whole until the bad ones are alone."""
        try:
            if None in raw:
                raise ValueError("it is a tombstone, which has no columns")
            batches.append(self._parse(raw))
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            if len(raw) == 1:
                self._bad(messages[0], raw[0], error)
                return
            half = len(raw) // 2
            self._parse_good(messages[:half], raw[:half], good, batches)
            self._parse_good(messages[half:], raw[half:], good, batches)
        else:
            good += messages

    def _bad(self, message: Message, content: bytes | None, error: Exception) -> None:
        """
        Raises:
            BadRecord: the source is to stop.
        """
        self._bad_records.handle(message, content, error)


class KafkaRecordContext:
    """What an operator behind the source sees of one record besides its value."""

    __slots__ = ("_key", "_message")

    def __init__(self, message: Message, key: Callable[[Message], Any]) -> None:
        self._message = message
        self._key = key

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
        """See `headers_of`."""
        return headers_of(self._message)

    @property
    def kafka_key(self) -> Any:
        """See `RecordDecoder.key`."""
        return self._key(self._message)

    @property
    def original(self) -> dict[str, Any]:
        """The record as it is in Kafka, for letters that tell of it."""
        message = self._message
        _, timestamp = message.timestamp()
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": timestamp if timestamp is not None and timestamp >= 0 else None,
            "key": message.key(),
            "value": message.value(),
            "headers": [list(header) for header in told_headers_of(message)],
        }


class RecordContexts(Sequence[KafkaRecordContext]):
    """One context a message, made when it is looked at."""

    __slots__ = ("_key", "_messages")

    def __init__(self, messages: list[Message], key: Callable[[Message], Any]) -> None:
        self._messages = messages
        self._key = key

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> KafkaRecordContext: ...
    @overload
    def __getitem__(self, index: slice) -> RecordContexts: ...
    def __getitem__(self, index: int | slice) -> KafkaRecordContext | RecordContexts:
        if isinstance(index, slice):
            return RecordContexts(self._messages[index], self._key)
        return KafkaRecordContext(self._messages[index], self._key)


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
