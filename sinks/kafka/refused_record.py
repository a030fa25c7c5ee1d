"""A record that Kafka refuses when its checkpoint is committed: which one it is, where it is staged, and how to go on
without it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError

from sinks.kafka.errors import CommitRefused, RecordRefused, RefusedRecord
from sinks.kafka.rows import KafkaRows, headers_size
from sinks.kafka.staged_rows import LeftOut, read_rows, rows_to_commit
from sinks.kafka.topics import TopicCatalog
from sinks.kafka.transactions import TransactionalProducer
from sinks.sink import Committable, CommittableName, Staging

_OF_THE_TOPIC: Final = frozenset(
    {
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
    }
)
"""Refusals of whatever is written to the topic: once somebody has corrected that, a restart succeeds."""


def explained(
    refused: RecordRefused,
    sink_id: str,
    writer: int,
    segments: Sequence[Committable],
    staging: Staging,
    left_out: LeftOut,
) -> RecordRefused:
    """The refusal with the place of its record, and the command that leaves it out.

    Args:
        segments: what was to be committed.
        left_out: rows that were left out of it.
    """
    record = refused.record
    place = None if record is None else _find(record, segments, staging, left_out)
    if record is None or place is None:
        return refused
    name, blames = place
    to_blame = [number for number, blame in blames.items() if blame == max(blames.values())]
    numbers = sorted({*to_blame, *left_out.get(name, ())})
    rows = " ".join(f"--row {number}" for number in numbers)
    where = f"segment {name.epoch}/{name.index} of writer {writer}, row {to_blame[0]}"
    error = record.error
    message = (
        f"sink {sink_id!r}: Kafka refused the record in {where} {record}: {error.str()} ({error.name()}). Nothing of "
        "its transaction is committed. Make the topic accept it (limits, permissions, partitions) and start again; or "
        f"save it in a file and go on without it, by `weir sink skip SCRIPT {shlex.quote(sink_id)} --writer {writer} "
        f"--segment {name.epoch}/{name.index} {rows} --save FILE --yes`, where SCRIPT is the job's, and start again"
    )
    kind = RecordRefused if error.code() in _OF_THE_TOPIC else CommitRefused
    return kind(message, record)


def lowered_limit(refused: RecordRefused, message_limit: int, topics: TopicCatalog) -> int | None:
    """The topic's `max.message.bytes` by now, if it is lower than `message_limit`; else `None`.

    A topic whose limit was lowered refuses whole batches, also of records that it takes one by one.
    """
    record = refused.record
    if record is None or record.error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        return None
    limit = topics.get(record.topic).max_message_bytes
    return limit if limit < message_limit else None


def culprit(
    refused: RecordRefused,
    segments: Sequence[Committable],
    staging: Staging,
    left_out: LeftOut,
    producer: Callable[[], TransactionalProducer],
) -> RecordRefused | None:
    """Which record is to blame: the client reports a whole batch as refused. So each record from its first one on
    is sent in a batch of its own, until one is refused.

    Args:
        segments: what was to be committed.
        left_out: rows that were left out of it.
        producer: makes one whose batches have one record each; the caller aborts its transaction.

    Returns:
        `None` if all were taken. No record may be named then, since it would be left out.
    """
    record = refused.record
    if record is None or record.error.code() in _OF_THE_TOPIC:
        return refused
    place = _find(record, segments, staging, left_out)
    if place is None:
        return refused
    name, first = place[0], min(place[1])
    rest = {**left_out, name: {*left_out.get(name, ()), *range(first)}}
    try:
        producer().probe(rows_to_commit([one for one in segments if one.name >= name], staging, rest))
    except RecordRefused as found:
        return found
    return None


def _find(
    record: RefusedRecord, segments: Sequence[Committable], staging: Staging, left_out: LeftOut
) -> tuple[CommittableName, dict[int, int]] | None:
    """The first segment that has the record, and the numbers of all its rows with this key and value, each with how
    much it is to blame."""
    for segment in segments:
        out = left_out.get(segment.name, ())
        found: dict[int, int] = {}
        first = 0
        for rows in read_rows(segment, staging):
            for i, value in enumerate(rows.values):
                if value == record.value and first + i not in out and _is(rows, i, record):
                    found[first + i] = _to_blame(rows, i, record.error)
            first += len(rows)
        if found:
            return segment.name, found
    return None


def _is(rows: KafkaRows, i: int, record: RefusedRecord) -> bool:
    partition = rows.partitions[i] if rows.partitions is not None else -1
    return (
        (rows.topics[i] if rows.topics is not None else rows.topic) == record.topic
        and (rows.keys[i] if rows.keys is not None else None) == record.key
        and partition in (-1, record.partition)
    )


def _to_blame(rows: KafkaRows, i: int, error: KafkaError) -> int:
    """Tells apart rows of one key and value, by what the client doesn't report: headers and timestamps."""
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE):
        return headers_size(rows.headers[i] if rows.headers is not None else None)
    timestamp = rows.timestamps[i] if rows.timestamps is not None else None
    if error.code() == KafkaError.INVALID_TIMESTAMP and timestamp is not None:
        return abs(timestamp - round(time.time() * 1000))
    return 0
