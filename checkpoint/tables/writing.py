"""A new savepoint: another one with changed state, or one from nothing but tables.

What it is made from stays as it is. The new one is complete once its `_metadata` is there, which comes last and says
what it was made from (`CheckpointMetadata.made_from`).
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import owner_of
from checkpoint.committables import SinkState
from checkpoint.elements import EdgeName
from checkpoint.in_flight import channel_state
from checkpoint.in_flight.channel_state import ChannelStateError
from checkpoint.key_groups import check_parallelism, key_group, range_of
from checkpoint.state.contents import ContentNotes, StateContent
from checkpoint.state.files import load_contents, load_folded_state
from checkpoint.state.snapshot_writer import FrozenGroup, write_snapshot
from checkpoint.state.timers import TIMER_STATES, timer_entry
from checkpoint.storage import savepoints
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path, subtask_name
from checkpoint.storage.restore import RestorePoint
from checkpoint.storage.savepoints import SavepointFolder
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.tables.changes import EncodedRows, KeyAndNamespace, SavepointChanges, StateName
from checkpoint.tables.keyed import check_state
from checkpoint.tables.point import NoSuchTable, reading, states_of_keys


@dataclass(frozen=True)
class NewPipeline:
    """What a savepoint is for that is made from nothing."""

    name: str
    max_parallelism: int
    """The pipeline's: a job can't restore a savepoint with another one."""
    parallelism: int = 1
    """In how many files a step's state is written. A job of any parallelism restores it."""


@dataclass
class Written:
    """What became of the states that changes were given for."""

    uri: str = ""
    rows: Counter[StateName] = field(default_factory=Counter)
    """How many rows each has now."""
    removed: Counter[StateName] = field(default_factory=Counter)
    """Rows that were there and are gone."""
    put: Counter[StateName] = field(default_factory=Counter)
    """Rows that are new, or were written over those that were there."""
    in_flight: int = 0
    """Records in flight, which a job that restores the savepoint processes."""
    in_flight_removed: int = 0
    """Records in flight of deleted keys that it lacks. Those that have no key yet can't be told from others."""


def write_savepoint(
    target: str, changes: SavepointChanges, base: RestorePoint | NewPipeline, version: str, sources: Iterable[str] = ()
) -> Written:
    """Write a savepoint into a folder that is empty or not there yet.

    Args:
        target: URI of its folder.
        base: the checkpoint or savepoint to take all else from.
        version: of Weir.
        sources: what the changes were made from, as `made_from` is to say.

    Raises:
        NoSuchTable: a deletion names a step or state that isn't there.
        DamagedFile: a file of `base` is missing, truncated or altered; names it.
        DeletedMeanwhile: the job of `base` has deleted it.
        StorageError: the folder is in use or can't be written; there is no new savepoint then.
        ValueError: the numbers of a new pipeline don't fit together.
    """
    with reading(*([] if isinstance(base, NewPipeline) else [base])):
        return _write_savepoint(target, changes, base, version, sources)


def _write_savepoint(
    target: str, changes: SavepointChanges, base: RestorePoint | NewPipeline, version: str, sources: Iterable[str]
) -> Written:
    metadata = _new(base, version) if isinstance(base, NewPipeline) else base.metadata
    if not isinstance(base, NewPipeline):
        _check_deletions(base, changes)
    written = Written()
    folder = savepoints.prepare(target)
    try:
        source = folder.storage if isinstance(base, NewPipeline) else base.storage
        parallelism = base.parallelism if isinstance(base, NewPipeline) else _parallelism(metadata)
        made = _Writing(source, folder.storage, metadata, changes, written, parallelism).metadata()
        written.in_flight = made.in_flight_records
        made = replace(
            made,
            kind=CheckpointKind.SAVEPOINT,
            weir_version=version,
            made_from=_made_from(base, changes, written, sources),
        )
        savepoints.complete(folder, made)
    except BaseException:
        _give_up(folder, metadata.ref)
        raise
    folder.release()
    written.uri = folder.storage.uri_of()
    return written


