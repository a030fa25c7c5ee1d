"""What becomes of records that their format cannot decode."""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from confluent_kafka import Message

from checkpoint.metrics import MetricSink
from checkpoint.options import named_options

from .errors import BadRecord

log = logging.getLogger(f"weir.{__name__}")

_SHOWN: Final = 200
"""Bytes of a bad record in a message."""
_LOG_EVERY_S: Final = 1.0
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LONGEST_REASON: Final = 1000
"""Characters."""


@named_options
@dataclass(frozen=True)
class DeadLetter:
    """`on_bad_record=DeadLetter("bad-orders")`: write bad records to a topic of the same cluster, and go on.

    `on_bad_record="bad-orders"` says the same; only topics that are called fail or skip need this form.

    Args:
        topic: has to exist. It can't be one that the source reads.
        config: settings of librdkafka for its producer, on top of those of the source's `config` that aren't a
            consumer's own (its addresses and security, for instance).

    Raises:
        ValueError: an argument has a value that it can't have.
    """

    topic: str
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not _TOPIC_NAME.fullmatch(self.topic) or self.topic in (".", ".."):
            raise ValueError(
                'on_bad_record must be "fail", "skip", or a topic for dead letters, by its name or as '
                f"DeadLetter(topic); {self.topic!r} is no name of a topic"
            )
        if not isinstance(self.config, Mapping):
            raise ValueError(f"the config of a DeadLetter must be a dict of librdkafka's settings, not {self.config!r}")
        object.__setattr__(self, "config", dict(self.config))


def parse(on_bad_record: object) -> str | DeadLetter:
    """The option's value: "fail", "skip", or a `DeadLetter`.

    Raises:
        ValueError: it is something else.
    """
    if on_bad_record in ("fail", "skip") or isinstance(on_bad_record, DeadLetter):
        return on_bad_record
    return DeadLetter(on_bad_record)  # type: ignore[arg-type]  # which checks it


@dataclass(frozen=True, slots=True)
class Letter:
    """A bad record as it is kept until it is out."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    """Milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    reason: str
    error: str
    """Name of the exception's class."""

    @classmethod
    def of(cls, message: Message, error: Exception) -> Self:
        _, timestamp = message.timestamp()
        kind = type(error)
        return cls(
            topic=message.topic() or "",
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            timestamp=timestamp if timestamp is not None and timestamp >= 0 else None,
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),  # type: ignore[arg-type]  # pairs when it comes from Kafka
            reason=str(error)[:_LONGEST_REASON].encode(errors="backslashreplace").decode(),
            error=kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
        )

    @classmethod
    def from_wire(cls, wire: Sequence[Any]) -> Self:
        topic, partition, offset, timestamp, key, value, headers, reason, error = wire
        pairs = tuple((name, content) for name, content in headers)
        return cls(topic, partition, offset, timestamp, key, value, pairs, reason, error)

    def to_wire(self) -> list[Any]:
        headers = [list(header) for header in self.headers]
        return [
            *(self.topic, self.partition, self.offset, self.timestamp),
            *(self.key, self.value, headers, self.reason, self.error),
        ]

    @property
    def size(self) -> int:
        headers = sum(len(name) + len(content or b"") for name, content in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offset {self.offset}"


class BadRecords(ABC):
    """A policy; called by the task thread, and never makes it wait for a broker."""

    @abstractmethod
    def handle(self, message: Message, content: bytes | None, error: Exception) -> None:
        """Deal with a record whose value, `content`, could not be decoded because of `error`. Returns if the source is
        to go on without it.

        Raises:
            BadRecord: the source is to stop.
        """

    @abstractmethod
    def take_over(self, letters: Sequence[Letter]) -> None:
        """Deal with bad records that were not out at the restored checkpoint, which is behind them.

        Raises:
            BadRecord: the source is not to go on without them.
        """

    def serve(self) -> None:
        """Called at every poll and snapshot.

        Raises:
            RuntimeError: bad records can't be dealt with as they should.
        """

    @property
    def full(self) -> bool:
        """Whether so much is under way that nothing more may be fetched."""
        return False

    @property
    def pending(self) -> Sequence[Letter]:
        """What is not out yet, and so belongs into a snapshot."""
        return ()

    def close(self, timeout: float) -> None:
        """Release everything; what is pending may go out for `timeout` seconds."""
        return


class FailOnBadRecords(BadRecords):
    """The source stops in front of the record."""

    def __init__(self, format_name: str) -> None:
        self._format = format_name

    def handle(self, message: Message, content: bytes | None, error: Exception) -> None:
        raise BadRecord(
            f"{describe(message, content, error, self._format)}. The source stands before this record and has lost "
            'nothing; correct value_format, or set on_bad_record="skip" to leave such records out and count them '
            '(recordsSkipped), or on_bad_record="topic" to write them to a topic for dead letters'
        ) from error

    def take_over(self, letters: Sequence[Letter]) -> None:
        if letters:
            raise BadRecord(
                f"the checkpoint has {len(letters)} bad records that had not reached the topic for dead letters; the "
                f'first is {letters[0]} ({letters[0].reason}). on_bad_record="fail" would lose them: restore with a '
                'topic in on_bad_record to write them there, or with on_bad_record="skip" to leave them out'
            )


class SkipBadRecords(BadRecords):
    """Left out, counted, and told in the log now and then."""

    def __init__(self, format_name: str, metrics: MetricSink) -> None:
        self._format = format_name
        self._metrics = metrics
        self._untold = 0
        self._told_at = float("-inf")

    def handle(self, message: Message, content: bytes | None, error: Exception) -> None:
        self._metrics.count("recordsSkipped")
        self._untold += 1
        if (now := time.monotonic()) - self._told_at >= _LOG_EVERY_S:
            more = f" ({self._untold - 1} more since the last message)" if self._untold > 1 else ""
            log.warning("skipped a bad record%s: %s", more, describe(message, content, error, self._format))
            self._untold, self._told_at = 0, now

    def take_over(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            self._metrics.count("recordsSkipped")
            log.warning("skipped a bad record that was to be a dead letter: %s: %s", letter, letter.reason)


def describe(message: Message, content: bytes | None, error: Exception, format_name: str) -> str:
    return (
        f"{message.topic()}[{message.partition()}] offset {message.offset()}: the value is not {format_name} "
        f"({error}): {shortened(content)}"
    )


def shortened(content: bytes | None) -> str:
    """For messages."""
    if content is None or len(content) <= _SHOWN:
        return repr(content)
    return f"{content[:_SHOWN]!r}… ({len(content)} bytes)"
