"""Keyed state in the checkpoint storage."""

from __future__ import annotations

from collections.abc import Iterator

from checkpoint.state.snapshot import SnapshotFormatError, StateRow, read_snapshot
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.storage import CheckpointStorage, DamagedFile


def load_keyed_state(storage: CheckpointStorage, handle: FileHandle, key_groups: range) -> Iterator[StateRow]:
    """The rows of the given key groups. Reads nothing of others, and one group at a time.

    Raises:
        DamagedFile: the file, or one of these groups in it, is missing, truncated or altered.
        StorageError: it can't be read.
    """
    with storage.open_file(handle) as file:
        try:
            yield from read_snapshot(file, key_groups)
        except SnapshotFormatError as error:
            raise DamagedFile(f"{file.name} is damaged: {error}") from error
