"""Dead letters in a Kafka topic, as sources and sinks write them and tools read them.

A letter of a record that a source has read is that record, key, value and headers byte by byte, and behind its headers
those that tell what happened. So do the letters of other records, whose value is what the step got.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

Headers = Sequence[tuple[str, bytes | None]]

REASON: Final = "weir.error.reason"
"""The first header of those that tell of a record. One that failed again has them twice."""
ERROR: Final = "weir.error.class"
TRACEBACK: Final = "weir.error.traceback"
UNREADABLE: Final = "weir.error.headers"
"""In place of a record's own headers: why they can't be read."""
PIPELINE: Final = "weir.pipeline"
SOURCE: Final = "weir.source.id"
TOPIC: Final = "weir.source.topic"
PARTITION: Final = "weir.source.partition"
OFFSET: Final = "weir.source.offset"
TIMESTAMP: Final = "weir.source.timestamp"
STEP: Final = "weir.step.id"
SUBTASK: Final = "weir.step.subtask"
KEY: Final = "weir.step.key"
TIME: Final = "weir.step.timestamp"
TIMER: Final = "weir.step.timer"
VALUE: Final = "weir.value"
"""What the value is: `source`, byte by byte what was in the source; `json` or `msgpack`, the record that the step got;
`none`, there is no record. Letters of sources have no such header."""


def class_of(error: BaseException) -> str:
    """What `ERROR` is: with its module, unless it is one of Python's own."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def told_headers(told: Mapping[str, Any]) -> list[tuple[str, bytes | None]]:
    """Headers that tell of a record; what is `None` is empty text."""
    return [
        (name, b"" if value is None else str(value).encode(errors="backslashreplace")) for name, value in told.items()
    ]


@dataclass(frozen=True)
class ReadLetter:
    """A message of a topic for dead letters."""

    headers: tuple[tuple[str, bytes | None], ...]
    """The record's own."""
    told: Mapping[str, str]
    """By header, what is told of it."""

    @classmethod
    def of(cls, headers: Headers) -> Self | None:
        """`None`: it is no dead letter."""
        names = [name for name, _ in headers]
        if REASON not in names:
            return None
        first = len(names) - 1 - names[::-1].index(REASON)
        told = {name: (value or b"").decode(errors="backslashreplace") for name, value in headers[first:]}
        return cls(tuple(headers[:first]), told)

    @property
    def step(self) -> str:
        """The step that failed, or the source."""
        return self.told.get(STEP) or self.told.get(SOURCE, "")

    @property
    def error(self) -> str:
        return self.told.get(ERROR, "")

    @property
    def origin(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset of the record that the message is, byte by byte; `None`: it is none, or its
        headers, which somebody else has written, don't say."""
        topic, partition, offset = (self.told.get(name, "") for name in (TOPIC, PARTITION, OFFSET))
        if not topic or self.told.get(VALUE, "source") != "source":
            return None
        return (topic, int(partition), int(offset)) if partition.isdecimal() and offset.isdecimal() else None

    @property
    def lacks(self) -> str | None:
        """What of its record the letter hasn't got, so that it can't be sent again; `None`: nothing."""
        if TIMER in self.told:
            return "it is a timer that failed, and no record"
        if self.told.get(VALUE) == "none":
            return "it has no value, since what the step got can't be encoded"
        if any(name == UNREADABLE for name, _ in self.headers):
            return "it lacks the headers of its record, which Kafka's client could not read"
        if self.timestamp == 0:
            return "the timestamp of its record is 0, which Kafka's client takes for none"
        return None

    @property
    def timestamp(self) -> int | None:
        """Of that record, milliseconds since the epoch."""
        text = self.told.get(TIMESTAMP)
        return int(text) if text else None
