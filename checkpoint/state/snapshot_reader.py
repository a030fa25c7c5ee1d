"""Reading a snapshot file, of the key groups that are wanted (see `checkpoint.state.snapshot_format`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise, repeat
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import xxhash

from checkpoint.codec import DecodingError, decode
from checkpoint.counted import counted
from checkpoint.state.contents import StateContent
from checkpoint.state.evolution import decoded
from checkpoint.state.snapshot_format import (
    MAGIC,
    SCHEMA,
    TAIL_BYTES,
    VERSIONS,
    GroupEntry,
    SnapshotFooter,
    SnapshotFormatError,
    StateBatch,
    StateRow,
    UnknownSnapshotVersion,
    group_runs,
)

_READ: Final = 8 << 20
"""Bytes of neighbouring blocks that are read at once, so that many small ones are not as many requests."""
Block: TypeAlias = list[GroupEntry]
"""The entries of the key groups in one block."""


class RandomAccess(Protocol):
    """A file to read from."""

    def size(self) -> int: ...

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes from `offset` on; fewer at the end of the file."""


def read_footer(source: Any) -> SnapshotFooter:
    """What the file says about itself.

    Args:
        source: the file as bytes, memoryview or `pyarrow.Buffer`, or opened for random access (such as a
            `pyarrow.NativeFile`).

    Raises:
        SnapshotFormatError: it is no snapshot of keyed state, or damaged; `UnknownSnapshotVersion`: it is another
            version's.
    """
    return _footer(_opened(source))


def read_snapshot(source: Any, key_groups: range | None = None) -> Iterator[StateRow]:
    """The rows of a snapshot file, by key group; of the given groups, or all. As `read_batches` otherwise."""
    for batch in read_batches(source, key_groups):
        spaces = batch.namespaces or repeat(None)
        values = map(decode, batch.values) if batch.encoded else batch.values
        yield from zip(
            repeat(batch.group, len(batch.keys)), repeat(batch.state), batch.keys, spaces, values, strict=False
        )


def read_batches(source: Any, key_groups: range | None = None) -> Iterator[StateBatch]:
    """The rows of a snapshot file, by key group; of the given groups, or all.

    Reads no other blocks than those that these groups are in, and one at a time, or several small ones. What was read
    is verified before it is decoded.

    Args:
        source: as in `read_footer`.

    Returns:
        Batches with the values decoded, or still encoded if they may not fit the classes that the program has now.

    Raises:
        SnapshotFormatError: it is no snapshot of keyed state, or damaged.
    """
    for batch in read_encoded(source, key_groups):
        try:
            yield decoded(batch)
        except DecodingError as error:
            raise SnapshotFormatError(f"the state of key group {batch.group} is damaged: {error}") from error


def read_encoded(source: Any, key_groups: range | None = None) -> Iterator[StateBatch]:
    """As `read_batches`, with the values as they lie there: encoded."""
    file = _opened(source)
    footer = _footer(file)
    for _, batches, ttl in read_groups(file, key_groups, footer):
        for batch in batches:
            yield from state_batches(batch, ttl, footer.contents)


def read_groups(
    source: Any, key_groups: range | None = None, footer: SnapshotFooter | None = None
) -> Iterator[tuple[int, Iterator[Any], Mapping[str, str]]]:
    """As `read_batches`, as Arrow batches: a key group, its batches, and which states have a time to live, by which
    clock. The batches of a group are to be taken before the next group is; what they raise is `SnapshotFormatError`,
    too."""
    file = _opened(source)
    footer = footer or _footer(file)
    blocks = [list(entries) for _, entries in groupby(footer.groups, key=itemgetter(1))]
    wanted = [block for block in blocks if key_groups is None or any(entry[0] in key_groups for entry in block)]
    for together in _read_together(wanted):
        start = together[0][0][1]
        data = memoryview(file.read_at(sum(block[0][2] for block in together), start))
        for block in together:
            _, offset, length, _, _ = block[0]
            part = data[offset - start : offset - start + length]
            for group, batches in _groups_in(part, block, VERSIONS[footer.version]):
                if key_groups is None or group in key_groups:
                    yield group, batches, footer.ttl


def _read_together(blocks: list[Block]) -> Iterator[list[Block]]:
    """Blocks that lie side by side, up to `_READ` bytes."""
    together: list[Block] = []
    end = 0
    for block in blocks:
        _, offset, length, _, _ = block[0]
        if together and (offset != end or offset + length - together[0][0][1] > _READ):
            yield together
            together = []
        together.append(block)
        end = offset + length
    if together:
        yield together


def _groups_in(data: memoryview, block: Block, schema: Any) -> Iterator[tuple[int, Iterator[Any]]]:
    """The key groups of a block, with their Arrow batches."""
    if len(block) == 1:
        yield block[0][0], _verified(data, block, schema)
        return
    parts: dict[int, list[Any]] = {group: [] for group, *_ in block}
    for batch in _verified(data, block, schema):
        start = 0
        for group, rows in group_runs(batch):
            parts[group].append(batch[start : start + rows])
            start += rows
    yield from ((group, iter(batches)) for group, batches in parts.items())


