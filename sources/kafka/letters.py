"""Bad records as they are kept, also in snapshots, until they are delivered to the topic for dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import Message

from formats.letters import class_of
from sources.kafka.messages import told_headers_of

_LONGEST_REASON: Final = 1000
"""Characters."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A bad record, whole, and what was wrong with it."""

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
        return cls(
            topic=message.topic() or "",
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            timestamp=timestamp if timestamp is not None and timestamp >= 0 else None,
            key=message.key(),
            value=message.value(),
            headers=tuple(told_headers_of(message)),
            reason=str(error)[:_LONGEST_REASON].encode(errors="backslashreplace").decode(),
            error=class_of(error),
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
