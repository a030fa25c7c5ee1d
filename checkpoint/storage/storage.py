"""The checkpoint storage: one folder a job, on anything that `pyarrow.fs` reaches (see `checkpoint.storage.naming`)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

import pyarrow as pa
import xxhash

from checkpoint import failpoints
from checkpoint.errors import PermanentFailure
from checkpoint.storage.filesystem import Data, Entry, discard_after_failure
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.local_files import LocalFiles
from checkpoint.storage.metadata import (
    CheckpointMetadata,
    MetadataError,
    OperatorSnapshot,
    UnsupportedFormat,
    pack_state,
    unpack_state,
)
from checkpoint.storage.naming import METADATA, PROBE, SHARED, CheckpointRef, belongs_to, encode, parse_trace
from checkpoint.storage.opening import open_files
from checkpoint.storage.ownership import Ownership, RestoreRecord

INLINE_STATE_LIMIT: Final = 16 * 1024
"""Bytes of packed state of one step and subtask that stay inline in `_metadata`."""


class StorageError(Exception):
    """The checkpoint storage can't do what was asked; the message says where, why and what to do."""


class DamagedFile(StorageError):
    """A file of a checkpoint is missing, truncated or altered; the message names it."""


class UnknownFormat(StorageError, PermanentFailure):
    """A file of a checkpoint is whole and has a format that this version of Weir can't read."""


