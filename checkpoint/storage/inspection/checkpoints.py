"""One checkpoint or savepoint: how large it is, and what is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.committables import Committable, CommittableName, SinkState
from checkpoint.elements import EdgeName
from checkpoint.in_flight.channel_state import ChannelStateError, channels_of
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot, pack_state
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.storage import CheckpointStorage


@dataclass(frozen=True, slots=True)
class Summary:
    """What `_metadata` says at a glance."""

    ref: CheckpointRef
    uri: str
    """Its folder's URI: what a job can be started from."""
    kind: CheckpointKind
    pipeline: str
    trigger_time: float
    """Seconds since 1970."""
    duration: float
    """Seconds."""
    size: int
    """Bytes of all files that it refers to, and of its `_metadata`."""
    own_size: int
    """Bytes of those that no other checkpoint in the folder refers to: what its deletion would free."""
    files: int
    in_flight_rows: int
    in_flight_bytes: int
    """As flow control counted them."""
    uncommitted: int | None
    """Committables not known to be committed; `None`: they lie in files, which a summary doesn't read."""
    replaying: bool
    """Taken while restored in-flight data was replayed; a restore replays again."""
    ended: bool
    """All input had ended."""
    void_by: int | None
    """Attempt number of the owner that gave it up for an older restore; `None` if it is good."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A complete checkpoint whose `_metadata` is damaged or of another version's format."""

    ref: CheckpointRef
    uri: str
    problem: str
    void_by: int | None


@dataclass(frozen=True, slots=True)
class StateSize:
    """Bytes of a step's state."""

    inline: int = 0
    """In `_metadata`."""
    files: int = 0
    """In files of its own, since it was too large for that."""
    keyed: int = 0
    """Snapshots of the state backend: keyed state and timers."""
    staged: int = 0
    """Everything else that it refers to: a sink's output that isn't known to be committed."""

    @property
    def total(self) -> int:
        return self.inline + self.files + self.keyed + self.staged

    def __add__(self, other: StateSize) -> StateSize:
        return StateSize(
            self.inline + other.inline,
            self.files + other.files,
            self.keyed + other.keyed,
            self.staged + other.staged,
        )


@dataclass(frozen=True, slots=True)
class StepState:
    step: str
    vertex: str
    subtasks: Mapping[int, StateSize]
    """By subtask index; those without state of the step are missing."""

    @property
    def total(self) -> StateSize:
        return sum(self.subtasks.values(), StateSize())


@dataclass(frozen=True, slots=True)
class InFlight:
    edge: EdgeName
    rows: int
    size: int | None
    """Bytes as flow control counted them; `None`: the files that say so are damaged."""


@dataclass(frozen=True, slots=True)
class SourceState:
    step: str
    subtask: int
    state: Any
    """What the source's reader returned from `snapshot`: its own format."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Committables that are not known to be committed, of one writer."""

    sink: str
    writer: int
    segments: tuple[CommittableName, ...]
    """In the order of their commits."""
    rows: int | None
    """Records in them; `None`: the sink's payload doesn't say."""
    size: int | None
    """Bytes; `None`: neither the payload nor staged files say."""


@dataclass(frozen=True, slots=True)
class Details:
    summary: Summary
    weir_version: str
    lineage: str
    lineage_parent: tuple[str, int] | None
    """Lineage and checkpoint that this lineage branched off."""
    max_parallelism: int
    parallelism: Mapping[str, int]
    """By vertex."""
    options: Mapping[str, Any]
    steps: tuple[StepState, ...]
    in_flight: tuple[InFlight, ...]
    sources: tuple[SourceState, ...]
    pending: tuple[Pending, ...]
    made_from: Mapping[str, Any] | None
    """`CheckpointMetadata.made_from`."""
    problems: tuple[str, ...]
    """Files that had to be read for this and couldn't be; what they hold is missing here."""


def summary(
    metadata: CheckpointMetadata,
    uri: str,
    metadata_size: int,
    others: Iterable[CheckpointMetadata] = (),
    void_by: int | None = None,
) -> Summary:
    """
    Args:
        uri: of the checkpoint's folder.
        metadata_size: bytes of `_metadata`.
        others: all other checkpoints in the job's folder.
    """
    files = {handle.path: handle.size for handle in metadata.all_files() if not handle.inline}
    elsewhere = {handle.path for other in others for handle in other.all_files()}
    subtasks = [subtask for vertex in metadata.vertices.values() for subtask in vertex.subtasks]
    spilled = any(operator.state_file for subtask in subtasks for operator in subtask.operators.values())
    pending = [one for step in metadata.step_ids for one in _pending(step, metadata.operator(step))]
    return Summary(
        ref=metadata.ref,
        uri=uri,
        kind=metadata.kind,
        pipeline=metadata.pipeline,
        trigger_time=metadata.trigger_time,
        duration=metadata.duration,
        size=metadata_size + sum(files.values()),
        own_size=metadata_size + sum(size for path, size in files.items() if path not in elsewhere),
        files=len(files) + 1,
        in_flight_rows=metadata.in_flight_records,
        in_flight_bytes=sum(subtask.in_flight_bytes for subtask in subtasks),
        uncommitted=None if spilled else sum(len(one.segments) for one in pending),
        replaying=metadata.replaying,
        ended=metadata.ended,
        void_by=void_by,
    )


