"""The checkpoint storage as sinks see it (`sinks.sink.Staging`)."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.storage.file_io import StagedFile
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.naming import shared_path
from checkpoint.storage.storage import CheckpointStorage


@dataclass(frozen=True, slots=True)
class SharedStaging:
    """New files under `shared/`, named by the owner attempt of this attempt."""

    storage: CheckpointStorage
    attempt: int

    def create(self, hint: str) -> StagedFile:
        """A new file; `hint` becomes part of its name.

        Raises:
            StorageError: it can't be created.
        """
        return self.storage.create(shared_path(self.attempt, hint))

    def read(self, handle: FileHandle) -> bytes:
        """The content, verified.

        Raises:
            DamagedFile: it is missing, or its size or checksum differs; the message names the file.
        """
        return self.storage.read_file(handle)