def _verified(data: memoryview, block: Block, schema: Any) -> Iterator[Any]:
    """The Arrow batches of a block."""
    _, _, length, _, checksum = block[0]
    name = f"key group {block[0][0]}" if len(block) == 1 else f"key groups {block[0][0]} to {block[-1][0]}"
    if len(data) != length or xxhash.xxh3_128(data).digest() != checksum:
        raise SnapshotFormatError(f"the state of {name} is damaged: its checksum differs")
    missing = {group: rows for group, _, _, rows, _ in block}
    try:
        reader = pa.BufferReader(data)
        while reader.tell() < len(data):
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(reader), schema)
            batch.validate(full=True)
            for group, rows in group_runs(batch):
                if group not in missing:
                    raise SnapshotFormatError(f"a row of key group {group} lies among those of {name}")
                missing[group] -= rows
            yield batch
    except (pa.ArrowException, EOFError) as error:
        raise SnapshotFormatError(f"the state of {name} is damaged: {error}") from error
    for group, _, _, expected, _ in block:
        if missing[group]:
            raise SnapshotFormatError(
                f"the state of key group {group} has {counted(expected - missing[group], 'row')} instead of "
                f"{expected:,}"
            )


def state_batches(
    batch: Any, ttl: Mapping[str, str], contents: Mapping[str, StateContent] = {}
) -> Iterator[StateBatch]:
    """The rows of an Arrow batch, by state, with encoded values; without keys that have no value any more.

    Args:
        batch: of one key group, with the columns of any version.
        ttl: which states have a time to live, and by which clock.
        contents: what the values of each state are, as far as it is known.
    """
    if batch.column("value").null_count:
        batch = batch.filter(batch.column("value").is_valid())
    groups, names, keys, namespaces, values = batch.columns[: len(SCHEMA)]
    start = 0
    for (group, name), count in _runs(groups, names):
        part = slice(start, start + count)
        start += count
        spaces = namespaces[part]
        yield StateBatch(
            group,
            name,
            _bytes_of(keys[part]),
            None if spaces.null_count == count else spaces.to_pylist(),
            _bytes_of(values[part]),
            batch.column(len(SCHEMA))[part].to_pylist() if name in ttl else None,
            ttl.get(name),
            contents.get(name),
            encoded=True,
        )


def _runs(groups: Any, names: Any) -> Iterator[tuple[tuple[int, str], int]]:
    """Key group and state, and how many rows have them, one after the other."""
    found = groups.unique(), names.unique()
    if not len(groups):
        return
    if len(found[0]) == len(found[1]) == 1:
        yield (found[0][0].as_py(), found[1][0].as_py()), len(groups)
        return
    for run, rows in groupby(zip(groups.to_pylist(), names.to_pylist(), strict=True)):
        yield run, sum(1 for _ in rows)


def _bytes_of(column: Any) -> list[bytes]:
    """What `to_pylist` gives for a binary column without nulls, in a tenth of the time."""
    _, ends, data = column.buffers()
    place = memoryview(ends).cast("i")[column.offset : column.offset + len(column) + 1].tolist()
    content = bytes(memoryview(data)[place[0] : place[-1]]) if data is not None else b""
    first = place[0]
    return [content[a - first : b - first] for a, b in pairwise(place)]


def _opened(source: Any) -> RandomAccess:
    opened: RandomAccess = source if hasattr(source, "read_at") else pa.BufferReader(source)
    return opened


def _footer(file: RandomAccess) -> SnapshotFooter:
    size = file.size()
    tail = bytes(file.read_at(TAIL_BYTES, size - TAIL_BYTES)) if size >= TAIL_BYTES else b""
    magic = tail[-len(MAGIC) :]
    if magic != MAGIC:
        if magic[:-1] == MAGIC[:-1]:
            raise UnknownSnapshotVersion(f"format {magic!r} is not known here; use the Weir that wrote it")
        raise SnapshotFormatError(
            f"{counted(size, 'byte')} that end in {magic!r} are no complete snapshot of keyed state"
        )
    checksum, length = tail[:16], int.from_bytes(tail[16:20], "little")
    try:
        if length + TAIL_BYTES > size:
            raise DecodingError(f"a footer of {counted(length, 'byte')} can't be in a file of {size}")
        body = file.read_at(length, size - TAIL_BYTES - length)
        if xxhash.xxh3_128(body).digest() != checksum:
            raise DecodingError("its checksum differs")
        footer = decode(body)
        if footer["version"] not in VERSIONS:
            raise UnknownSnapshotVersion(
                f"format version {footer['version']} is not known here; use the Weir that wrote it"
            )
        groups = tuple((g, offset, size, rows, checksum) for g, offset, size, rows, checksum in footer["groups"])
        states, ttl = tuple(footer.get("states", ())), dict(footer.get("ttl", {}))
        contents = {name: StateContent.from_wire(wire) for name, wire in footer.get("contents", {}).items()}
        return SnapshotFooter(
            footer["operator"], footer["max_parallelism"], groups, states, ttl, footer["version"], contents
        )
    except UnknownSnapshotVersion:
        raise
    except (DecodingError, KeyError, TypeError, ValueError) as error:
        raise SnapshotFormatError(f"the footer of the snapshot is damaged: {error}") from error