def details(storage: CheckpointStorage, metadata: CheckpointMetadata, summary: Summary) -> Details:
    """Reads channel state and what was too large for `_metadata`, too.

    Args:
        storage: where the file handles lead.

    Raises:
        StorageError: the storage can't be read; damaged files are in `problems`.
    """
    problems: list[str] = []
    sources: list[SourceState] = []
    pending: list[Pending] = []
    for step in sorted(metadata.step_ids):
        unspilled = []
        for index, snapshot in _by_subtask(metadata, step):
            try:
                snapshot = storage.unspill(snapshot)
            except DamagedFile as error:
                problems.append(str(error))
                continue
            unspilled.append(snapshot)
            if "source" in snapshot.state:
                sources.append(SourceState(step, index, snapshot.state["source"]))
        pending += _pending(step, unspilled)
    return Details(
        summary=summary,
        weir_version=metadata.weir_version,
        lineage=metadata.lineage,
        lineage_parent=metadata.lineage_parent,
        max_parallelism=metadata.max_parallelism,
        parallelism={name: vertex.parallelism for name, vertex in metadata.vertices.items()},
        options=metadata.options,
        steps=tuple(_step_states(metadata)),
        in_flight=tuple(_in_flight(storage, metadata, problems)),
        sources=tuple(sources),
        pending=tuple(pending),
        made_from=metadata.made_from,
        problems=tuple(problems),
    )


def _by_subtask(metadata: CheckpointMetadata, step: str) -> Iterator[tuple[int, OperatorSnapshot]]:
    for vertex in metadata.vertices.values():
        for index, subtask in enumerate(vertex.subtasks):
            if step in subtask.operators:
                yield index, subtask.operators[step]


def _step_states(metadata: CheckpointMetadata) -> Iterator[StepState]:
    for name, vertex in metadata.vertices.items():
        for step in sorted({step for subtask in vertex.subtasks for step in subtask.operators}):
            yield StepState(
                step,
                name,
                {
                    index: _size(subtask.operators[step])
                    for index, subtask in enumerate(vertex.subtasks)
                    if step in subtask.operators
                },
            )


def _size(snapshot: OperatorSnapshot) -> StateSize:
    return StateSize(
        inline=len(pack_state(snapshot.state)) if snapshot.state else 0,
        files=snapshot.state_file.size if snapshot.state_file else 0,
        keyed=_bytes_in(listed.file for listed in snapshot.keyed_state),
        staged=_bytes_in(snapshot.files),
    )


def _bytes_in(files: Iterable[FileHandle]) -> int:
    return sum(file.size for file in set(files))


def _in_flight(storage: CheckpointStorage, metadata: CheckpointMetadata, problems: list[str]) -> Iterator[InFlight]:
    sizes: Counter[EdgeName] = Counter()
    damaged = False
    for vertex in metadata.vertices.values():
        for subtask in vertex.subtasks:
            for handle in subtask.channel_state:
                try:
                    for channel in channels_of(storage.read_file(handle)):
                        sizes[channel.channel.edge] += channel.size
                except (DamagedFile, ChannelStateError) as error:
                    damaged = True
                    problems.append(str(error) if isinstance(error, DamagedFile) else f"{handle.path}: {error}")
    for edge, rows in sorted(metadata.in_flight_rows().items()):
        yield InFlight(edge, rows, None if damaged else sizes[edge])


def _pending(step: str, snapshots: Iterable[OperatorSnapshot]) -> list[Pending]:
    held = SinkState.from_wire(*(snapshot.state["sink"] for snapshot in snapshots if "sink" in snapshot.state))
    return [
        Pending(step, writer, tuple(one.name for one in found), _said(found, "rows"), _size_of(found))
        for writer, found in sorted(held.pending.items())
        if found
    ]


def _said(committables: Sequence[Committable], what: str) -> int | None:
    """What all payloads together say under a name."""
    values = [one.payload.get(what) if isinstance(one.payload, Mapping) else None for one in committables]
    return sum(values) if all(isinstance(value, int) for value in values) else None  # type: ignore[arg-type]


def _size_of(committables: Sequence[Committable]) -> int | None:
    said = _said(committables, "bytes")
    if said is None and any(one.files for one in committables):
        return _bytes_in(file for one in committables for file in one.files)
    return said
