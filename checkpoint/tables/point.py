"""The checkpoint or savepoint that tables are made from, and what of it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from checkpoint.state.files import state_names
from checkpoint.storage import restore
from checkpoint.storage.inspection.folders import the_one
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from checkpoint.storage.restore import RestorePoint


class NoSuchTable(ValueError):
    """What was asked for isn't in the checkpoint; the message lists what is there."""


@dataclass(frozen=True)
class Wanted:
    """Which rows of a table."""

    step: str | None = None
    state: str | None = None
    key: bytes | None = None
    """Encoded (`codec.encode_key`)."""


def open_point(uri: str) -> RestorePoint:
    """The checkpoint or savepoint at a URI; the newest checkpoint of a job's folder.

    Raises:
        NotACheckpoint: there is none, or several might be meant.
        DamagedFile: its `_metadata` is.
        StorageError: it can't be read.
    """
    return restore.at(the_one(uri))


def snapshots(metadata: CheckpointMetadata, step: str | None) -> Iterator[tuple[str, int, OperatorSnapshot]]:
    """Step, index of the subtask of then, and what it had; of one step, or all.

    Raises:
        NoSuchTable: the step has nothing in the checkpoint.
    """
    if step is not None and step not in metadata.step_ids:
        there = ", ".join(map(repr, sorted(metadata.step_ids))) or "none"
        raise NoSuchTable(f"checkpoint {metadata.id} has nothing of step {step!r}; it has steps {there}")
    for vertex in metadata.vertices.values():
        for index, subtask in enumerate(vertex.subtasks):
            for id, snapshot in subtask.operators.items():
                if step is None or id == step:
                    yield id, index, snapshot


def states_of_keys(point: RestorePoint, step: str | None = None) -> dict[str, set[str]]:
    """Names of the states of keys, timers included, by step; steps without any are left out. Reads the ends of files.

    Raises:
        NoSuchTable: as `snapshots`.
        DamagedFile: a file is damaged there.
    """
    found: dict[str, set[str]] = {}
    for id, _, snapshot in snapshots(point.metadata, step):
        for listed in snapshot.keyed_state:
            found.setdefault(id, set()).update(state_names(point.storage, listed.file))
    return found
