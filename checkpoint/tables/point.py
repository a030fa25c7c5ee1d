"""The checkpoint or savepoint that tables are made from, and what of it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.state.files import state_names
from checkpoint.storage import restore
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.inspection.folders import the_one
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from checkpoint.storage.restore import RestorePoint


class NoSuchTable(ValueError):
    """What was asked for isn't in the checkpoint; the message lists what is there."""


class DeletedMeanwhile(StorageError):
    """The job runs, and has deleted the checkpoint while it was read."""


@contextmanager
def reading(*points: RestorePoint) -> Iterator[None]:
    """Around what reads their files.

    Raises:
        DeletedMeanwhile: a file was missing, since a checkpoint has been deleted; it isn't damaged.
    """
    try:
        yield
    except DamagedFile as error:
        for point in points:
            if point.metadata.kind is not CheckpointKind.SAVEPOINT and point.ref not in point.storage.complete():
                raise DeletedMeanwhile(
                    f"{point.uri} was deleted while it was read, since its job has completed a newer checkpoint. Read "
                    "the newest one, or have the job keep more of them (CheckpointConfig.retained), or take a "
                    "savepoint, which no job deletes"
                ) from error
        raise


@dataclass(frozen=True)
class Wanted:
    """Which rows of a table."""

    step: str | None = None
    state: str | None = None
    key: bytes | None = None
    """Encoded (`codec.encode_key`)."""


def open_point(uri: str) -> RestorePoint:
    """The checkpoint or savepoint at a URI; the newest checkpoint of a job's folder, whose job may run meanwhile.

    Raises:
        NotACheckpoint: there is none, or several might be meant.
        DamagedFile: its `_metadata` is.
        StorageError: it can't be read.
    """
    found = the_one(uri)
    while True:
        try:
            return restore.at(found)
        except StorageError:
            before, found = found, the_one(uri)
            if found == before:
                raise


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
