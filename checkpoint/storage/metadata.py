"""What a checkpoint is made of: snapshots as subtasks acknowledge them, and `_metadata`, which holds them all.

Small state lies inline, as msgpack; what is larger lies in files that the snapshots refer to by handle.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import decode_opaquely, encode
from checkpoint.elements import EdgeName
from checkpoint.in_flight.edges import SnapshotEdge, rows_from_wire, rows_to_wire
from checkpoint.storage import checksummed_json
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.naming import CheckpointRef

FORMAT: Final = 3
"""Version of the format of `_metadata`."""
_FORMAT_WITH_CHANGES: Final = 4
"""Of metadata that list files of changes, which versions of Weir that know format 3 only can't read."""
_FORMAT_WITH_INLINE: Final = 5
"""Of metadata that hold the content of small files, which versions of Weir that know formats 3 and 4 can't read."""


class MetadataError(ValueError):
    """`_metadata` is truncated, altered or malformed."""


class UnsupportedFormat(ValueError):
    """`_metadata` has a format that this version of Weir can't read."""


def pack_state(state: Mapping[str, Any]) -> bytes:
    """
    Raises:
        EncodingError: a value that can't be kept.
    """
    return encode(dict(state))


def unpack_state(data: bytes) -> dict[str, Any]:
    state: dict[str, Any] = decode_opaquely(data)  # without the classes of the job
    return state


def _state_from_wire(data: bytes | str) -> dict[str, Any]:
    return unpack_state(base64.b64decode(data, validate=True) if isinstance(data, str) else data)


