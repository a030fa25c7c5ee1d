"""Records as Kafka gets them, column-wise: what an encoder makes, a segment holds and a producer sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

Headers = Sequence[tuple[str, bytes | None]]

_ROW_BYTES = 32
"""Counted for each record beside its content, so that many tiny ones are bounded too."""


@dataclass(slots=True)
class KafkaRows:
    """Lists of one length; a column is `None` where the sink doesn't set it."""

    topic: str | None
    """The topic of all rows, or `None` if `topics` says it for each."""
    topics: list[str] | None
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    partitions: list[int] | None = None
    timestamps: list[int | None] | None = None
    """Milliseconds since the epoch; `None` is the time of sending."""
    headers: list[Headers | None] | None = None
    message_limit: int = 2**31 - 1
    """Smallest `max.message.bytes` of the topics, bytes."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size(self) -> int:
        """Bytes."""
        content = sum(map(len, filter(None, self.values)))
        if self.keys is not None:
            content += sum(map(len, filter(None, self.keys)))
        if self.headers is not None:
            content += sum(map(headers_size, self.headers))
        return content + _ROW_BYTES * len(self.values)

    def sizes(self) -> list[int]:
        """Bytes of each row; they add up to `size`."""
        sizes = [_ROW_BYTES + len(value or b"") for value in self.values]
        if self.keys is not None:
            sizes = [size + len(key or b"") for size, key in zip(sizes, self.keys, strict=True)]
        if self.headers is not None:
            sizes = [size + headers_size(headers) for size, headers in zip(sizes, self.headers, strict=True)]
        return sizes

    def fitting(self, room: int) -> int:
        """How many of the first rows have at most `room` bytes together."""
        count = 0
        for total in accumulate(self.sizes()):
            if total > room:
                break
            count += 1
        return count

    def slice(self, start: int, stop: int | None = None) -> KafkaRows:
        part = slice(start, stop)
        return KafkaRows(
            topic=self.topic,
            topics=self.topics[part] if self.topics is not None else None,
            values=self.values[part],
            keys=self.keys[part] if self.keys is not None else None,
            partitions=self.partitions[part] if self.partitions is not None else None,
            timestamps=self.timestamps[part] if self.timestamps is not None else None,
            headers=self.headers[part] if self.headers is not None else None,
            message_limit=self.message_limit,
        )


def headers_size(headers: Headers | None) -> int:
    """Bytes of the names and values."""
    return sum(len(name.encode()) + len(value or b"") for name, value in headers) if headers else 0
