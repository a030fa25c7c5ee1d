"""Keyed state in the checkpoint storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from checkpoint.codec import DecodingError
from checkpoint.state.changelog.expiry import without_over
from checkpoint.state.changelog.merge import Group, merged
from checkpoint.state.contents import StateContent, together
from checkpoint.state.evolution import decoded
from checkpoint.state.paging.folding import folded
from checkpoint.state.snapshot_format import SnapshotFooter, SnapshotFormatError, StateBatch, UnknownSnapshotVersion
from checkpoint.state.snapshot_reader import read_encoded, read_footer, read_groups, state_batches
from checkpoint.storage.errors import DamagedFile, UnknownFormat
from checkpoint.storage.file_io import OpenedFile
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.storage import CheckpointStorage


def load_keyed_state(
    storage: CheckpointStorage, files: Sequence[StateFile], key_groups: range | None = None
) -> Iterator[StateBatch]:
    """The rows of a subtask's files, by key group; of the given key groups, or all. Reads nothing of others, and one
    group at a time, or several small ones. Values are decoded unless they may not fit the classes that the program has
    now.

    Args:
        files: oldest first; what a later one says of a key wins.

    Raises:
        DamagedFile: a file, or one of these groups in it, is missing, truncated or altered.
        StorageError: one can't be read, or was written by a version of Weir with another format.
    """
    for batch in load_encoded_state(storage, files, key_groups):
        try:
            yield decoded(batch)
        except DecodingError as error:
            names = ", ".join(storage.name_of(listed.file.path) for listed in files)
            raise DamagedFile(f"{names} is damaged: the state of key group {batch.group}: {error}") from error


def load_encoded_state(
    storage: CheckpointStorage, files: Sequence[StateFile], key_groups: range | None = None
) -> Iterator[StateBatch]:
    """As `load_keyed_state`, with the values encoded."""
    with ExitStack() as stack:
        opened = [stack.enter_context(storage.open_file(listed.file)) for listed in files]
        if len(files) == 1:
            with _explained(opened[0].name):
                groups = common(files[0].groups, key_groups)
                if not files[0].over:
                    yield from read_encoded(opened[0], groups)
                    return
        footers = [_footer(file) for file in opened]
        contents = together(footer.contents for footer in footers)
        groups_of = [
            _groups(file, listed, key_groups, footer)
            for file, listed, footer in zip(opened, files, footers, strict=True)
        ]
        for _, batches, ttl in merged(groups_of):
            for batch in batches:
                yield from state_batches(batch, ttl, contents)


def load_folded_state(
    storage: CheckpointStorage, files: Sequence[StateFile], key_groups: range | None = None
) -> Iterator[StateBatch]:
    """As `load_encoded_state`, with each list and map as one row, also if it lies in pages."""
    try:
        yield from folded(load_encoded_state(storage, files, key_groups))
    except SnapshotFormatError as error:
        names = ", ".join(storage.name_of(listed.file.path) for listed in files)
        raise DamagedFile(f"{names} is damaged: {error}") from error


def load_groups(storage: CheckpointStorage, files: Sequence[StateFile], older: Sequence[StateFile]) -> Iterator[Group]:
    """The rows of some neighbours in a subtask's list as those of one file (see `changelog.merge`). Otherwise as
    `load_keyed_state`.

    Args:
        older: those in front of them.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(storage.open_file(listed.file)) for listed in files]
        groups = [_groups(file, listed, None) for file, listed in zip(opened, files, strict=True)]
        yield from merged(groups, [listed.groups for listed in older])


def load_contents(storage: CheckpointStorage, files: Sequence[StateFile]) -> dict[str, StateContent]:
    """What the values in all of these files are, by state. Otherwise as `load_footer`."""
    return together(load_footer(storage, listed.file).contents for listed in files)


def _footer(file: OpenedFile) -> SnapshotFooter:
    with _explained(file.name):
        return read_footer(file)


def _groups(
    file: OpenedFile, listed: StateFile, key_groups: range | None, footer: SnapshotFooter | None = None
) -> Iterator[Group]:
    over, since = dict(listed.over), dict(listed.since)
    with _explained(file.name):
        for group, batches, ttl in read_groups(file, common(listed.groups, key_groups), footer):
            yield group, [without_over(batch, over, since) for batch in batches] if over else list(batches), ttl


def common(one: range | None, other: range | None) -> range | None:
    """Key groups that are in both; `None` = all."""
    if one is None or other is None:
        return other if one is None else one
    return range(max(one.start, other.start), min(one.stop, other.stop))


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