def _handles(wire: list[list[Any]]) -> tuple[FileHandle, ...]:
    return tuple(FileHandle.from_wire(handle) for handle in wire)


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """One step's state in one subtask: operator, source or sink."""

    state: Mapping[str, Any] = field(default_factory=dict)
    """What is small, as a value that `codec.encode` takes, for each name that the step chooses: a source's position,
    operator state, a sink's committables and committer states by writer."""
    state_file: FileHandle | None = None
    """Where `state` lies when it is too large to be inline (see `CheckpointStorage.spill`); `state` is empty then."""
    keyed_state: tuple[StateFile, ...] = ()
    """What the state backend wrote: one file with all, or files of changes, oldest first."""
    files: tuple[FileHandle, ...] = ()
    """Every other file that `state` refers to; kept while a retained checkpoint refers to it."""

    def all_files(self) -> Iterator[FileHandle]:
        if self.state_file is not None:
            yield self.state_file
        yield from (listed.file for listed in self.keyed_state)
        yield from self.files

    def to_wire(self) -> dict[str, Any]:
        return {
            "state": pack_state(self.state),
            "state_file": None if self.state_file is None else self.state_file.to_wire(),
            "keyed_state": [listed.to_wire() for listed in self.keyed_state],
            "files": [handle.to_wire() for handle in self.files],
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> OperatorSnapshot:
        state_file = wire["state_file"]
        return cls(
            state=_state_from_wire(wire["state"]),
            state_file=None if state_file is None else FileHandle.from_wire(state_file),
            keyed_state=tuple(StateFile.from_wire(listed) for listed in wire["keyed_state"]),
            files=_handles(wire["files"]),
        )


@dataclass(frozen=True, slots=True)
class SubtaskSnapshot:
    """What a subtask acknowledges a checkpoint with: the snapshots of its chained steps, and what was in flight."""

    operators: Mapping[str, OperatorSnapshot]
    """By step id."""
    channel_state: tuple[FileHandle, ...] = ()
    """What was in flight (see `checkpoint.in_flight.channel_state`)."""
    in_flight_rows: Mapping[EdgeName, int] = field(default_factory=dict)
    """Records in `channel_state` by edge."""
    in_flight_bytes: int = 0

    @property
    def in_flight_records(self) -> int:
        return sum(self.in_flight_rows.values())

    def all_files(self) -> Iterator[FileHandle]:
        for snapshot in self.operators.values():
            yield from snapshot.all_files()
        yield from self.channel_state

    def to_wire(self) -> dict[str, Any]:
        """A msgpack-able value."""
        return {
            "operators": {step: snapshot.to_wire() for step, snapshot in self.operators.items()},
            "state": pack_state({}),  # has nothing in it, and is part of the format
            "channel_state": [handle.to_wire() for handle in self.channel_state],
            "in_flight_rows": rows_to_wire(self.in_flight_rows),
            "in_flight_bytes": self.in_flight_bytes,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> SubtaskSnapshot:
        return cls(
            operators={step: OperatorSnapshot.from_wire(snapshot) for step, snapshot in wire["operators"].items()},
            channel_state=_handles(wire["channel_state"]),
            in_flight_rows=rows_from_wire(wire["in_flight_rows"]),
            in_flight_bytes=wire["in_flight_bytes"],
        )


@dataclass(frozen=True, slots=True)
class VertexSnapshot:
    """A vertex of the job graph (steps chained together)."""

    subtasks: tuple[SubtaskSnapshot, ...]
    """By subtask index."""

    @property
    def parallelism(self) -> int:
        return len(self.subtasks)


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """A completed checkpoint."""

    id: int
    attempt: int
    """The attempt that took it."""
    kind: CheckpointKind
    pipeline: str
    lineage: str
    """Id of the history that it belongs to (see `sinks.sink.Lineage`)."""
    lineage_parent: tuple[str, int] | None
    """Lineage and checkpoint that this lineage branched off."""
    max_parallelism: int
    weir_version: str
    trigger_time: float
    """Seconds since 1970."""
    duration: float
    """Seconds from the trigger to the last acknowledgement."""
    options: Mapping[str, Any]
    """JSON-able, for readers only."""
    vertices: Mapping[str, VertexSnapshot]
    """By vertex id."""
    edges: Mapping[EdgeName, SnapshotEdge] = field(default_factory=dict)
    """All edges of the job graph as it was, those between chained steps included."""
    replaying: bool = False
    """Triggered before all restored in-flight data was replayed: a restore has to replay again."""
    ended: bool = False
    """All input had ended, or was told to by somebody who stopped the job; event time ends with it, here and there or
    everywhere, so that a restore begins a new one."""
    made_from: Mapping[str, Any] | None = None
    """What a savepoint was made from that was written and not taken (see `checkpoint.tables.writing`); JSON-able. Its
    `id` is that of no other."""

    @property
    def ref(self) -> CheckpointRef:
        return CheckpointRef(self.id, self.attempt)

    @property
    def identity(self) -> str:
        """Tells it from every checkpoint of any job, wherever it lies."""
        made = "" if self.made_from is None else f"+{self.made_from['id']}"
        return f"{self.lineage}/{self.id}-{self.attempt}{made}"

    @property
    def step_ids(self) -> frozenset[str]:
        """Ids of all steps with a snapshot in here."""
        return frozenset(
            step for vertex in self.vertices.values() for subtask in vertex.subtasks for step in subtask.operators
        )

    @property
    def in_flight_records(self) -> int:
        return sum(self.in_flight_rows().values())

    def in_flight_rows(self) -> dict[EdgeName, int]:
        """Records that were in flight, by edge; edges without any are left out."""
        rows: Counter[EdgeName] = Counter()
        for vertex in self.vertices.values():
            for subtask in vertex.subtasks:
                rows.update(subtask.in_flight_rows)
        return {edge: count for edge, count in rows.items() if count}

    def without_in_flight(self) -> CheckpointMetadata:
        """The checkpoint as if nothing had been in flight."""
        vertices = {
            id: VertexSnapshot(
                tuple(replace(s, channel_state=(), in_flight_rows={}, in_flight_bytes=0) for s in vertex.subtasks)
            )
            for id, vertex in self.vertices.items()
        }
        return replace(self, vertices=vertices)

    def operator(self, step_id: str) -> tuple[OperatorSnapshot, ...]:
        """The step's snapshots by the subtask index of then; empty if it has none. How it was chained is no matter."""
        return tuple(
            subtask.operators[step_id]
            for vertex in self.vertices.values()
            for subtask in vertex.subtasks
            if step_id in subtask.operators
        )

    def all_files(self) -> Iterator[FileHandle]:
        """Every file that the checkpoint refers to, those whose content is inline included; a file may come more than
        once."""
        for vertex in self.vertices.values():
            for subtask in vertex.subtasks:
                yield from subtask.all_files()

    def _format(self) -> int:
        if any(handle.inline for handle in self.all_files()):
            return _FORMAT_WITH_INLINE
        return FORMAT if self._lists_whole_files() else _FORMAT_WITH_CHANGES

    def _lists_whole_files(self) -> bool:
        operators = (o for v in self.vertices.values() for s in v.subtasks for o in s.operators.values())
        return all(listed.groups is None for operator in operators for listed in operator.keyed_state)

    def to_bytes(self) -> bytes:
        """As `_metadata` holds it (see `checkpoint.storage.checksummed_json`).

        Raises:
            TypeError: `options` has a value that JSON can't carry.
        """
        wire = {
            "format": self._format(),
            "id": self.id,
            "epoch": self.attempt,
            "kind": self.kind.value,
            "pipeline": self.pipeline,
            "lineage": self.lineage,
            "lineage_parent": self.lineage_parent,
            "max_parallelism": self.max_parallelism,
            "weir_version": self.weir_version,
            "trigger_time": self.trigger_time,
            "duration": self.duration,
            "draining": self.replaying,
            "ended": self.ended,
            "options": dict(self.options),
            "edges": [[*name, *edge.to_wire()] for name, edge in self.edges.items()],
            "vertices": {
                vertex_id: {
                    "parallelism": vertex.parallelism,
                    "subtasks": [subtask.to_wire() for subtask in vertex.subtasks],
                }
                for vertex_id, vertex in self.vertices.items()
            },
        }
        if self.made_from is not None:
            wire["made_from"] = dict(self.made_from)
        return checksummed_json.dumps(wire)

    @classmethod
    def from_bytes(cls, data: bytes) -> CheckpointMetadata:
        """
        Raises:
            MetadataError: truncated, altered or malformed.
            UnsupportedFormat: written by a version of Weir with another format.
        """
        try:
            wire = checksummed_json.loads(data)
        except checksummed_json.ChecksumMismatch as error:
            raise MetadataError(str(error)) from error
        if wire.get("format") not in (FORMAT, _FORMAT_WITH_CHANGES, _FORMAT_WITH_INLINE):
            raise UnsupportedFormat(
                f"has format {wire.get('format')!r}; this version of Weir reads formats {FORMAT} to "
                f"{_FORMAT_WITH_INLINE}"
            )
        try:
            parent = wire["lineage_parent"]
            return cls(
                id=wire["id"],
                attempt=wire["epoch"],
                kind=CheckpointKind(wire["kind"]),
                pipeline=wire["pipeline"],
                lineage=wire["lineage"],
                lineage_parent=None if parent is None else (parent[0], parent[1]),
                max_parallelism=wire["max_parallelism"],
                weir_version=wire["weir_version"],
                trigger_time=wire["trigger_time"],
                duration=wire["duration"],
                options=wire["options"],
                vertices={
                    vertex_id: VertexSnapshot(
                        tuple(SubtaskSnapshot.from_wire(subtask) for subtask in vertex["subtasks"])
                    )
                    for vertex_id, vertex in wire["vertices"].items()
                },
                edges={
                    EdgeName(upstream, downstream, port): SnapshotEdge.from_wire(edge)
                    for upstream, downstream, port, *edge in wire["edges"]
                },
                replaying=wire["draining"],
                ended=wire["ended"],
                made_from=wire.get("made_from"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MetadataError(f"malformed: {error!r}") from error
