"""Whole, durable files on whatever `pyarrow.fs` reaches.

Two implementations of one interface: `LocalFiles` knows fsync and rename, `ArrowFiles` serves object stores and HDFS.
Paths are absolute, with `/`. Errors are `OSError` (or `pyarrow.ArrowException`); `storage.py` explains them.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
from pyarrow import fs

from checkpoint.storage.naming import TEMPORARY

Data: TypeAlias = bytes | bytearray | memoryview | pa.Buffer


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    size: int | None
    """Bytes; `None` for a folder."""


class OutputFile(Protocol):
    """A file that nobody sees before `commit`."""

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

    @abstractmethod
    def read(self, path: str) -> bytes: ...

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
    return ArrowFiles(filesystem), path.rstrip("/")


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


class _ArrowOutputFile:
    def __init__(self, filesystem: fs.FileSystem, path: str, written_as: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._written_as = written_as
        self._stream: Any = filesystem.open_output_stream(written_as)
        self._done = False

    def write(self, data: Data) -> None:
        self._stream.write(data)

    def commit(self) -> None:
        self._stream.close()
        if self._written_as != self._path:
            self._filesystem.move(self._written_as, self._path)
        self._done = True

    def discard(self) -> None:
        if self._done:
            return
        self._done = True
        try:
            self._stream.close()  # may fail as the writing did
        finally:
            if self._filesystem.get_file_info(self._written_as).type == fs.FileType.File:
                self._filesystem.delete_file(self._written_as)


class ArrowFiles(Files):
    """Any `pyarrow.fs.FileSystem`: one put where that is atomic, a temporary file and a move where it isn't."""

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self._filesystem = filesystem
        self._put_whole = filesystem.type_name in _PUT_WHOLE

    def make_folder(self, path: str) -> None:
        if not self._put_whole:  # object stores have no folders
            self._filesystem.create_dir(path, recursive=True)

    def create(self, path: str) -> OutputFile:
        self.make_folder(posixpath.dirname(path))
        return _ArrowOutputFile(self._filesystem, path, path if self._put_whole else _temporary(path))

    def read(self, path: str) -> bytes:
        with self._filesystem.open_input_file(path) as file:
            content: bytes = file.read()
        return content

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


def _size(path: str) -> int | None:
    # One look: between two of them another process may delete it.
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
