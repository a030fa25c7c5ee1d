"""Small files of a checkpoint that are not written: their content is part of the handle, and so of the acknowledgement
and of `_metadata`, which is one file and one sync for all subtasks.

Readers don't notice: `StorageFolder.read_file` and `open_file` take such a handle as any other. Never for files under
`shared/`, which several checkpoints refer to, nor for savepoints, whose files people read with other tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import xxhash

from checkpoint import failpoints
from checkpoint.storage.file_io import StagedFile
from checkpoint.storage.filesystem import Data
from checkpoint.storage.handles import FileHandle

if TYPE_CHECKING:
    from checkpoint.storage.folder import StorageFolder

_CHECKPOINT_BYTES: Final = 1024 * 1024
"""Of all subtasks together, of one kind of file: the driver holds them, and reads them anew at every restore."""


def inline_limit(wanted: int, subtasks: int) -> int:
    """The largest file, in bytes, that stays inline in a job of so many subtasks.

    Args:
        wanted: `CheckpointConfig.inline_bytes`.
    """
    return min(wanted, _CHECKPOINT_BYTES // subtasks)


class InlineFile:
    """A file of a checkpoint being written: kept in memory, and made a file once it is too large for that. Used as a
    `StagedFile`."""

    def __init__(self, folder: StorageFolder, path: str, limit: int) -> None:
        """`limit`: bytes that may stay inline; 0: it is a file in any case."""
        self._folder = folder
        self._path = path
        self._limit = limit
        self._held = bytearray()
        self._file: StagedFile | None = None if limit else folder.create(path)

    def write(self, data: Data) -> None:
        """
        Raises:
            StorageError: call `abort` then.
        """
        view = memoryview(data).cast("B")
        if self._file is None:
            self._hit("storage.write")
            if len(self._held) + view.nbytes <= self._limit:
                self._held += view
                return
            self._file = self._folder.create(self._path)
            held, self._held = self._held, bytearray()
            if held:
                self._file.write(held)
        self._file.write(view)

    def close(self) -> FileHandle:
        """What makes it part of a checkpoint; a file is durable under its name.

        Raises:
            StorageError: nothing is left behind.
        """
        if self._file is not None:
            return self._file.close()
        self._hit("storage.close")
        content = bytes(self._held)
        return FileHandle(self._path, len(content), xxhash.xxh3_128(content).hexdigest(), content)

    def abort(self) -> None:
        """Leave nothing behind. Does nothing after `close` or a first call."""
        if self._file is not None:
            self._file.abort()

    def _hit(self, failpoint: str) -> None:
        with self._folder.explained("write", self._path):
            failpoints.hit(failpoint)
