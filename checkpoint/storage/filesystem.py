"""Whole, durable files on whatever `pyarrow.fs` reaches.

Two implementations of one interface: `LocalFiles` knows fsync and rename, `ArrowFiles` serves object stores and others.
Paths are absolute, with `/`. Errors are `OSError` (or `pyarrow.ArrowException`); `storage.py` explains them.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import posixpath
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
from pyarrow import fs

from checkpoint.storage.naming import TEMPORARY

Data: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    size: int | None
    """Bytes; `None` for a folder."""


class OutputFile(Protocol):
    """A file being written, not there before `commit`; but in an object store part of a large one may be there for a
    moment when it is discarded. It counts by the handle that its writer has after `commit`."""

    def write(self, data: Data) -> None: ...

    def commit(self) -> None:
        """Durable and under its name, whole, once this returns."""

    def discard(self) -> None:
        """Leave nothing behind. Does nothing after `commit` or a first call."""


class Files(ABC):
    """The operations that the checkpoint storage is made of."""

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """With its parents; existing ones are fine."""

    @abstractmethod
    def create(self, path: str) -> OutputFile: ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file that counts by being there: nobody ever sees part of it, whatever happens to this process."""
        file = self._file_to_put(path, len(data))
        try:
            file.write(data)
            file.commit()
        except BaseException:
            discard_after_failure(file, path)
            raise

    @abstractmethod
    def read(self, path: str) -> bytes: ...

    @abstractmethod
    def open(self, path: str) -> pa.NativeFile:
        """For random access."""

    @abstractmethod
    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Size of each file in bytes, `None` for those that don't exist."""

    @abstractmethod
    def entries(self, folder: str) -> list[Entry]:
        """What is in the folder; nothing if it doesn't exist."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Those that don't exist are fine. Durable on return where files are deleted in one folder."""

    @abstractmethod
    def delete_folder(self, path: str) -> None:
        """With its content."""

    @abstractmethod
    def sync_folder(self, path: str) -> None:
        """Make names in the folder durable."""

    @abstractmethod
    def same_as(self, other: Files) -> bool:
        """Whether equal paths are the same files in both."""

    def _file_to_put(self, path: str, size: int) -> OutputFile:
        """A file for `size` bytes of which nobody ever sees part."""
        return self.create(path)


def open_files(uri: str) -> tuple[Files, str]:
    """The files at a URI or absolute local path, and the path there.

    Raises:
        OSError | pyarrow.ArrowException: no such kind of file system, or it can't be reached.
    """
    if uri.startswith("/"):
        return LocalFiles(), posixpath.normpath(uri)
    filesystem, path = fs.FileSystem.from_uri(uri)
    if isinstance(filesystem, fs.LocalFileSystem):
        return LocalFiles(), posixpath.normpath(path)
    if filesystem.type_name == "s3":
        filesystem = _s3(uri, filesystem.region)
    return ArrowFiles(filesystem), path.rstrip("/")


def discard_after_failure(file: OutputFile, path: str) -> None:
    """Discard a file whose writing has failed, which is what the caller has to tell."""
    try:
        file.discard()
    except (OSError, pa.ArrowException) as error:
        _LOG.warning("what was written of %s could not be deleted, the rest is for gc: %s", path, error)


def _temporary(path: str) -> str:
    folder, name = posixpath.split(path)
    return f"{folder}/{TEMPORARY}{uuid.uuid4().hex}-{name}"


# -- local ----------------------------------------------------------------------------------------------------


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems can't sync a folder; names in it are durable at once there.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


class _LocalOutputFile:
    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary = _temporary(path)
        self._file = open(self._temporary, "xb")  # noqa: SIM115  # closed by commit or discard
        self._done = False

    def write(self, data: Data) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self._path)
        self._done = True
        _sync_folder(posixpath.dirname(self._path))

    def discard(self) -> None:
        if self._done:
            return
        self._done = True
        try:
            self._file.close()
        finally:  # closing may fail to flush, on a full disk; the folder may be deleted already
            Path(self._temporary).unlink(missing_ok=True)


