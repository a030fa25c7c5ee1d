"""The files that a source reads: found, looked at, opened."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from checkpoint.counted import counted
from checkpoint.storage.opening import open_filesystem, without_credentials
from sources.files.errors import FolderUnavailable


@dataclass(frozen=True, slots=True)
class FoundFile:
    path: str
    """Relative to the folder, with `/`."""
    size: int
    """Bytes."""
    modified: int
    """Nanoseconds since the epoch."""

    @property
    def version(self) -> str:
        return f"{counted(self.size, 'byte')}, modified at {self.modified} ns"


class Folder:
    """A folder with its sub-folders, or a single file. Files and folders whose names begin with `_` or `.` are hidden.

    Args:
        uri: a URI or an absolute local path.
        pattern: a glob for names of files, or, with a `/`, for paths relative to the folder; `None` = all.

    Raises:
        FolderUnavailable: no such kind of storage, or it can't be reached.
    """

    def __init__(self, uri: str, pattern: str | None = None) -> None:
        self.uri = without_credentials(uri)
        self._pattern = pattern
        self._single: bool | None = None
        """Whether it is a file, once that is known."""
        with self._explained("open", self.uri):
            self._filesystem, self._root = open_filesystem(uri)

    def exists(self) -> bool:
        with self._explained("look at", self.uri):
            found: bool = self._filesystem.get_file_info(self._root).type != fs.FileType.NotFound
        return found

    def files(self) -> list[FoundFile]:
        """All that are there now.

        Raises:
            FolderUnavailable: it can't be listed, or doesn't exist.
        """
        with self._explained("list", self.uri):
            info = self._filesystem.get_file_info(self._root)
            if info.type == fs.FileType.File:
                return [FoundFile(posixpath.basename(self._root), info.size, info.mtime_ns)]
            found = self._filesystem.get_file_info(fs.FileSelector(self._root, recursive=True))
        start = len(self._root) + 1
        files = [FoundFile(i.path[start:], i.size, i.mtime_ns) for i in found if i.type == fs.FileType.File]
        return [file for file in files if self._is_read(file.path)]

    def look(self, path: str) -> FoundFile | None:
        """One file as it is now; `None` if it isn't there."""
        with self._explained("look at", path):
            info = self._filesystem.get_file_info(self._full(path))
        return FoundFile(path, info.size, info.mtime_ns) if info.type == fs.FileType.File else None

    def open(self, path: str) -> pa.NativeFile:
        """For random access."""
        with self._explained("open", path):
            return self._filesystem.open_input_file(self._full(path))

    def stream(self, path: str) -> pa.NativeFile:
        """From its beginning on, as it is stored."""
        with self._explained("open", path):
            return self._filesystem.open_input_stream(self._full(path), compression=None)

    def _full(self, path: str) -> str:
        if self._single is None:
            self._single = self._filesystem.get_file_info(self._root).type == fs.FileType.File
        return self._root if self._single else f"{self._root}/{path}"

    def _is_read(self, path: str) -> bool:
        if any(part.startswith(("_", ".")) for part in path.split("/")):
            return False
        if self._pattern is None:
            return True
        return fnmatch.fnmatchcase(path if "/" in self._pattern else posixpath.basename(path), self._pattern)

    @contextmanager
    def _explained(self, what: str, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise FolderUnavailable(f"cannot {what} {path} of the file source's folder {self.uri}: {error}") from error
