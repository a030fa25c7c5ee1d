"""One folder in the checkpoint storage and the files in it, on anything that `pyarrow.fs` reaches."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote, urlsplit, urlunsplit

import pyarrow as pa
import xxhash

from checkpoint import failpoints
from checkpoint.counted import counted
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.file_io import OpenedFile, StagedFile
from checkpoint.storage.filesystem import Data, Entry, OutputFile
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.local_files import LocalFiles
from checkpoint.storage.naming import PROBE, SHARED, CheckpointRef, belongs_to, encode
from checkpoint.storage.opening import open_files, without_credentials


class StorageFolder:
    """The folder of a job, or of a savepoint. Stateless, so usable from any thread; pickles as its arguments.

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
                f"cannot open the checkpoint folder {without_credentials(uri)}: {error}. Give an absolute path or a "
                "URI that pyarrow knows, such as file:///var/lib/weir or s3://bucket/weir"
            ) from error
        self._folder = root if pipeline is None else f"{root.rstrip('/')}/{encode(pipeline)}"
        scheme = urlsplit(uri).scheme or "file"
        self.location = f"{scheme}://{self._folder}"
        """The job's folder as messages name it."""

    def __reduce__(self) -> tuple[type[StorageFolder], tuple[str, str | None]]:
        return type(self), (self.uri, self.pipeline)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location})"

    def same_folder(self, other: StorageFolder) -> bool:
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
        with self.explained("create", ""):
            self._files.make_folder(self._folder)

    def names(self) -> set[str]:
        """What lies in the folder, whatever it is; nothing if it doesn't exist."""
        with self.explained("list", ""):
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
        """A new file, to be written piece by piece. `path` comes from `checkpoint.storage.naming`.

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
        data = self._read(handle.path) if handle.content is None else handle.content
        checksum = xxhash.xxh3_128(data).hexdigest()
        if len(data) != handle.size or checksum != handle.checksum:
            raise DamagedFile(
                f"{self.name_of(handle.path)} is damaged: it should have {counted(handle.size, 'byte')} with checksum "
                f"{handle.checksum}, and has {counted(len(data), 'byte')} with checksum {checksum}"
            )
        return data

    @contextmanager
    def open_file(self, handle: FileHandle) -> Iterator[OpenedFile]:
        """The file, to read parts of it. Their content is not verified here.

        Raises:
            DamagedFile: it is missing, or its size differs.
            StorageError: it can't be opened.
        """
        if handle.content is not None:
            yield OpenedFile(self, handle.path, pa.BufferReader(self.read_file(handle)))
            return
        with self.explained("read", handle.path):
            try:
                failpoints.hit("storage.read")
                file = self._files.open(self._absolute(handle.path))
            except FileNotFoundError as error:
                raise DamagedFile(f"{self.name_of(handle.path)} is missing") from error
        with file:
            opened = OpenedFile(self, handle.path, file)
            self._check_size(handle, opened.size())
            yield opened

    def verify_sizes(self, handles: Iterable[FileHandle]) -> None:
        """See that every file is there in full length, without reading it.

        Raises:
            DamagedFile: names the first that isn't.
        """
        unique = [handle for handle in dict.fromkeys(handles) if not handle.inline]
        sizes = self.sizes([handle.path for handle in unique])
        for handle, size in zip(unique, sizes, strict=True):
            if size is None:
                raise DamagedFile(f"{self.name_of(handle.path)} is missing ({counted(handle.size, 'byte')})")
            self._check_size(handle, size)

    def delete_file(self, handle: FileHandle) -> None:
        """Delete a file of a checkpoint. One that is gone already is fine."""
        with self.explained("delete", handle.path):
            self._delete([handle.path])

    def delete_private(self, checkpoint_id: int, attempt: int, subtask: str) -> None:
        """Delete what a subtask (`naming.subtask_name`) wrote for a checkpoint, nothing under `shared/`."""
        folder = CheckpointRef(checkpoint_id, attempt).path
        with self.explained("delete files in", folder):
            names = [entry.name for entry in self._files.entries(self._absolute(folder))]
            self._delete(f"{folder}/{name}" for name in names if belongs_to(name, subtask))

    def entries(self, folder: str = "") -> list[Entry]:
        """What lies in the job's folder, or in a folder in it, files that are being written too; by name."""
        with self.explained("list", folder):
            found = self._files.entries(self._absolute(folder) if folder else self._folder)
        return sorted(found, key=lambda entry: entry.name)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Bytes of each file, `None` for those that don't exist."""
        with self.explained("look at", ""):
            return self._files.sizes([self._absolute(path) for path in paths])

    def list_shared(self) -> list[str]:
        """Paths of all files under `shared/`, those being written too."""
        with self.explained("list", SHARED):
            return [f"{SHARED}/{entry.name}" for entry in self._files.entries(self._absolute(SHARED))]

    def put(self, path: str, data: bytes) -> None:
        """Write a small file that no checkpoint refers to; durable on return."""
        with self.explained("write", path):
            self._put(path, data)

    def get(self, path: str) -> bytes | None:
        """Content of a small file, `None` if it doesn't exist."""
        with self.explained("read", path):
            try:
                return self._content(path)
            except FileNotFoundError:
                return None

    def remove(self, paths: Iterable[str]) -> None:
        """Delete small files; those that are gone are fine."""
        with self.explained("delete", ""):
            self._delete(paths)

    # -- within -----------------------------------------------------------------------------------------------

    def _check_size(self, handle: FileHandle, size: int) -> None:
        if size != handle.size:
            raise DamagedFile(
                f"{self.name_of(handle.path)} is damaged: it should have {counted(handle.size, 'byte')} and has "
                f"{size:,}"
            )

    def _absolute(self, path: str) -> str:
        return f"{self._folder}/{path}"

    def name_of(self, path: str) -> str:
        """A file's place as messages name it."""
        return f"{self.location}/{path}" if path else self.location

    def new_output(self, path: str) -> OutputFile:
        """What a `StagedFile` writes to."""
        with self.explained("create", path):
            failpoints.hit("storage.create")
            return self._files.create(self._absolute(path))

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
        with self.explained("read", path):
            try:
                return self._content(path)
            except FileNotFoundError as error:
                raise DamagedFile(f"{self.name_of(path)} is missing") from error

    @contextmanager
    def explained(self, action: str, path: str) -> Iterator[None]:
        """Errors of the file system become a `StorageError` that says what could not be done with which file.

        Args:
            action: a verb, such as "read".
        """
        try:
            yield
        except (OSError, pa.ArrowException, failpoints.InjectedFailure) as error:
            raise StorageError(f"cannot {action} {self.name_of(path)}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error)
