"""What a checkpoint holds besides state of keys, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from checkpoint.codec import decode_key, encode
from checkpoint.codec import decode_opaquely as decode
from checkpoint.committables import SinkState
from checkpoint.in_flight.channel_state import ChannelStateError, read_rows
from checkpoint.state.operator_lists import KINDS
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.inspection.checkpoints import Summary, Unreadable
from checkpoint.storage.inspection.folders import describe_job, look_at, summarise
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.restore import RestorePoint
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.tables.json_form import to_json
from checkpoint.tables.point import Wanted, snapshots

_KINDS_IN_FLIGHT: Final = {0: "record", 1: "watermark", 2: "idle", 3: "active"}


class Position(Protocol):
    """Where a source goes on in one split (see `sources.source.Position`)."""

    @property
    def split(self) -> str: ...
    @property
    def next(self) -> Any: ...
    @property
    def end(self) -> Any: ...
    @property
    def ended(self) -> bool: ...


Positions = Callable[[Any], Sequence[Position] | None]
"""The positions in what a source's reader returned from `snapshot`; `None` if that isn't known."""


@dataclass(frozen=True)
class SnapshotPart:
    """What one subtask has of one step, apart from state of keys. Pickles."""

    storage: CheckpointStorage
    step: str
    subtask: int
    snapshot: OperatorSnapshot

    def state(self) -> Mapping[str, Any]:
        """
        Raises:
            DamagedFile: the file that it lies in is.
        """
        return self.storage.unspill(self.snapshot).state


def snapshot_parts(point: RestorePoint, wanted: Wanted) -> list[SnapshotPart]:
    """
    Raises:
        NoSuchTable: there is no such step.
    """
    return [SnapshotPart(point.storage, *one) for one in snapshots(point.metadata, wanted.step)]


# -- operators' own state -----------------------------------------------------------------------------------------

OPERATOR_SCHEMA: Final = pa.schema(
    [
        pa.field("step", pa.string(), nullable=False),
        pa.field("subtask", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("place", pa.int64()),
        pa.field("key_json", pa.string()),
        pa.field("value_json", pa.string(), nullable=False),
        pa.field("value_bytes", pa.binary(), nullable=False),
    ]
)


def operator_rows(part: SnapshotPart, wanted: Wanted) -> Iterator[dict[str, Any]]:
    """State of an operator that belongs to no key: entries of broadcast state, items of operator lists, and what
    `snapshot` returned."""
    for kind, name, place, key, value in _own_state(part.state()):
        if wanted.state in (None, name):
            yield {
                "step": part.step,
                "subtask": part.subtask,
                "kind": kind,
                "state": name,
                "place": place,
                "key_json": None if key is None else to_json(decode(key)),
                "value_json": to_json(decode(value)),
                "value_bytes": value,
            }


def _own_state(state: Mapping[str, Any]) -> Iterator[tuple[str, str, int | None, bytes | None, bytes]]:
    if "operator" in state:
        yield "operator", "", None, None, encode(state["operator"])
    for name, entries in state.get("broadcast", {}).items():
        for key, value in entries.items():
            yield "broadcast", name, None, key, value
    for kind in KINDS:
        for name, chunks in state.get(kind, {}).items():
            items = (item for _, data, *_ in chunks for item in decode(data))
            for place, item in enumerate(items):
                yield kind, name, place, None, item


# -- records in flight --------------------------------------------------------------------------------------------

IN_FLIGHT_SCHEMA: Final = pa.schema(
    [
        pa.field("upstream", pa.string(), nullable=False),
        pa.field("upstream_subtask", pa.int32(), nullable=False),
        pa.field("downstream", pa.string(), nullable=False),
        pa.field("downstream_subtask", pa.int32(), nullable=False),
        pa.field("port", pa.string(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("timestamp", pa.int64()),
        pa.field("key_group", pa.int16()),
        pa.field("key_json", pa.string()),
        pa.field("value_json", pa.string()),
        pa.field("key_bytes", pa.binary()),
        pa.field("value_bytes", pa.binary()),
    ]
)


@dataclass(frozen=True)
class InFlightPart:
    """One file of what was in flight. Pickles."""

    storage: CheckpointStorage
    handle: FileHandle
    wanted: Wanted


def in_flight_parts(point: RestorePoint, wanted: Wanted) -> list[InFlightPart]:
    return [
        InFlightPart(point.storage, handle, wanted)
        for vertex in point.metadata.vertices.values()
        for subtask in vertex.subtasks
        for handle in subtask.channel_state
    ]


def in_flight_rows(part: InFlightPart) -> Iterator[dict[str, Any]]:
    """Records, watermarks and idle statuses on their way; of one step, those on their way to it.

    Raises:
        DamagedFile: the file is missing, truncated or altered.
    """
    name = part.storage.name_of(part.handle.path)
    try:
        channels, batches = read_rows(part.storage.read_file(part.handle))
        for batch in batches:
            for row in batch.to_pylist():
                one = channels[row["channel"]]
                edge = one.channel.edge
                key, value = row["key"], row["value"]
                if part.wanted.step not in (None, edge.downstream) or part.wanted.key not in (None, key):
                    continue
                yield {
                    "upstream": edge.upstream,
                    "upstream_subtask": one.channel.upstream,
                    "downstream": edge.downstream,
                    "downstream_subtask": one.channel.downstream,
                    "port": edge.port,
                    "part": one.part.value,
                    "sequence": row["sequence"],
                    "kind": _KINDS_IN_FLIGHT[row["kind"]],
                    "timestamp": row["timestamp"],
                    "key_group": row["key_group"],
                    "key_json": None if key is None else to_json(decode_key(key)),
                    "value_json": None if value is None else to_json(decode(value)),
                    "key_bytes": key,
                    "value_bytes": value,
                }
    except (ChannelStateError, ValueError, IndexError) as error:
        raise DamagedFile(f"{name} is damaged: {error}") from error


# -- positions of sources -----------------------------------------------------------------------------------------

SOURCES_SCHEMA: Final = pa.schema(
    [
        pa.field("step", pa.string(), nullable=False),
        pa.field("subtask", pa.int32(), nullable=False),
        pa.field("split", pa.string()),
        pa.field("next", pa.string()),
        pa.field("end", pa.string()),
        pa.field("ended", pa.bool_()),
        pa.field("state_json", pa.string(), nullable=False),
    ]
)


def source_rows(part: SnapshotPart, positions: Positions) -> Iterator[dict[str, Any]]:
    """A row for each split that a source reads; one without split for a source whose positions aren't known."""
    state = part.state()
    if "source" not in state:
        return
    row = {"step": part.step, "subtask": part.subtask, "state_json": to_json(state["source"])}
    found = positions(state["source"])
    if found is None:
        yield row
    for at in found or ():
        ends = {"next": at.next, "end": at.end}
        texts = {name: None if value is None else str(value) for name, value in ends.items()}
        yield {**row, "split": at.split, "ended": at.ended, **texts}


