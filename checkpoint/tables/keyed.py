"""State of keys and timers as tables: one part for each subtask, so that many can be read at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from checkpoint.codec import decode_key
from checkpoint.codec import decode_opaquely as decode
from checkpoint.key_groups import key_group, range_of
from checkpoint.shown import shown
from checkpoint.state.files import load_folded_state
from checkpoint.state.snapshot_format import StateBatch
from checkpoint.state.timers import EVENT_TIMERS, PROCESSING_TIMERS, TIMER_STATES
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.handles import StateFile
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.restore import RestorePoint
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.tables.columns import Inferred, column, field
from checkpoint.tables.point import NoSuchTable, Wanted, snapshots, states_of_keys

CLOCKS: Final = {"event": EVENT_TIMERS, "processing": PROCESSING_TIMERS}
"""The states that timers are kept in, by the clock that they follow."""
CLOCK_OF: Final = {state: clock for clock, state in CLOCKS.items()}
_LOWEST: Final = -(2**63)


class Types(NamedTuple):
    """The Arrow types of keys and values; `None`: JSON."""

    key: Any = None
    value: Any = None


@dataclass(frozen=True)
class KeyedPart:
    """What the files of one subtask have of a table. Pickles."""

    storage: CheckpointStorage
    step: str
    subtask: int
    files: tuple[StateFile, ...]
    """Oldest first."""
    wanted: Wanted
    groups: range | None
    """Key groups to read; `None`: all."""

    def rows(self, timers: bool) -> Iterator[StateBatch]:
        """With encoded values; of the wanted states and keys.

        Raises:
            DamagedFile: the file is missing, truncated or altered; names it.
        """
        for batch in load_folded_state(self.storage, self.files, self.groups):
            if (batch.state in TIMER_STATES) != timers or self.wanted.state not in (None, batch.state):
                continue
            if self.wanted.key is None:
                yield batch
                continue
            places = [i for i, key in enumerate(batch.keys) if key == self.wanted.key]
            if places:
                yield batch.part(places)

    def name(self) -> str:
        """The files, for messages."""
        return ", ".join(self.storage.name_of(listed.file.path) for listed in self.files)


def keyed_parts(point: RestorePoint, wanted: Wanted, timers: bool) -> list[KeyedPart]:
    """The parts that may hold rows that are wanted.

    Raises:
        NoSuchTable: the checkpoint has no such step or state.
        DamagedFile: a file that says which states there are is damaged.
    """
    metadata = point.metadata
    if wanted.state is not None and not timers:
        check_state(point, wanted.state, wanted.step)
    group = None if wanted.key is None else key_group(wanted.key, metadata.max_parallelism)
    groups = None if group is None else range(group, group + 1)
    parallelism = parallelisms(metadata)
    return [
        KeyedPart(point.storage, step, subtask, snapshot.keyed_state, wanted, groups)
        for step, subtask, snapshot in snapshots(metadata, wanted.step)
        if snapshot.keyed_state
        if group is None or group in range_of(subtask, parallelism[step], metadata.max_parallelism)
    ]


def parallelisms(metadata: CheckpointMetadata) -> dict[str, int]:
    """By step."""
    return {
        step: vertex.parallelism
        for vertex in metadata.vertices.values()
        for subtask in vertex.subtasks
        for step in subtask.operators
    }


def check_state(point: RestorePoint, state: str, step: str | None) -> None:
    """
    Raises:
        NoSuchTable: the checkpoint has no such state of keys; lists those that it has.
    """
    there = states_of_keys(point, step)
    # Files of earlier versions don't say what they hold.
    if any(state in names - TIMER_STATES or not names for names in there.values()):
        return
    known = "; ".join(f"{id}: {', '.join(sorted(names - TIMER_STATES))}" for id, names in sorted(there.items()))
    whose = f" of step {step!r}" if step else ""
    raise NoSuchTable(f"{point.ref.path} holds no state {state!r}{whose}. It holds, of keys, {known or 'nothing'}")


def inferred(parts: Sequence[KeyedPart], timers: bool) -> Types:
    """The types of the columns, from all that is there. Reads everything.

    Raises:
        DamagedFile: as `KeyedPart.rows`.
    """
    keys, values = Inferred(), Inferred()
    for part in parts:
        for batch in part.rows(timers):
            keys.add(map(decode_key, batch.keys))
            if not timers:
                values.add(map(decode, batch.values))
    return Types(keys.type, values.type)


# -- state of keys ------------------------------------------------------------------------------------------------


def state_schema(types: Types) -> Any:
    return pa.schema(
        [
            pa.field("step", pa.string(), nullable=False),
            pa.field("subtask", pa.int32(), nullable=False),
            pa.field("state", pa.string(), nullable=False),
            pa.field("key_group", pa.int16(), nullable=False),
            field("key", types.key),
            field("value", types.value),
            pa.field("key_bytes", pa.binary(), nullable=False),
            pa.field("value_bytes", pa.binary(), nullable=False),
        ]
    )


def state_batches(part: KeyedPart, types: Types) -> Iterator[Any]:
    """
    Raises:
        DamagedFile: as `KeyedPart.rows`.
        NotInColumn: a key or value has another type.
    """
    for batch in part.rows(timers=False):
        what = f"state {batch.state!r} of step {part.step!r}"
        keys, values = _decoded(part, batch)
        yield pa.RecordBatch.from_arrays(
            [
                *_head(part, batch),
                column(keys, types.key, f"the key of {what}"),
                column(values, types.value, what),
                pa.array(batch.keys, pa.binary()),
                pa.array(batch.values, pa.binary()),
            ],
            schema=state_schema(types),
        )


def _decoded(part: KeyedPart, batch: StateBatch) -> tuple[list[Any], list[Any]]:
    try:
        return list(map(decode_key, batch.keys)), list(map(decode, batch.values))
    except ValueError as error:
        raise DamagedFile(f"{part.name()} is damaged: key group {batch.group}: {error}") from error


def _head(part: KeyedPart, batch: StateBatch) -> list[Any]:
    n = len(batch.keys)
    return [
        pa.repeat(pa.scalar(part.step, pa.string()), n),
        pa.repeat(pa.scalar(part.subtask, pa.int32()), n),
        pa.repeat(pa.scalar(CLOCK_OF.get(batch.state, batch.state), pa.string()), n),
        pa.repeat(pa.scalar(batch.group, pa.int16()), n),
    ]


# -- timers -------------------------------------------------------------------------------------------------------


def timer_schema(types: Types) -> Any:
    return pa.schema(
        [
            pa.field("step", pa.string(), nullable=False),
            pa.field("subtask", pa.int32(), nullable=False),
            pa.field("clock", pa.string(), nullable=False),
            pa.field("key_group", pa.int16(), nullable=False),
            field("key", types.key),
            pa.field("at", pa.int64(), nullable=False),
            pa.field("key_bytes", pa.binary(), nullable=False),
        ]
    )


def timer_batches(part: KeyedPart, types: Types) -> Iterator[Any]:
    """As `state_batches`. `at` is in milliseconds since 1970."""
    for batch in part.rows(timers=True):
        keys, _ = _decoded(part, batch)
        times = [time_of(namespace) for namespace in batch.namespaces or ()]
        if len(times) != len(keys) or None in times:
            raise DamagedFile(f"{part.name()} is damaged: a timer of key {shown(keys[0])} has no time")
        yield pa.RecordBatch.from_arrays(
            [
                *_head(part, batch),
                column(keys, types.key, f"the key of a timer of step {part.step!r}"),
                pa.array(times, pa.int64()),
                pa.array(batch.keys, pa.binary()),
            ],
            schema=timer_schema(types),
        )


def time_of(namespace: bytes | None) -> int | None:
    """Milliseconds since 1970 of a timer's namespace; `None` if it is none."""
    return None if namespace is None or len(namespace) != 8 else int.from_bytes(namespace, "big") + _LOWEST


def namespace_of(at: int) -> bytes:
    return (at - _LOWEST).to_bytes(8, "big")