class LocalFiles(Files):
    """Local file systems and what is mounted like one."""

    def same_as(self, other: Files) -> bool:
        return isinstance(other, LocalFiles)

    def make_folder(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = posixpath.dirname(path)
        self.make_folder(parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        _sync_folder(parent)

    def create(self, path: str) -> OutputFile:
        self.make_folder(posixpath.dirname(path))
        return _LocalOutputFile(path)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def open(self, path: str) -> pa.NativeFile:
        return pa.OSFile(path)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        return [_size(path) for path in paths]

    def entries(self, folder: str) -> list[Entry]:
        found = []
        try:
            with os.scandir(folder) as scan:
                for entry in scan:
                    try:
                        found.append(Entry(entry.name, None if entry.is_dir() else entry.stat().st_size))
                    except FileNotFoundError:  # renamed or deleted since
                        continue
        except FileNotFoundError:
            return []
        return found

    def delete(self, paths: Iterable[str]) -> None:
        folders = set()
        for path in paths:
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            folders.add(posixpath.dirname(path))
        for folder in folders:
            self.sync_folder(folder)

    def delete_folder(self, path: str) -> None:
        for entry in self.entries(path):
            inner = f"{path}/{entry.name}"
            if entry.size is None:
                self.delete_folder(inner)
            else:
                self.delete([inner])
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError as error:
            # A late subtask has just written into it. What it wrote is an unfinished checkpoint, found as a leftover.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    def sync_folder(self, path: str) -> None:
        try:
            _sync_folder(path)
        except FileNotFoundError:  # the whole folder is gone, and so are its names
            return


# -- everything else ------------------------------------------------------------------------------------------

_PUT_WHOLE: Final = frozenset({"s3", "gcs", "abfs"})
"""Object stores show a new object when it is closed, and have no rename."""
_ONE_REQUEST: Final = 8 * 1024 * 1024
"""Bytes of an object that is put in one request; pyarrow uploads more than 10 MiB in parts."""

_S3_QUERY: Final = frozenset({"region", "scheme", "endpoint_override", "tls_ca_file_path"})
_S3_CONNECT_TIMEOUT: Final = 3.0
_S3_STALL_TIMEOUT: Final = 5.0
"""Seconds without a byte."""
_S3_ATTEMPTS: Final = 3
"""Of each request. Without them, and with pyarrow's strategy for URIs, a server that hangs is waited for 100 s."""


def _s3(uri: str, region: str) -> fs.S3FileSystem:
    """As `from_uri` makes it, with bounds on how long an operation may take."""
    parts = urlsplit(uri)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    unknown = sorted(query.keys() - _S3_QUERY)
    if unknown:
        raise OSError(f"of an S3 URI's options Weir knows {', '.join(sorted(_S3_QUERY))}, not {', '.join(unknown)}")
    if parts.username or parts.password:
        raise OSError(
            "credentials don't belong into a URI, which is logged and written to files. Set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY on driver and workers, or use a profile or role"
        )
    return fs.S3FileSystem(
        **{**query, "region": region},
        connect_timeout=_S3_CONNECT_TIMEOUT,
        request_timeout=_S3_STALL_TIMEOUT,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_S3_ATTEMPTS),
        allow_delayed_open=True,
    )


class _MovedFile:
    """Written under a temporary name and moved."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._path = path
        self._file = _StreamedFile(filesystem, _temporary(path))
        self._filesystem = filesystem

    def write(self, data: Data) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._file.close()
        self._filesystem.move(self._file.path, self._path)
        self._file.done = True

    def discard(self) -> None:
        self._file.discard()


class _StreamedFile:
    """Written under its own name.

    pyarrow completes the upload of a stream that is forgotten, and at the interpreter's exit it waits forever for one.
    So a reference is held until the stream is closed, beyond what the interpreter knows of.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self.path = path
        self.done = False
        self._filesystem = filesystem
        self._stream: Any = filesystem.open_output_stream(path)
        self._held = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._stream))

    def write(self, data: Data) -> None:
        self._stream.write(data)

    def close(self) -> None:
        self._stream.close()
        self._let_go()

    def discard(self) -> None:
        if self.done:
            return
        self.done = True
        try:
            self._stream.close()  # the only way to end an upload; it completes what was uploaded
        except (OSError, pa.ArrowException):
            # As the writing did. Whether something is there all the same is seen next.
            pass
        self._let_go()
        if self._filesystem.get_file_info(self.path).type == fs.FileType.File:
            self._filesystem.delete_file(self.path)

    def _let_go(self) -> None:
        if self._held:
            self._held = False
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(self._stream))


class _Object:
    """An object in a store that has no rename: one request puts it, unless it is large."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._start = bytearray()
        self._large: _StreamedFile | None = None

    def write(self, data: Data) -> None:
        view = memoryview(data).cast("B")
        if self._large is None:
            if len(self._start) + view.nbytes <= _ONE_REQUEST:
                self._start += view
                return
            self._large = _StreamedFile(self._filesystem, self._path)
            self._large.write(self._start)
            self._start = bytearray()
        self._large.write(view)

    def commit(self) -> None:
        if self._large is None:
            self._large = _StreamedFile(self._filesystem, self._path)
            self._large.write(self._start)
        self._large.close()
        self._large.done = True

    def discard(self) -> None:
        if self._large is not None:
            self._large.discard()


class ArrowFiles(Files):
    """Any `pyarrow.fs.FileSystem`: one put where that is atomic, a temporary file and a move where it isn't."""

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self._filesystem = filesystem
        self._put_whole = filesystem.type_name in _PUT_WHOLE

    def same_as(self, other: Files) -> bool:
        return isinstance(other, ArrowFiles) and bool(self._filesystem.equals(other._filesystem))

    def make_folder(self, path: str) -> None:
        if not self._put_whole:  # object stores have no folders
            self._filesystem.create_dir(path, recursive=True)

    def create(self, path: str) -> OutputFile:
        self.make_folder(posixpath.dirname(path))
        return _Object(self._filesystem, path) if self._put_whole else _MovedFile(self._filesystem, path)

    def read(self, path: str) -> bytes:
        with self._filesystem.open_input_file(path) as file:
            content: bytes = file.read()
        return content

    def open(self, path: str) -> pa.NativeFile:
        return self._filesystem.open_input_file(path)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        infos = self._filesystem.get_file_info(list(paths)) if paths else []
        return [info.size if info.type == fs.FileType.File else None for info in infos]

    def entries(self, folder: str) -> list[Entry]:
        infos = self._filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return [Entry(info.base_name, info.size if info.type == fs.FileType.File else None) for info in infos]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._filesystem.delete_file(path)
            except FileNotFoundError:
                continue

    def delete_folder(self, path: str) -> None:
        try:
            self._filesystem.delete_dir(path)
        except FileNotFoundError:
            return

    def sync_folder(self, path: str) -> None:
        """Nothing to do: a put or move that has returned is durable."""

    def _file_to_put(self, path: str, size: int) -> OutputFile:
        # A large object is uploaded in parts, and those that have arrived become the object if it is discarded.
        return _MovedFile(self._filesystem, path) if size > _ONE_REQUEST else self.create(path)


def _size(path: str) -> int | None:
    # One look: between two of them another process may delete it.
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
