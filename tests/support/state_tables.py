"""Checkpoints with state, made without a job, for tests of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from checkpoint.codec import decode, encode, encode_key
from checkpoint.state.files import load_encoded_state
from checkpoint.storage import restore
from checkpoint.tables.changes import EncodedRows, KeyAndNamespace, SavepointChanges, StateName
from checkpoint.tables.keyed import CLOCKS, namespace_of
from checkpoint.tables.writing import NewPipeline, write_savepoint

Entries = Mapping[tuple[str, str], Mapping[Any, Any]]
"""By step and state: values by key."""


def rows_of_entries(entries: Iterable[tuple[Any, Any]]) -> EncodedRows:
    return {KeyAndNamespace(encode_key(key)): encode(value) for key, value in entries}


def timers_at(*timers: tuple[Any, int]) -> EncodedRows:
    return {KeyAndNamespace(encode_key(key), namespace_of(at)): encode(None) for key, at in timers}


def changes_of(entries: Entries, timers: Mapping[str, EncodedRows] | None = None) -> SavepointChanges:
    """`timers`: of the clock of event time, by step."""
    put = {StateName(*name): rows_of_entries(values.items()) for name, values in entries.items()}
    put.update({StateName(step, CLOCKS["event"]): rows for step, rows in (timers or {}).items()})
    return SavepointChanges(put=put)


def make_savepoint(
    folder: Path, entries: Entries, timers: Mapping[str, EncodedRows] | None = None, parallelism: int = 3
) -> str:
    """The URI of a savepoint with this state."""
    pipeline = NewPipeline("orders", 16, parallelism)
    return write_savepoint(folder.as_uri(), changes_of(entries, timers), pipeline, "1.0").uri


def raw_rows(uri: str) -> dict[tuple[str, str, bytes, bytes | None], bytes]:
    """All state of keys, as it lies in the files: encoded values by step, state, key and namespace."""
    return {place: value for place, _, value in _placed(uri)}


def key_groups(uri: str) -> Iterator[tuple[bytes, int, int]]:
    """Key, subtask and key group of each row."""
    for (_, _, key, _), (subtask, group), _ in _placed(uri):
        yield key, subtask, group


def _placed(uri: str) -> Iterator[tuple[tuple[str, str, bytes, bytes | None], tuple[int, int], bytes]]:
    point = restore.from_uri(uri)
    for vertex in point.metadata.vertices.values():
        for index, subtask in enumerate(vertex.subtasks):
            for step, snapshot in subtask.operators.items():
                if not snapshot.keyed_state:
                    continue
                for batch in load_encoded_state(point.storage, snapshot.keyed_state):
                    spaces = batch.namespaces or [None] * len(batch.keys)
                    for key, space, value in zip(batch.keys, spaces, batch.values, strict=True):
                        yield (step, batch.state, key, space), (index, batch.group), value


def values_of(uri: str, step: str, state: str) -> dict[bytes, Any]:
    """Values by encoded key."""
    return {key: decode(value) for (of, name, key, _), value in raw_rows(uri).items() if (of, name) == (step, state)}
