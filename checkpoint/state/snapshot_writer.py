"""Writing a snapshot file, beside a task thread that must not be held up (see `checkpoint.state.snapshot_format`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import xxhash

from checkpoint.codec import EncodingError, decode_key, encode, encode_all, encode_around, owner_of
from checkpoint.shown import shown
from checkpoint.state.contents import ContentNotes
from checkpoint.state.pace import Pace
from checkpoint.state.snapshot_format import (
    CHANGES_VERSION,
    MAGIC,
    PAGED,
    TTL_VERSION,
    VERSION,
    VERSIONS,
    Compression,
    GroupEntry,
    SnapshotFooter,
    group_runs,
)
from checkpoint.state.snapshot_rows import BatchRows, ChangedRows, RowsWithStamps
from checkpoint.state.stores import MISSING
from checkpoint.state.timers import TIMER_STATES, split_entry

FrozenGroup: TypeAlias = tuple[int, Iterable[tuple[str, Mapping[bytes, Any]]]]
"""Key group, and for each state its values by encoded key; for timers by entry (see `checkpoint.state.timers`). A state
may come in several parts, one behind the other. Among changes `MISSING` says that a key has no value any more."""


class TtlRows(Protocol):
    """What of a state with a time to live is in a snapshot."""

    @property
    def clock_name(self) -> str: ...

    def living(self, kept: Any) -> tuple[bytes | None, Any] | None:
        """What lives of what is kept for a key.

        Returns:
            Its stamps (see `checkpoint.state.snapshot_format`), if they are known, and the value as it is without a
            time to live; `None` if nothing lives.
        """


_BATCH_ROWS: Final = 4096
_BATCH_BYTES: Final = 1 << 20
_FEWEST: Final = 16
"""Rows that are encoded in one go, without a look at the clock."""
_MOST: Final = 128
"""The same, of small values."""
_SMALL: Final = 256
"""Bytes of a row."""


class SnapshotAbandoned(Exception):
    """The snapshot was released while or before it was written."""


class _Pieces:
    """The file object that Arrow writes into: counts, and passes on whole messages."""

    closed = False

    def __init__(self, sink: Callable[[memoryview], object]) -> None:
        self._sink = sink
        self._held = bytearray()
        self._passed_on = 0

    def write(self, data: Any) -> int:
        self._held += data
        return len(data)

    def tell(self) -> int:
        return self._passed_on + len(self._held)

    def pass_on(self) -> memoryview:
        """Give what was written since the last call to the sink; what that was."""
        held, self._held = memoryview(self._held), bytearray()
        self._passed_on += held.nbytes
        if held:
            self._sink(held)
        return held

    def flush(self) -> None:
        """Messages are passed on by `pass_on`."""

    def close(self) -> None:
        self.closed = True


def write_snapshot(
    groups: Iterable[FrozenGroup],
    sink: Callable[[memoryview], object],
    compression: Compression,
    *,
    operator: str,
    max_parallelism: int,
    abandoned: Callable[[], bool] = lambda: False,
    encoded: bool = False,
    changes: bool = False,
    ttl: Mapping[str, TtlRows] = {},
    notes: ContentNotes | None = None,
) -> SnapshotFooter:
    """Write a snapshot file.

    Args:
        groups: ascending.
        abandoned: asked between batches.
        encoded: the values are.
        changes: the groups have what has changed, not all. What has a time to live and is over counts as gone.
        ttl: for the states with a time to live, what is written of them.
        notes: what is known of the values beside what they show when they are written.

    Raises:
        EncodingError: a value can't be kept; the message names the operator, the state and the key.
        SnapshotAbandoned: `abandoned` said so.
    """
    names: set[str] = set()
    noted = notes or ContentNotes()
    footer = SnapshotFooter(
        operator,
        max_parallelism,
        ttl={name: rows.clock_name for name, rows in ttl.items()},
        version=CHANGES_VERSION if changes else TTL_VERSION if ttl else VERSION,
    )
    batches = batches_of(groups, operator, encoded, changes, ttl, names, noted)
    return write_batches(batches, sink, compression, footer, names, abandoned, noted)


def write_batches(
    batches: Iterable[Any],
    sink: Callable[[memoryview], object],
    compression: Compression,
    footer: SnapshotFooter,
    names: Collection[str],
    abandoned: Callable[[], bool] = lambda: False,
    notes: ContentNotes | None = None,
) -> SnapshotFooter:
    """Write a snapshot file out of Arrow batches.

    Args:
        batches: with the columns of the footer's version; of key groups, ascending. A group with more than one batch
            shares none with others.
        footer: what it says beside `groups` and `states`, with the version that it has without lists or maps in pages.
        names: the states that the batches have rows of; looked at once all are written.
        abandoned: asked between batches.
        notes: what the values are, once all are written; `None` = what `footer` says.

    Raises:
        SnapshotAbandoned: `abandoned` said so.
    """
    pieces = _Pieces(sink)
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)
    table: list[GroupEntry] = []
    schema = VERSIONS[footer.version]
    schema_bytes = schema.serialize().size  # what Arrow writes in front of the first batch, and only then
    with pa.ipc.new_stream(pa.PythonFile(pieces, mode="w"), schema, options=options) as stream:
        block = _Block(schema_bytes)
        for batch in batches:
            if abandoned():
                raise SnapshotAbandoned(f"the snapshot of {footer.operator} was given up")
            groups = group_runs(batch)
            if not groups:
                continue
            if groups[0][0] not in block.rows:
                table += block.entries()
                block = _Block(max(pieces.tell(), schema_bytes))
            start = pieces.tell()
            stream.write_batch(batch)
            block.add(pieces.pass_on()[max(0, schema_bytes - start) :], groups)  # the schema belongs to no block
            del batch
        table += block.entries()
    contents = footer.contents if notes is None else notes.contents()
    version = footer.version + PAGED * any(content.paged is not None for content in contents.values())
    footer = replace(footer, groups=tuple(table), states=tuple(sorted(names)), contents=contents, version=version)
    body = encode(
        {
            "version": footer.version,
            "operator": footer.operator,
            "max_parallelism": footer.max_parallelism,
            "groups": [list(entry) for entry in table],
            "states": list(footer.states),
            "contents": {name: content.to_wire() for name, content in contents.items()},
            **({"ttl": dict(footer.ttl)} if footer.ttl else {}),
        }
    )
    pieces.write(body + xxhash.xxh3_128(body).digest() + len(body).to_bytes(4, "little") + MAGIC)
    pieces.pass_on()
    return footer


class _Block:
    """What of a file is read together."""

    def __init__(self, offset: int) -> None:
        self.rows: dict[int, int] = {}
        """By key group."""
        self._offset = offset
        self._length = 0
        self._checksum = xxhash.xxh3_128()

    def add(self, data: memoryview, groups: Iterable[tuple[int, int]]) -> None:
        self._checksum.update(data)
        self._length += data.nbytes
        for group, rows in groups:
            self.rows[group] = self.rows.get(group, 0) + rows

    def entries(self) -> Iterator[GroupEntry]:
        checksum = self._checksum.digest()
        return ((group, self._offset, self._length, rows, checksum) for group, rows in self.rows.items())


def batches_of(
    groups: Iterable[FrozenGroup],
    operator: str,
    encoded: bool,
    changes: bool,
    ttl: Mapping[str, TtlRows],
    names: set[str],
    notes: ContentNotes,
) -> Iterator[Any]:
    """The Arrow batches of key groups. Takes its time, and lets the task thread run in between.

    Args:
        groups: ascending. When one is asked for, nothing is read of those before it.
        names: gets those of the states that have rows.
        notes: gets what their values are.
        encoded, changes, ttl: as in `write_snapshot`.
    """
    pace = Pace()
    new = ChangedRows if changes else RowsWithStamps if ttl else BatchRows
    rows = new()
    most: dict[str, int] = {}
    for group, states in groups:
        if rows.full:
            yield rows.batch()
            rows = new()
        first, divided = len(rows), False
        for name, data in states:
            timers, of_ttl = name in TIMER_STATES, ttl.get(name)
            entries, kept = iter(data), iter(data.values())
            while chunk := list(islice(entries, most.setdefault(name, _FEWEST))):
                values = list(islice(kept, len(chunk)))
                written: list[bytes | None] | None = None
                if of_ttl is not None:
                    chunk, written, values = _living(of_ttl, chunk, values, changes)
                as_they_were = None if encoded else values
                if not encoded:
                    values = (
                        _encoded_changes(values, chunk, name, operator)
                        if changes
                        else _encoded(values, chunk, name, operator)
                    )
                elif changes:
                    values = [None if value is MISSING else value for value in values]
                if not timers:
                    notes.note(name, values, as_they_were)
                keys, namespaces = zip(*map(split_entry, chunk), strict=True) if timers else (chunk, None)
                size = sum(map(len, filter(None, values)))
                step = 1 if size > _BATCH_BYTES else max(1, len(chunk))
                most[name] = min(2 * most[name], _MOST) if size <= _SMALL * most[name] else _FEWEST
                for i in range(0, len(chunk), step):
                    part = slice(i, i + step)
                    names.add(name)
                    rows.add(
                        group,
                        name,
                        keys[part],
                        None if namespaces is None else namespaces[part],
                        values[part],
                        None if written is None else written[part],
                    )
                    if len(rows) >= _BATCH_ROWS or rows.size >= _BATCH_BYTES:
                        batch = rows.batch()
                        if first:
                            yield batch[:first]
                        yield batch[first:]
                        rows, first, divided = new(), 0, True
                pace.give_way()
            del data, entries, kept
        if divided and len(rows):
            yield rows.batch()  # a group that is divided shares no batch
            rows = new()
        del states  # whoever gave it frees it when the next one is asked for
    if len(rows):
        yield rows.batch()


def _living(
    rows: TtlRows, keys: list[bytes], kept: list[Any], changes: bool
) -> tuple[list[bytes], list[bytes | None], list[Any]]:
    """Keys of which something lives, with stamps and values; among changes the others, too."""
    found: list[tuple[bytes, bytes | None, Any]] = []
    for key, one in zip(keys, kept, strict=True):
        living = None if one is MISSING else rows.living(one)
        if living is not None:
            found.append((key, *living))
        elif changes:
            found.append((key, None, MISSING))
    return [one[0] for one in found], [one[1] for one in found], [one[2] for one in found]


def _encoded_changes(values: list[Any], entries: list[bytes], name: str, operator: str) -> list[bytes | None]:
    there = [(value, entry) for value, entry in zip(values, entries, strict=True) if value is not MISSING]
    encoded = iter(_encoded([value for value, _ in there], [entry for _, entry in there], name, operator))
    return [None if value is MISSING else next(encoded) for value in values]


def _encoded(values: list[Any], entries: list[bytes], name: str, operator: str) -> list[bytes]:
    try:
        return encode_all(values)
    except EncodingError:
        encoded = []
        for entry, value in zip(entries, values, strict=True):
            try:
                encoded.append(encode_around(value))
            except EncodingError as error:
                key = split_entry(entry)[0] if name in TIMER_STATES else owner_of(entry)
                raise EncodingError(f"state {name!r} of {operator}, key {shown(decode_key(key))}: {error}") from None
        return encoded
