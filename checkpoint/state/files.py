"""Keyed state in the checkpoint storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from checkpoint.state.snapshot_format import SnapshotFooter, SnapshotFormatError, StateBatch, UnknownSnapshotVersion
from checkpoint.state.snapshot_reader import read_batches, read_encoded, read_footer
from checkpoint.storage.errors import DamagedFile, UnknownFormat
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.storage import CheckpointStorage


def load_keyed_state(storage: CheckpointStorage, handle: FileHandle, key_groups: range) -> Iterator[StateBatch]:
    """The rows of the given key groups. Reads nothing of others, and one group at a time, or several small ones.

    Raises:
        DamagedFile: the file, or one of these groups in it, is missing, truncated or altered.
        StorageError: it can't be read, or was written by a version of Weir with another format.
    """
    with storage.open_file(handle) as file, _explained(file.name):
        yield from read_batches(file, key_groups)


def load_encoded_state(
    storage: CheckpointStorage, handle: FileHandle, key_groups: range | None = None
) -> Iterator[StateBatch]:
    """As `load_keyed_state`, with the values encoded; of all key groups if none are given."""
    with storage.open_file(handle) as file, _explained(file.name):
        yield from read_encoded(file, key_groups)


def load_footer(storage: CheckpointStorage, handle: FileHandle) -> SnapshotFooter:
    """What the file says about itself. Reads the file's end only.

    Raises:
        DamagedFile: it is missing, truncated or altered there.
        StorageError: as `load_keyed_state`.
    """
    with storage.open_file(handle) as file, _explained(file.name):
        return read_footer(file)


def state_names(storage: CheckpointStorage, handle: FileHandle) -> frozenset[str]:
    """The states that a file holds something of; nothing of a file that doesn't say so, as earlier versions of Weir
    wrote them. Otherwise as `load_footer`.
    """
    return frozenset(load_footer(storage, handle).states)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except UnknownSnapshotVersion as error:
        raise UnknownFormat(f"{name}: {error}") from error
    except SnapshotFormatError as error:
        raise DamagedFile(f"{name} is damaged: {error}") from error
