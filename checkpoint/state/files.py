"""Keyed state in the checkpoint storage."""

from __future__ import annotations

from collections.abc import Iterator

from checkpoint.state.snapshot import SnapshotFormatError, StateBatch, UnknownSnapshotVersion, read_batches
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.storage import CheckpointStorage, DamagedFile, StorageError


def load_keyed_state(storage: CheckpointStorage, handle: FileHandle, key_groups: range) -> Iterator[StateBatch]:
    """The rows of the given key groups. Reads nothing of others, and one group at a time, or several small ones.

    Raises:
        DamagedFile: the file, or one of these groups in it, is missing, truncated or altered.
        StorageError: it can't be read, or was written by a version of Weir with another format.
    """
    with storage.open_file(handle) as file:
        try:
            yield from read_batches(file, key_groups)
        except UnknownSnapshotVersion as error:
            raise StorageError(f"{file.name}: {error}") from error
        except SnapshotFormatError as error:
            raise DamagedFile(f"{file.name} is damaged: {error}") from error