class StagedFile:
    """A file being written; nobody sees it before `close`. Not for several threads at once."""

    def __init__(self, storage: CheckpointStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._size = 0
        self._hash = xxhash.xxh3_128()
        with storage._explained("create", path):
            failpoints.hit("storage.create")
            self._file = storage._files.create(storage._absolute(path))

    def write(self, data: Data) -> None:
        """
        Raises:
            StorageError: call `abort` then.
        """
        view = memoryview(data).cast("B")
        with self._storage._explained("write", self._path):
            failpoints.hit("storage.write")
            self._file.write(view)
        self._hash.update(view)
        self._size += view.nbytes

    def close(self) -> FileHandle:
        """Make it durable under its name.

        Raises:
            StorageError: nothing is left behind.
        """
        try:
            return self._close()
        except BaseException:
            self.abort()
            raise

    def _close(self) -> FileHandle:
        with self._storage._explained("write", self._path):
            failpoints.hit("storage.close")
            self._file.commit()
        return FileHandle(self._path, self._size, self._hash.hexdigest())

    def abort(self) -> None:
        """Leave nothing behind; what can't be deleted is logged, and left for gc. Does nothing after `close` or a first
        call."""
        discard_after_failure(self._file, self._storage._name(self._path))


class OpenedFile:
    """A file of the checkpoint storage, opened for random access."""

    def __init__(self, storage: CheckpointStorage, path: str, file: pa.NativeFile) -> None:
        self._storage = storage
        self._path = path
        self._file = file

    @property
    def name(self) -> str:
        """For messages."""
        return self._storage._name(self._path)

    def size(self) -> int:
        """Bytes.

        Raises:
            StorageError: the storage doesn't say.
        """
        with self._storage._explained("read", self._path):
            size: int = self._file.size()
        return size

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes from `offset` on; fewer at the end of the file.

        Raises:
            StorageError: it can't be read.
        """
        with self._storage._explained("read", self._path):
            data: bytes = self._file.read_at(length, offset)
        return data


class CheckpointStorage:
    """A job's folder. Stateless, so usable from any thread; pickles as its arguments.

    Args:
        uri: root folder, a URI (`file:///var/lib/weir`, `s3://bucket/weir?region=…`) or an absolute local path.
        pipeline: name of the job, which gets a folder of its own below the root; `None` if `uri` is that folder.

    Raises:
        StorageError: no such kind of storage, or it can't be reached.
        ValueError: the pipeline's name is empty.
    """

    def __init__(self, uri: str, pipeline: str | None) -> None:
        if pipeline == "":
            raise ValueError("a pipeline that takes checkpoints needs a name that is not empty")
        self.uri = uri
        self.pipeline = pipeline
        try:
            self._files, root = open_files(uri)
        except (OSError, pa.ArrowException) as error:
            raise StorageError(
                f"cannot open the checkpoint folder {_without_password(uri)}: {error}. Give an absolute path or a URI "
                "that pyarrow knows, such as file:///var/lib/weir or s3://bucket/weir"
            ) from error
        self._folder = root if pipeline is None else f"{root.rstrip('/')}/{encode(pipeline)}"
        scheme = urlsplit(uri).scheme or "file"
        self.location = f"{scheme}://{self._folder}"
        """The job's folder as messages name it."""

    def __reduce__(self) -> tuple[type[CheckpointStorage], tuple[str, str | None]]:
        return type(self), (self.uri, self.pipeline)

    def __repr__(self) -> str:
        return f"CheckpointStorage({self.location})"

    def same_folder(self, other: CheckpointStorage) -> bool:
        """Whether both are the same job's folder."""
        if not self._files.same_as(other._files):
            return False
        if isinstance(self._files, LocalFiles):
            return os.path.realpath(self._folder) == os.path.realpath(other._folder)
        return self._folder == other._folder

    def uri_of(self, path: str = "") -> str:
        """A URI that leads to the folder, or to what is at `path` in it."""
        names = ([] if self.pipeline is None else [encode(self.pipeline)]) + ([path] if path else [])
        parts = urlsplit(self.uri if not self.uri.startswith("/") else f"file://{quote(self.uri)}")
        return urlunsplit(parts._replace(path="/".join([parts.path.rstrip("/"), *map(quote, names)])))

    def make_folder(self) -> None:
        """Create the folder itself.

        Raises:
            StorageError: it can't; names the folder.
        """
        with self._explained("create", ""):
            self._files.make_folder(self._folder)

    def names(self) -> set[str]:
        """What lies in the folder, whatever it is; nothing if it doesn't exist."""
        with self._explained("list", ""):
            failpoints.hit("storage.list")
            return {entry.name for entry in self._files.entries(self._folder)}

    def prepare(self) -> None:
        """Create the folder and see that it can be written to.

        Raises:
            StorageError: it can't; names the folder.
        """
        try:
            self._files.make_folder(self._absolute(SHARED))
            test = f"{PROBE}{uuid.uuid4().hex}"
            self._files.put(self._absolute(test), b"can be written")
            self._files.delete([self._absolute(test)])
        except (OSError, pa.ArrowException) as error:
            raise StorageError(
                f"cannot write to the checkpoint folder {self.location}: {_reason(error)}. "
                "Make it writable for the user that runs the job, or choose another folder in CheckpointConfig(uri)"
            ) from error

    # -- files ------------------------------------------------------------------------------------------------

    def create(self, path: str) -> StagedFile:
        """A new file to be written piece by piece; `path` comes from `checkpoint.storage.naming`.

        Raises:
            StorageError: it can't be created.
        """
        return StagedFile(self, path)

    def write_file(self, path: str, data: Data | Sequence[Data]) -> FileHandle:
        """Write a file whole; durable on return.

        Raises:
            StorageError: nothing is left behind.
        """
        file = self.create(path)
        try:
            for piece in [data] if isinstance(data, Data) else data:
                file.write(piece)
            return file.close()
        except BaseException:
            file.abort()
            raise

    def read_file(self, handle: FileHandle) -> bytes:
        """The file's content, verified.

        Raises:
            DamagedFile: it is missing, or its size or checksum differs.
            StorageError: it can't be read.
        """
        data = self._read(handle.path)
        checksum = xxhash.xxh3_128(data).hexdigest()
        if len(data) != handle.size or checksum != handle.checksum:
            raise DamagedFile(
                f"{self._name(handle.path)} is damaged: it should have {handle.size} bytes with checksum "
                f"{handle.checksum}, and has {len(data)} bytes with checksum {checksum}"
            )
        return data

    @contextmanager
    def open_file(self, handle: FileHandle) -> Iterator[OpenedFile]:
        """The file, to read parts of it. Their content is not verified here.

        Raises:
            DamagedFile: it is missing, or its size differs.
            StorageError: it can't be opened.
        """
        with self._explained("read", handle.path):
            try:
                failpoints.hit("storage.read")
                file = self._files.open(self._absolute(handle.path))
            except FileNotFoundError as error:
                raise DamagedFile(f"{self._name(handle.path)} is missing") from error
        with file:
            opened = OpenedFile(self, handle.path, file)
            self._check_size(handle, opened.size())
            yield opened

    def verify_sizes(self, handles: Iterable[FileHandle]) -> None:
        """See that every file is there in full length, without reading it.

        Raises:
            DamagedFile: names the first that isn't.
        """
        unique = list(dict.fromkeys(handles))
        with self._explained("look at", ""):
            sizes = self._files.sizes([self._absolute(handle.path) for handle in unique])
        for handle, size in zip(unique, sizes, strict=True):
            if size is None:
                raise DamagedFile(f"{self._name(handle.path)} is missing ({handle.size} bytes)")
            self._check_size(handle, size)

    def delete_file(self, handle: FileHandle) -> None:
        """Fine if it is gone already."""
        with self._explained("delete", handle.path):
            self._delete([handle.path])

    def delete_private(self, checkpoint_id: int, attempt: int, subtask: str) -> None:
        """Delete what a subtask (`naming.subtask_name`) wrote for a checkpoint, nothing under `shared/`."""
        folder = CheckpointRef(checkpoint_id, attempt).path
        with self._explained("delete files in", folder):
            names = [entry.name for entry in self._files.entries(self._absolute(folder))]
            self._delete(f"{folder}/{name}" for name in names if belongs_to(name, subtask))

    def entries(self, folder: str = "") -> list[Entry]:
        """What lies in the job's folder, or in a folder in it, files that are being written too; by name."""
        with self._explained("list", folder):
            found = self._files.entries(self._absolute(folder) if folder else self._folder)
        return sorted(found, key=lambda entry: entry.name)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Bytes of each file, `None` for those that don't exist."""
        with self._explained("look at", ""):
            return self._files.sizes([self._absolute(path) for path in paths])

    def list_shared(self) -> list[str]:
        """Paths of all files under `shared/`, those being written too."""
        with self._explained("list", SHARED):
            return [f"{SHARED}/{entry.name}" for entry in self._files.entries(self._absolute(SHARED))]

    # -- state of steps ---------------------------------------------------------------------------------------

    def spill(self, snapshot: OperatorSnapshot, path: str) -> OperatorSnapshot:
        """`snapshot` with its state moved to a new file at `path` if it is too large to be inline.

        Raises:
            EncodingError: a value that can't be kept.
            StorageError: the file can't be written.
        """
        packed = pack_state(snapshot.state)
        if len(packed) <= INLINE_STATE_LIMIT:
            return snapshot
        return replace(snapshot, state={}, state_file=self.write_file(path, packed))

    def unspill(self, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        """`snapshot` with its state inline again.

        Raises:
            DamagedFile: the state's file is.
        """
        if snapshot.state_file is None:
            return snapshot
        return replace(snapshot, state=unpack_state(self.read_file(snapshot.state_file)), state_file=None)

    # -- checkpoints ------------------------------------------------------------------------------------------

    def write_metadata(self, checkpoint_id: int, attempt: int, metadata: CheckpointMetadata) -> CheckpointRef:
        """Complete a checkpoint: durable, and found by `list_checkpoints`, once this returns.

        The caller makes sure first that it still owns the job (`fencing.check`).

        Raises:
            StorageError: it could not be written; the checkpoint isn't complete.
        """
        ref = CheckpointRef(checkpoint_id, attempt)
        if metadata.ref != ref:
            raise ValueError(f"metadata of {metadata.ref.path} given for {ref.path}")
        path = f"{ref.path}/{METADATA}"
        with self._explained("write", path):
            self._put(path, metadata.to_bytes())
            # Subtasks may have made the folder on another host, or be about to make its name durable.
            self._files.sync_folder(self._folder)
        return ref

    def list_checkpoints(self) -> list[CheckpointRef]:
        """Complete checkpoints that aren't void (see `checkpoint.storage.ownership`), oldest first.

        Raises:
            DamagedFile: an owner's record is.
        """
        record = self.restore_record()
        return [ref for ref in self.complete() if record is None or not record.voids(ref)]

    def list_leftovers(self, attempt: int) -> list[CheckpointRef]:
        """Folders of owners before `attempt` that hold no good checkpoint: never completed, half deleted or void.

        An owner may delete them (`delete_checkpoint`) once it has recorded what it restored.
        """
        good = set(self.list_checkpoints())
        return [ref for ref in self.folders() if ref.attempt < attempt and ref not in good]

    def load(self, ref: CheckpointRef) -> CheckpointMetadata:
        """
        Raises:
            DamagedFile: `_metadata` is missing, truncated or altered, or belongs to another checkpoint.
            StorageError: it can't be read, or was written by a version of Weir with another format.
        """
        path = f"{ref.path}/{METADATA}"
        metadata = self._load(path)
        if metadata.ref != ref:
            raise DamagedFile(f"{self._name(path)} belongs to {metadata.ref.path}, not here")
        return metadata

    def load_savepoint(self) -> CheckpointMetadata:
        """Of the savepoint (or of the checkpoint) whose own folder this is.

        Raises:
            DamagedFile, StorageError: as `load`.
        """
        return self._load(METADATA)

    def _load(self, path: str) -> CheckpointMetadata:
        try:
            return CheckpointMetadata.from_bytes(self._read(path))
        except MetadataError as error:
            raise DamagedFile(f"{self._name(path)} is damaged: {error}") from error
        except UnsupportedFormat as error:
            raise UnknownFormat(f"{self._name(path)} {error}. Restore it with the version that wrote it") from error

    def delete_checkpoint(self, ref: CheckpointRef) -> None:
        """Delete its folder, `_metadata` first, so that what is half deleted is never taken for a checkpoint.

        Also for one that isn't complete, or is gone. Files under `shared/` are not touched. The caller makes sure first
        that it still owns the job (`fencing.check`).
        """
        with self._explained("delete", ref.path):
            self._delete([f"{ref.path}/{METADATA}"])
            self._files.delete_folder(self._absolute(ref.path))

    def largest_id(self) -> int:
        """The largest checkpoint id found, of whatever is complete, not complete or void, savepoints elsewhere
        included; 0 if there is none."""
        return max((ref.id for ref in [*self.folders(), *self.traces()]), default=0)

    def complete(self) -> list[CheckpointRef]:
        """Checkpoints with `_metadata`, void ones too; oldest first."""
        refs = self.folders()
        with self._explained("list", ""):
            sizes = self._files.sizes([self._absolute(f"{ref.path}/{METADATA}") for ref in refs])
        return [ref for ref, size in zip(refs, sizes, strict=True) if size is not None]

    def folders(self) -> list[CheckpointRef]:
        """Every checkpoint's folder, whether it is complete, not complete or void; oldest first."""
        return sorted(ref for name in self.names() if (ref := CheckpointRef.parse(name)))

    def traces(self) -> list[CheckpointRef]:
        """The savepoints that the folder remembers (see `checkpoint.storage.savepoints`), oldest first."""
        return sorted(ref for name in self.names() if (ref := parse_trace(name)))

    # -- small files of owners and probes ---------------------------------------------------------------------

    def owners(self) -> list[Ownership]:
        """All owners that the folder has files of, oldest attempt first."""
        return sorted(owner for name in self.names() if (owner := Ownership.parse(name)))

    def restore_record(self) -> RestoreRecord | None:
        """What the newest owner with a record restored and builds on; `None` if no owner has recorded it.

        Raises:
            DamagedFile: the record is.
        """
        for _ in range(10):
            names = self.names()
            owners = sorted((owner for name in names if (owner := Ownership.parse(name))), reverse=True)
            path = next((owner.record_path for owner in owners if owner.record_path in names), None)
            if path is None:
                return None
            with self._explained("read", path):
                try:
                    data = self._content(path)
                except FileNotFoundError:  # a newer owner has recorded and cleaned up since
                    continue
            try:
                return RestoreRecord.from_bytes(data)
            except ValueError as error:
                raise DamagedFile(f"{self._name(path)} is damaged: {error}") from error
        raise StorageError(f"{self.location} has new owners all the time: is the job started by several drivers?")

    def put(self, path: str, data: bytes) -> None:
        """Write a small file that no checkpoint refers to; durable on return."""
        with self._explained("write", path):
            self._put(path, data)

    def get(self, path: str) -> bytes | None:
        """Content of a small file, `None` if it doesn't exist."""
        with self._explained("read", path):
            try:
                return self._content(path)
            except FileNotFoundError:
                return None

    def remove(self, paths: Iterable[str]) -> None:
        """Delete small files; those that are gone are fine."""
        with self._explained("delete", ""):
            self._delete(paths)

    # -- within -----------------------------------------------------------------------------------------------

    def _check_size(self, handle: FileHandle, size: int) -> None:
        if size != handle.size:
            raise DamagedFile(
                f"{self._name(handle.path)} is damaged: it should have {handle.size} bytes and has {size}"
            )

    def _absolute(self, path: str) -> str:
        return f"{self._folder}/{path}"

    def _name(self, path: str) -> str:
        return f"{self.location}/{path}" if path else self.location

    def _put(self, path: str, data: bytes) -> None:
        failpoints.hit("storage.put")
        self._files.put(self._absolute(path), data)

    def _content(self, path: str) -> bytes:
        failpoints.hit("storage.read")
        return self._files.read(self._absolute(path))

    def _delete(self, paths: Iterable[str]) -> None:
        failpoints.hit("storage.delete")
        self._files.delete(self._absolute(path) for path in paths)

    def _read(self, path: str) -> bytes:
        with self._explained("read", path):
            try:
                return self._content(path)
            except FileNotFoundError as error:
                raise DamagedFile(f"{self._name(path)} is missing") from error

    @contextmanager
    def _explained(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException, failpoints.InjectedFailure) as error:
            raise StorageError(f"cannot {action} {self._name(path)}: {_reason(error)}") from error


def _without_password(uri: str) -> str:
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error)
