"""The rows of staged segments, as every commit reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sinks.kafka.rows import KafkaRows
from sinks.kafka.segments import read_segment
from sinks.sink import Committable, CommittableName, Staging

LeftOut = Mapping[CommittableName, Collection[int]]
"""Numbers of rows, from 0, by their segment."""


def rows_to_commit(segments: Iterable[Committable], staging: Staging, left_out: LeftOut) -> Iterator[KafkaRows]:
    """All rows of these segments, in order, but those left out.

    Raises:
        DamagedFile: a segment can't be read.
    """
    for segment in segments:
        rows = read_rows(segment, staging)
        numbers = left_out.get(segment.name)
        yield from rows if numbers is None else without(rows, numbers)


def read_rows(segment: Committable, staging: Staging) -> Iterator[KafkaRows]:
    """
    Raises:
        DamagedFile: it can't be read.
    """
    for file in segment.files:
        yield from read_segment(staging.read(file))


def without(pieces: Iterator[KafkaRows], numbers: Collection[int]) -> Iterator[KafkaRows]:
    """What is left of a segment's rows, in order."""
    first = 0
    for rows in pieces:
        start, end = 0, len(rows)
        for number in sorted(number - first for number in numbers if first <= number < first + end):
            if start < number:
                yield rows.slice(start, number)
            start = number + 1
        if start < end:
            yield rows.slice(start)
        first += end


def transactions(segments: Sequence[Committable], limit: int) -> Iterator[list[Committable]]:
    """Whole segments, in order, at most `limit` bytes together where one alone isn't more."""
    group: list[Committable] = []
    size = 0
    for segment in segments:
        if group and size + segment.payload["bytes"] > limit:
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.payload["bytes"]
    if group:
        yield group


def smallest_limit(segments: Sequence[Committable], default: int) -> int:
    """The smallest `max.message.bytes` of the topics that the segments go to, as it was when they were staged."""
    return min((int(segment.payload["message_limit"]) for segment in segments), default=default)