def _give_up(folder: SavepointFolder, ref: CheckpointRef) -> None:
    try:
        savepoints.abandon(folder, ref)
    except StorageError:
        pass  # without `_metadata` it is no savepoint; the reservation says that somebody began one


def _new(pipeline: NewPipeline, version: str) -> CheckpointMetadata:
    check_parallelism(pipeline.parallelism, pipeline.max_parallelism)
    return CheckpointMetadata(
        id=1,
        attempt=1,
        kind=CheckpointKind.SAVEPOINT,
        pipeline=pipeline.name,
        lineage=uuid.uuid4().hex,
        lineage_parent=None,
        max_parallelism=pipeline.max_parallelism,
        weir_version=version,
        trigger_time=time.time(),
        duration=0.0,
        options={},
        vertices={},
    )


def _parallelism(metadata: CheckpointMetadata) -> int:
    return max((vertex.parallelism for vertex in metadata.vertices.values()), default=1)


def _check_deletions(base: RestorePoint, changes: SavepointChanges) -> None:
    for one in changes.deleted:
        if one.state is not None and one.state not in TIMER_STATES:
            check_state(base, one.state, one.step)
        elif one.step is not None and one.step not in states_of_keys(base, one.step):
            raise NoSuchTable(
                f"step {one.step!r} has no state of keys in {base.ref.path}; these have: "
                f"{', '.join(sorted(states_of_keys(base))) or 'none'}"
            )


def _made_from(
    base: RestorePoint | NewPipeline, changes: SavepointChanges, written: Written, sources: Iterable[str]
) -> dict[str, Any]:
    from_point = None
    if not isinstance(base, NewPipeline):
        from_point = {
            "uri": base.uri,
            "identity": base.metadata.identity,
            "pipeline": base.metadata.pipeline,
            "checkpoint": base.ref.path,
        }
    states = sorted({*changes.replaced, *changes.put, *written.removed})
    return {
        "id": uuid.uuid4().hex,
        "at": time.time(),
        "base": from_point,
        "tables": list(sources),
        "changes": [
            {
                "step": name.step,
                "state": name.state,
                "replaced": name in changes.replaced,
                "put": written.put[name],
                "removed": written.removed[name],
            }
            for name in states
        ],
    }