# -- output that is not committed ---------------------------------------------------------------------------------

UNCOMMITTED_SCHEMA: Final = pa.schema(
    [
        pa.field("step", pa.string(), nullable=False),
        pa.field("subtask", pa.int32(), nullable=False),
        pa.field("writer", pa.int32(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("files", pa.list_(pa.string()), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("payload_json", pa.string(), nullable=False),
    ]
)


def uncommitted_rows(part: SnapshotPart) -> Iterator[dict[str, Any]]:
    """What sinks have prepared and not committed, as far as the checkpoint knows."""
    state = part.state()
    if "sink" not in state:
        return
    for writer, committables in SinkState.from_wire(state["sink"]).pending.items():
        for one in committables:
            yield {
                "step": part.step,
                "subtask": part.subtask,
                "writer": writer,
                "epoch": one.name.epoch,
                "index": one.name.index,
                "files": [file.path for file in one.files],
                "bytes": sum(file.size for file in one.files),
                "payload_json": to_json(one.payload),
            }


# -- checkpoints --------------------------------------------------------------------------------------------------

CHECKPOINTS_SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("attempt", pa.int64(), nullable=False),
        pa.field("uri", pa.string(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("pipeline", pa.string()),
        pa.field("triggered", pa.timestamp("us", tz="UTC")),
        pa.field("duration", pa.float64()),
        pa.field("bytes", pa.int64()),
        pa.field("own_bytes", pa.int64()),
        pa.field("files", pa.int64()),
        pa.field("in_flight_rows", pa.int64()),
        pa.field("void_by", pa.int64()),
        pa.field("problem", pa.string()),
    ]
)


def checkpoint_rows(uri: str) -> Iterator[dict[str, Any]]:
    """The checkpoints and savepoints in a folder (see `inspection.folders.look_at`).

    Raises:
        StorageError: it can't be read.
    """
    folder = look_at(uri)
    found: list[Summary | Unreadable] = [one for job in folder.jobs for one in describe_job(job).checkpoints]
    found += [summarise(one) for one in ([folder.single] if folder.single else folder.savepoints)]
    for one in found:
        row: dict[str, Any] = {"id": one.ref.id, "attempt": one.ref.attempt, "uri": one.uri, "void_by": one.void_by}
        if isinstance(one, Unreadable):
            yield {**row, "problem": one.problem}
            continue
        yield {
            **row,
            "kind": one.kind.value,
            "pipeline": one.pipeline,
            "triggered": round(one.trigger_time * 1e6),
            "duration": one.duration,
            "bytes": one.size,
            "own_bytes": one.own_size,
            "files": one.files,
            "in_flight_rows": one.in_flight_rows,
        }
