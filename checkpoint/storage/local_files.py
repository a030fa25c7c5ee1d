"""Files on local file systems: synced, and renamed when they are whole."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from checkpoint.storage.filesystem import Data, Entry, Files, OutputFile, temporary_path


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
        self._temporary = temporary_path(path)
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


def _size(path: str) -> int | None:
    # One look: between two of them another process may delete it.
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
