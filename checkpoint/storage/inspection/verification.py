"""Whether checkpoints are whole, and what lies beside them."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.storage import restore
from checkpoint.storage.errors import StorageError
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import METADATA, CheckpointRef
from checkpoint.storage.orphans import Orphan
from checkpoint.storage.restore import NotACheckpoint
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.storage.sweep import Survey, survey


@dataclass(frozen=True, slots=True)
class Verified:
    """A complete checkpoint or savepoint."""

    ref: CheckpointRef | None
    """`None`: a savepoint whose `_metadata` is damaged."""
    uri: str
    files: int
    """How many were looked at, `_metadata` included."""
    size: int
    """Their bytes."""
    problems: tuple[str, ...]
    """Empty if it is whole; each names its file."""
    void_by: int | None = None
    """Attempt number of the owner that gave it up; nobody needs it then."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The job's folder."""

    uri: str
    checkpoints: tuple[Verified, ...]
    """Oldest first."""
    orphans: tuple[Orphan, ...]
    owner: int | None
    """Epoch of the newest owner, whose files may be in use."""
    blind: bool
    """A `_metadata` can't be read, so that it isn't known which files are still needed."""

    @property
    def damaged(self) -> list[Verified]:
        """Checkpoints that aren't whole and that someone may want to restore."""
        return [one for one in self.checkpoints if one.problems and one.void_by is None]


def verify_job(storage: CheckpointStorage, quick: bool = False) -> Verification:
    """
    Args:
        quick: see that every file is there in full length, without reading it.

    Raises:
        DamagedFile: an owner's record is.
        StorageError: the folder can't be read.
    """
    seen = survey(storage)
    check = _Check(storage, quick)
    verified = [one for ref in seen.listing.complete if (one := _checkpoint(storage, seen, ref, check)) is not None]
    orphans = tuple(seen.orphans())
    return Verification(
        storage.uri_of(), tuple(verified), orphans, seen.newest.attempt if seen.newest else None, bool(seen.unreadable)
    )


def _checkpoint(storage: CheckpointStorage, seen: Survey, ref: CheckpointRef, check: _Check) -> Verified | None:
    """`None`: it has been deleted since."""
    uri, void_by = storage.uri_of(ref.path), seen.void_by(ref)
    metadata = seen.known.get(ref)
    if metadata is None:
        problem = seen.unreadable.get(ref)
        return Verified(ref, uri, 1, 0, (problem,), void_by) if problem else None
    files, size, problems = check.files_of(metadata, f"{ref.path}/{METADATA}")
    if problems and ref not in storage.complete():
        return None
    return Verified(ref, uri, files, size, problems, void_by)


def verify_single(uri: str, quick: bool = False) -> Verified:
    """
    Args:
        uri: of a checkpoint's or savepoint's own folder.
        quick: as in `verify_job`.

    Raises:
        NotACheckpoint: there is none.
    """
    try:
        point = restore.at(uri)
    except NotACheckpoint:
        raise
    except StorageError as error:
        return Verified(None, uri, 1, 0, (str(error),))
    void_by, path = None, METADATA
    if point.metadata.kind is not CheckpointKind.SAVEPOINT:
        path = f"{point.ref.path}/{METADATA}"
        record = point.storage.restore_record()
        void_by = record.attempt if record is not None and record.voids(point.ref) else None
    files, size, problems = _Check(point.storage, quick).files_of(point.metadata, path)
    return Verified(point.ref, uri, files, size, problems, void_by)


class _Check:
    """Looks at files, at each once: several checkpoints may refer to one."""

    def __init__(self, storage: CheckpointStorage, quick: bool) -> None:
        self._storage = storage
        self._quick = quick
        self._found: dict[FileHandle, str | None] = {}
        """The problem with a file, if there is one."""

    def files_of(self, metadata: CheckpointMetadata, path: str) -> tuple[int, int, tuple[str, ...]]:
        """How many files, their bytes, and what is wrong. `path` is that of `_metadata`, which has been read."""
        handles = list(dict.fromkeys(metadata.all_files()))
        problems = tuple(problem for handle in handles if (problem := self._problem(handle)) is not None)
        (metadata_size,) = self._storage.sizes([path])
        files = [handle for handle in handles if not handle.inline]
        return len(files) + 1, (metadata_size or 0) + sum(handle.size for handle in files), problems

    def _problem(self, handle: FileHandle) -> str | None:
        if handle not in self._found:
            self._found[handle] = self._look(handle)
        return self._found[handle]

    def _look(self, handle: FileHandle) -> str | None:
        try:
            if self._quick:
                self._storage.verify_sizes([handle])
            else:
                self._storage.read_file(handle)
        except StorageError as error:
            return str(error)
        return None