class _Writing:
    """Writes the files of one savepoint."""

    def __init__(
        self,
        source: CheckpointStorage,
        target: CheckpointStorage,
        metadata: CheckpointMetadata,
        changes: SavepointChanges,
        written: Written,
        parallelism: int,
    ) -> None:
        """
        Args:
            parallelism: of steps that the metadata doesn't have.
        """
        self._source = source
        self._target = target
        self._old = metadata
        self._changes = changes
        self._written = written
        self._parallelism = parallelism
        self._copies: dict[FileHandle, FileHandle] = {}

    def metadata(self) -> CheckpointMetadata:
        """What the savepoint is made of, once all its files are written."""
        vertices = {
            name: VertexSnapshot(
                tuple(self._subtask(one, index, vertex.parallelism) for index, one in enumerate(vertex.subtasks))
            )
            for name, vertex in self._old.vertices.items()
        }
        for step in sorted(self._changes.steps() - self._old.step_ids):
            name = step
            while name in vertices:
                name += "+"
            subtasks = (
                SubtaskSnapshot({step: self._rewritten(step, OperatorSnapshot(), index, self._parallelism)})
                for index in range(self._parallelism)
            )
            vertices[name] = VertexSnapshot(tuple(subtasks))
        return replace(self._old, vertices=vertices)

    def _subtask(self, old: SubtaskSnapshot, index: int, parallelism: int) -> SubtaskSnapshot:
        operators = {step: self._operator(step, one, index, parallelism) for step, one in old.operators.items()}
        old = replace(old, operators=operators)
        if any(self._gone(edge) for edge in old.in_flight_rows):
            return self._without_keys(old, index)
        return replace(old, channel_state=tuple(self._copied(one, "in-flight", index) for one in old.channel_state))

    def _gone(self, edge: EdgeName) -> frozenset[bytes]:
        """The keys whose records on an edge go with all that they have."""
        whole = [one for one in self._changes.deleted if one.state is None and one.step in (None, edge.downstream)]
        return frozenset().union(*(one.keys for one in whole))

    def _without_keys(self, old: SubtaskSnapshot, index: int) -> SubtaskSnapshot:
        """Without the records in flight of deleted keys."""
        rows, size, files = Counter(old.in_flight_rows), old.in_flight_bytes, []
        for number, handle in enumerate(old.channel_state):
            try:
                data, lost, bytes_lost = channel_state.without_keys(self._source.read_file(handle), self._gone)
            except ChannelStateError as error:
                raise DamagedFile(f"{self._source.name_of(handle.path)} is damaged: {error}") from error
            files.append(self._target.write_file(self._path("in-flight", index, f"kept-{number}"), data))
            rows.subtract(lost)
            size -= bytes_lost
            self._written.in_flight_removed += lost.total()
        left = {edge: count for edge, count in rows.items() if count}
        return replace(old, channel_state=tuple(files), in_flight_rows=left, in_flight_bytes=size)

    def _operator(self, step: str, old: OperatorSnapshot, index: int, parallelism: int) -> OperatorSnapshot:
        whole = self._source.unspill(old)
        files = {file: self._copied(file, step, index) for file in whole.files}
        if any(old != new for old, new in files.items()):
            sink = SinkState.from_wire(whole.state["sink"]).with_files(files).to_wire()
            whole = replace(whole, state={**whole.state, "sink": sink}, files=tuple(files.values()))
        if step in self._changes.steps() or (self._changes.of_step(step) and old.keyed_state):
            whole = self._rewritten(step, whole, index, parallelism)
        else:
            copies = (replace(one, file=self._copied(one.file, step, index)) for one in whole.keyed_state)
            whole = replace(whole, keyed_state=tuple(copies))
        return self._target.spill(whole, self._path(step, index, "own", "msgpack"))

    def _copied(self, handle: FileHandle, step: str, index: int) -> FileHandle:
        """A file of the savepoint with the same content."""
        if handle not in self._copies:
            path = handle.path
            if not path.startswith(f"{self._old.ref.path}/"):
                path = self._path(step, index, f"copy-{len(self._copies)}")
            self._copies[handle] = savepoints.copy_file(self._source, handle, self._target, path)
        return self._copies[handle]

    def _path(self, step: str, index: int, kind: str, extension: str = "arrow") -> str:
        return private_path(self._old.ref, subtask_name(step, index), kind, extension)

    # -- state of keys --------------------------------------------------------------------------------------------

    def _rewritten(self, step: str, old: OperatorSnapshot, index: int, parallelism: int) -> OperatorSnapshot:
        """With the keyed state of the subtask changed."""
        mine = range_of(index, parallelism, self._old.max_parallelism)
        states, stamped = self._loaded(step, old.keyed_state)
        self._change(step, states, mine)
        groups = self._by_group(states, stamped)
        if not groups:
            return replace(old, keyed_state=())
        file = self._target.create(self._path(step, index, "written"))
        try:
            write_snapshot(
                groups,
                file.write,
                "lz4",
                operator=step,
                max_parallelism=self._old.max_parallelism,
                encoded=True,
                ttl=stamped,
                notes=ContentNotes(known=self._known(step, old)),
            )
            return replace(old, keyed_state=(StateFile(file.close()),))
        except BaseException:
            file.abort()
            raise

    def _known(self, step: str, old: OperatorSnapshot) -> dict[str, StateContent]:
        """What the values are that stay. What changes put was declared by nobody."""
        return {
            name: replace(content, declared=None, paged=None)
            if StateName(step, name) in self._changes.put
            else replace(content, paged=None)
            for name, content in load_contents(self._source, old.keyed_state).items()
            if StateName(step, name) not in self._changes.replaced
        }

    def _loaded(self, step: str, files: Sequence[StateFile]) -> tuple[dict[str, EncodedRows], dict[str, _Stamped]]:
        """The rows by state, and when they were written of states with a time to live."""
        states: dict[str, EncodedRows] = {}
        stamped: dict[str, _Stamped] = {}
        for batch in load_folded_state(self._source, files):
            if StateName(step, batch.state) in self._changes.replaced:
                self._written.removed[StateName(step, batch.state)] += len(batch.keys)
                continue
            places = map(KeyAndNamespace, batch.keys, batch.namespaces or [None] * len(batch.keys))
            states.setdefault(batch.state, {}).update(zip(places, batch.values, strict=True))
            if batch.clock is not None and batch.written is not None:
                stamps = stamped.setdefault(batch.state, _Stamped(batch.clock, {})).stamps
                stamps.update(zip(batch.keys, zip(batch.values, batch.written, strict=True), strict=True))
        return states, stamped

    def _change(self, step: str, states: dict[str, EncodedRows], mine: range) -> None:
        changes, written = self._changes, self._written
        for name, rows in self._of_step(changes.replaced, step, mine):
            states[name.state] = dict(rows)
            written.put[name] += len(rows)
        for name, rows in self._of_step(changes.put, step, mine):
            states.setdefault(name.state, {}).update(rows)
            written.put[name] += len(rows)
        for deletion in changes.deleted:
            for state, rows in states.items():
                if deletion.hits(step, state):
                    gone = [place for place in rows if owner_of(place.key) in deletion.keys]
                    for place in gone:
                        del rows[place]
                    if gone:
                        written.removed[StateName(step, state)] += len(gone)
        for state, rows in states.items():
            written.rows[StateName(step, state)] += len(rows)

    def _of_step(
        self, given: Mapping[StateName, EncodedRows], step: str, mine: range
    ) -> Iterator[tuple[StateName, EncodedRows]]:
        """The rows whose keys belong to the subtask."""
        for name, rows in given.items():
            if name.step == step:
                yield name, {place: value for place, value in rows.items() if self._group(place) in mine}

    def _group(self, place: KeyAndNamespace) -> int:
        return key_group(owner_of(place.key), self._old.max_parallelism)

    def _by_group(self, states: Mapping[str, EncodedRows], stamped: Mapping[str, _Stamped]) -> list[FrozenGroup]:
        groups: dict[int, dict[str, dict[bytes, Any]]] = {}
        for state in sorted(states, key=TIMER_STATES.__contains__):  # timers come last
            for place, value in states[state].items():
                group = self._group(place)
                kept: Any = stamped[state].kept(place.key, value) if state in stamped else value
                entry = place.key if place.namespace is None else timer_entry(place.namespace, group, place.key)
                groups.setdefault(group, {}).setdefault(state, {})[entry] = kept
        return [(group, list(groups[group].items())) for group in sorted(groups)]


@dataclass
class _Stamped:
    """When the entries of a state with a time to live were written (see `checkpoint.state.snapshot_format`)."""

    clock_name: str
    stamps: dict[bytes, tuple[bytes, bytes | None]]
    """By key: the value that they are of, and they themselves."""

    def kept(self, key: bytes, value: bytes) -> tuple[bytes | None, bytes]:
        """For a row: a value that was changed begins to live when the savepoint is restored."""
        of, stamps = self.stamps.get(key, (None, None))
        return (stamps if of is value else None), value

    def living(self, kept: tuple[bytes | None, bytes]) -> tuple[bytes | None, bytes]:
        """See `checkpoint.state.snapshot_writer.TtlRows`."""
        return kept
