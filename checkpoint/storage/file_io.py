"""Files of the checkpoint storage while they are open: one being written, one being read in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from checkpoint import failpoints
from checkpoint.storage.filesystem import Data, discard_after_failure
from checkpoint.storage.handles import FileHandle

if TYPE_CHECKING:
    from checkpoint.storage.folder import StorageFolder


class StagedFile:
    """A file being written; nobody sees it before `close`. Not for several threads at once."""

    def __init__(self, folder: StorageFolder, path: str) -> None:
        self._folder = folder
        self._path = path
        self._size = 0
        self._hash = xxhash.xxh3_128()
        self._file = folder.new_output(path)

    def write(self, data: Data) -> None:
        """
        Raises:
            StorageError: call `abort` then.
        """
        view = memoryview(data).cast("B")
        with self._folder.explained("write", self._path):
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
        with self._folder.explained("write", self._path):
            failpoints.hit("storage.close")
            self._file.commit()
        return FileHandle(self._path, self._size, self._hash.hexdigest())

    def abort(self) -> None:
        """Leave nothing behind; what can't be deleted is logged, and left for gc. Does nothing after `close` or a first
        call."""
        discard_after_failure(self._file, self._folder.name_of(self._path))


class OpenedFile:
    """A file of the checkpoint storage, opened for random access."""

    def __init__(self, folder: StorageFolder, path: str, file: pa.NativeFile) -> None:
        self._folder = folder
        self._path = path
        self._file = file

    @property
    def name(self) -> str:
        """For messages."""
        return self._folder.name_of(self._path)

    def size(self) -> int:
        """Bytes.

        Raises:
            StorageError: the storage doesn't say.
        """
        with self._folder.explained("read", self._path):
            size: int = self._file.size()
        return size

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes from `offset` on; fewer at the end of the file.

        Raises:
            StorageError: it can't be read.
        """
        with self._folder.explained("read", self._path):
            data: bytes = self._file.read_at(length, offset)
        return data
