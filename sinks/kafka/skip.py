"""Going on without records that Kafka refuses: they are saved in a file, and the rest is committed as ever."""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from checkpoint.counted import counted
from sinks.kafka.committer import KafkaCommitter
from sinks.kafka.errors import KafkaSinkError
from sinks.kafka.rows import Headers
from sinks.kafka.staged_rows import read_rows
from sinks.sink import Committable, CommittableName, Staging


class NotSkipped(KafkaSinkError):
    """What was to be left out isn't there, or can't be saved; nothing was committed."""


@dataclass(frozen=True, slots=True)
class StagedRecord:
    segment: CommittableName
    row: int
    """Its number in the segment, from 0."""
    topic: str
    partition: int | None
    """`None`: by the key."""
    timestamp: int | None
    """Milliseconds since the epoch; `None`: the time of sending."""
    key: bytes | None
    value: bytes | None
    headers: Headers

    def to_json(self) -> bytes:
        """One line; keys and values, which are any bytes, in base64."""
        fields = {
            "segment": f"{self.segment.epoch}/{self.segment.index}",
            "row": self.row,
            "topic": self.topic,
            "partition": self.partition,
            "timestamp": self.timestamp,
            "key": _base64(self.key),
            "value": _base64(self.value),
            "headers": [[name, _base64(value)] for name, value in self.headers],
        }
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def find_segment(committables: Sequence[Committable], name: CommittableName) -> Committable:
    """
    Raises:
        NotSkipped: there is no such segment among them.
    """
    for one in committables:
        if one.name == name:
            return one
    there = ", ".join(f"{one.name.epoch}/{one.name.index}" for one in committables) or "none"
    raise NotSkipped(
        f"segment {name.epoch}/{name.index} is not waiting to be committed: it is committed already, or was never "
        f"prepared. Waiting are: {there}"
    )


def staged_records(segment: Committable, staging: Staging, rows: Collection[int]) -> list[StagedRecord]:
    """Those with these numbers, in order.

    Raises:
        NotSkipped: the segment has fewer.
        DamagedFile: it can't be read.
    """
    found = [record for record in _records(segment, staging) if record.row in rows]
    missing = sorted({*rows} - {record.row for record in found})
    if missing:
        name = segment.name
        raise NotSkipped(
            f"segment {name.epoch}/{name.index} has no row {missing[0]}: its "
            f"{counted(segment.payload['rows'], 'row is', 'rows are')} numbered from 0"
        )
    return found


def skip(
    committers: Mapping[int, KafkaCommitter],
    restored: Mapping[int, Sequence[Committable]],
    writer: int,
    name: CommittableName,
    rows: Collection[int],
    save: Path,
    staging: Staging,
) -> int:
    """Commit all that waits up to the segment, and the segment without these rows, which are saved before.

    It begins as a restore does, and commits epoch by epoch over all writers: after rescaling, a key's older records may
    belong to another writer. The marker then says that the segment is committed, so that the checkpoint that holds
    it can still be restored, and older ones can't.

    Args:
        committers: by writer: of the segment's, and of all that have older epochs waiting. Not opened yet; closed at
            the end.
        restored: what the checkpoint has of theirs.
        writer: whose segment it is.

    Returns:
        How many segments were committed.

    Raises:
        NotSkipped: there is no such segment or row, or the file can't be written, or exists.
        CommitRefused: Kafka refuses another record, too.
        KafkaSinkError: as the committer's `open` and `commit`.
        DamagedFile: a segment can't be read.
        Fenced: another driver owns the job.
    """
    try:
        todo = {each: committer.open(restored.get(each, ())) for each, committer in committers.items()}
        records = staged_records(find_segment(todo[writer], name), staging, rows)
        save_records(save, records)
        committers[writer].leave_out(name, rows)
        upto = to_commit(todo, writer, name)
        for (epoch, each), segments in sorted(upto.items()):
            committers[each].commit(epoch, segments)
        return sum(map(len, upto.values()))
    finally:
        for committer in committers.values():
            committer.close()


def to_commit(
    waiting: Mapping[int, Sequence[Committable]], writer: int, name: CommittableName
) -> dict[tuple[int, int], list[Committable]]:
    """By epoch and writer: what must be committed with a writer's segment, which is the last."""
    found: dict[tuple[int, int], list[Committable]] = {}
    for each, committables in waiting.items():
        for one in committables:
            if one.name.epoch < name.epoch or (each == writer and one.name <= name):
                found.setdefault((one.name.epoch, each), []).append(one)
    return found


def save_records(path: Path, records: Sequence[StagedRecord]) -> None:
    """Write a new file of JSON lines; durable on return.

    Raises:
        NotSkipped: it exists, or can't be written.
    """
    try:
        with path.open("xb") as file:
            file.writelines(record.to_json() for record in records)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileExistsError as error:
        raise NotSkipped(f"{path} exists; name a new file for the records to be saved in") from error
    except OSError as error:
        raise NotSkipped(f"the records can't be saved in {path}: {error}") from error


def _records(segment: Committable, staging: Staging) -> Iterator[StagedRecord]:
    row = 0
    for rows in read_rows(segment, staging):
        for i, value in enumerate(rows.values):
            partition = rows.partitions[i] if rows.partitions is not None else -1
            yield StagedRecord(
                segment.name,
                row,
                (rows.topics[i] if rows.topics is not None else rows.topic) or "",
                partition if partition >= 0 else None,
                rows.timestamps[i] if rows.timestamps is not None else None,
                rows.keys[i] if rows.keys is not None else None,
                value,
                (rows.headers[i] if rows.headers is not None else None) or (),
            )
            row += 1


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
