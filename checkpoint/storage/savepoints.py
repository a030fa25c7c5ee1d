"""Savepoints: checkpoints in a folder of their own, which the user names, keeps, moves and deletes.

    <folder>/claim-<uuid>              while it is being taken: nobody else may use the folder
    <folder>/_metadata                 the savepoint is complete once it is there
    <folder>/chk-<n>-<attempt>/…         its files: state, channel state, and copies of what sinks had staged

All handles are relative to the folder, so it needs nothing else and can be moved and renamed.

In the job's folder a *trace* remembers each savepoint: its id must never be given again, since output is told apart by
lineage and id, and a job that was stopped with a savepoint goes on from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from checkpoint.storage import checksummed_json
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import METADATA, STOPPED_SUFFIX, CheckpointRef, trace_path
from checkpoint.storage.ownership import RestoreRecord
from checkpoint.storage.storage import CheckpointStorage

_RESERVATION: Final = "claim-"


@dataclass(frozen=True, slots=True)
class SavepointFolder:
    """A folder that is kept for one savepoint.

    Its reservation goes only when nothing that is still under way can write or delete there for it: whoever takes a
    savepoint in the folder after that would have it overwritten, or deleted, in its place.
    """

    storage: CheckpointStorage
    reservation: str
    """Name of the file that keeps the folder for this savepoint."""

    @property
    def uri(self) -> str:
        return self.storage.uri

    def release(self) -> None:
        """Whoever wants to may take a savepoint in the folder, unless there is one."""
        self.storage.remove([self.reservation])

    def hold(self) -> None:
        """Reserve it (again)."""
        self.storage.put(self.reservation, b"a savepoint is being taken here")

    def check(self) -> None:
        """
        Raises:
            StorageError: the folder is not this savepoint's any more, or is complete.
        """
        names = self.storage.names()
        if METADATA in names or self.reservation not in names:
            raise StorageError(
                f"{self.storage.location} was changed while a savepoint was being taken in it: name another folder"
            )


def prepare(uri: str) -> SavepointFolder:
    """The folder for a new savepoint, checked and reserved.

    Raises:
        StorageError: it can't be written to, or holds something else.
    """
    target = CheckpointStorage(uri, None)
    names = target.names()
    if METADATA in names:
        raise StorageError(f"{target.location} holds a savepoint (or checkpoint) already: name another folder")
    # What an earlier savepoint that failed has left is in nobody's way.
    others = sorted(name for name in names if CheckpointRef.parse(name) is None)
    if any(name.startswith(_RESERVATION) for name in others):
        raise StorageError(
            f"a savepoint is being taken in {target.location}, or its driver died meanwhile: name another folder, or "
            "delete this one"
        )
    if others:
        raise StorageError(
            f"a savepoint needs a folder of its own, and {target.location} holds {', '.join(others[:3])}"
            f"{' and more' if len(others) > 3 else ''}: name a new folder, such as {target.location}/savepoint-1"
        )
    target.make_folder()
    folder = SavepointFolder(target, f"{_RESERVATION}{uuid.uuid4().hex}")
    folder.hold()
    names = target.names()
    if METADATA in names or any(name.startswith(_RESERVATION) and name != folder.reservation for name in names):
        folder.release()
        raise StorageError(f"another savepoint is being taken in {target.location}: name another folder")
    return folder


def write(
    job: CheckpointStorage,
    folder: SavepointFolder,
    metadata: CheckpointMetadata,
    stop: bool,
    check_owner: Callable[[], None],
) -> None:
    """Complete a savepoint.

    Args:
        stop: it is the job's last, from which the next start goes on.
        check_owner: raises if somebody else owns the job by now.

    Raises:
        StorageError: it isn't complete.
    """
    # The trace comes first: a newer owner that has not seen it, and may give the id again, is seen by the check.
    job.put(
        trace_path(metadata.ref),
        checksummed_json.dumps({"uri": folder.uri, "id": metadata.id, "epoch": metadata.attempt}),
    )
    check_owner()
    complete(folder, metadata)
    if stop:
        said = {"uri": folder.uri, "identity": metadata.identity}
        job.put(trace_path(metadata.ref) + STOPPED_SUFFIX, checksummed_json.dumps(said))
    folder.release()


def complete(folder: SavepointFolder, metadata: CheckpointMetadata) -> None:
    """Write `_metadata`, once all files are there. From then on there is a savepoint; the folder is still reserved.

    Raises:
        StorageError: it isn't complete.
    """
    # Subtasks may have written to a folder that this host doesn't see.
    folder.storage.verify_sizes(metadata.all_files())
    folder.check()
    folder.storage.put(METADATA, metadata.to_bytes())


def discard(job: CheckpointStorage, folder: SavepointFolder, ref: CheckpointRef) -> None:
    """Delete what there is of a savepoint that failed, in an order that leaves nothing half-deleted to be restored.

    Its trace stays: the id is used up.

    Raises:
        StorageError: something can't be deleted.
    """
    job.remove([trace_path(ref) + STOPPED_SUFFIX])
    abandon(folder, ref)


def abandon(folder: SavepointFolder, ref: CheckpointRef) -> None:
    """As `discard`, of a savepoint that no job's folder remembers."""
    # One that is complete has let go of the folder, and nobody may come between `_metadata` and what it names.
    folder.hold()
    folder.storage.remove([METADATA])
    folder.storage.delete_checkpoint(ref)
    folder.release()


@dataclass(frozen=True, slots=True, order=True)
class Stop:
    """The savepoint that a run of the job ended with."""

    ref: CheckpointRef
    uri: str
    identity: str
    """`CheckpointMetadata.identity`."""


def stops(job: CheckpointStorage, record: RestoreRecord | None) -> list[Stop]:
    """The savepoints that runs of the job have ended with, oldest first; without those that a newer owner has given up.

    Raises:
        DamagedFile: a trace is.
    """
    found = []
    for ref in job.traces():
        path = trace_path(ref) + STOPPED_SUFFIX
        if record is not None and record.voids(ref):
            continue
        data = job.get(path)
        if data is None:
            continue
        try:
            said = checksummed_json.loads(data)
            found.append(Stop(ref, said["uri"], said["identity"]))
        except (checksummed_json.ChecksumMismatch, KeyError) as error:
            raise DamagedFile(f"{job.location}/{path} is damaged: {error}") from error
    return sorted(found)


def copy_file(source: CheckpointStorage, handle: FileHandle, target: CheckpointStorage, path: str) -> FileHandle:
    """Copy a file into another folder, verified.

    Raises:
        DamagedFile: the source is missing, truncated or altered.
        StorageError: it can't be written.
    """
    return target.write_file(path, source.read_file(handle))
