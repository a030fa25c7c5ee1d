"""The file format of keyed state: written by a backend, readable without a running job.

    ┌ Arrow IPC stream ─────────────────────────────────────────────────────────────────────┐
    │ schema │ batches of key group a │ batches of key group b │ … │ end-of-stream marker    │
    └────────────────────────────────────────────────────────────────────────────────────────┘
    footer: msgpack map · its checksum, 16 bytes · its length, 4 bytes little-endian · magic, 8 bytes

Any Arrow reader can read the stream from the start; it stops before the footer. Columns:

| column      | type             |                                                                       |
|-------------|------------------|-----------------------------------------------------------------------|
| `key_group` | int16            | ascending; a batch holds one group only                               |
| `state`     | string           | name of the state                                                     |
| `key`       | binary           | `codec.encode_key`                                                    |
| `namespace` | binary, nullable | of timers the time: ms since the epoch + 2⁶³, 8 bytes big-endian; null  |
| `value`     | binary           | `codec.encode`; a list or dict for list and map states          |

Timers are the rows of the states `event timers` and `processing timers`; their value is nil.

The buffers of each batch are compressed on their own, so that a reader needs only the bytes of its groups. The footer
holds `version`, `operator`, `max_parallelism` and `groups`, a list of [group, offset, length, rows, checksum]: bytes
from the start of the file, and the xxh3_128 of these bytes, 16 bytes big-endian as all checksums here. So what is read
is verified, and nothing else has to be read for that.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice, pairwise, repeat
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import xxhash

from checkpoint.codec import DecodingError, EncodingError, decode, decode_key, encode, encode_around
from checkpoint.shown import shown
from checkpoint.state.timers import TIMER_STATES, split_entry

StateRow: TypeAlias = tuple[int, str, bytes, bytes | None, Any]
"""Key group, state, encoded key, namespace, value."""


class StateBatch(NamedTuple):
    """Rows of one key group and state; the three lists are of equal length."""

    group: int
    state: str
    keys: list[bytes]
    namespaces: list[bytes | None] | None
    """`None`: no row has one."""
    values: list[Any]


FrozenGroup: TypeAlias = tuple[int, list[tuple[str, dict[bytes, Any]]]]
"""Key group, and for each state its values by encoded key; for timers by entry (see `checkpoint.state.timers`)."""

_SCHEMA: Final = pa.schema(
    [
        pa.field("key_group", pa.int16(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("namespace", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
_SCHEMA_BYTES: Final = _SCHEMA.serialize().size
"""What Arrow writes in front of the first batch, and only then."""
_MAGIC: Final = b"WeirKey2"
_VERSION: Final = 2
_TAIL_BYTES: Final = 16 + 4 + len(_MAGIC)
"""Behind the footer's map."""
_BATCH_ROWS: Final = 4096
_BATCH_BYTES: Final = 1 << 20
_CHUNK: Final = 16
"""Rows that are encoded in one go, without a look at the clock."""
_SLICE: Final = 1e-3
"""Seconds of encoding after which the task thread gets its turn."""
_PAUSE: Final = 1e-4
"""Seconds; enough for a waiting thread to wake up and take the interpreter lock."""


_READ: Final = 8 << 20
"""Bytes of neighbouring key groups that are read at once, so that many small ones are not as many requests."""


class SnapshotFormatError(ValueError):
    """A file that is no snapshot of keyed state, or a damaged one."""


class UnknownSnapshotVersion(SnapshotFormatError):
    """A whole snapshot, written by another version of Weir."""


class RandomAccess(Protocol):
    """A file to read from."""

    def size(self) -> int: ...

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes from `offset` on; fewer at the end of the file."""


_Entry: TypeAlias = tuple[int, int, int, int, bytes]
"""Key group, offset, length (bytes), rows, checksum."""


class SnapshotAbandoned(Exception):
    """The snapshot was released while or before it was written."""


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """What a snapshot file says about itself."""

    operator: str
    max_parallelism: int
    groups: tuple[_Entry, ...]
    """Ascending, only groups that hold something."""
    states: tuple[str, ...] = ()
    """Names of the states that the file holds something of; of files that don't say so, none."""

    @property
    def rows(self) -> int:
        return sum(rows for _, _, _, rows, _ in self.groups)


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
    compression: Literal["lz4", "zstd", "none"],
    *,
    operator: str,
    max_parallelism: int,
    abandoned: Callable[[], bool] = lambda: False,
) -> SnapshotFooter:
    """Write a snapshot file. `groups` ascending; `abandoned` is asked between batches.

    Raises:
        EncodingError: a value can't be kept; the message names the operator, the state and the key.
        SnapshotAbandoned: `abandoned` said so.
    """
    pieces = _Pieces(sink)
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)
    table = []
    names: set[str] = set()
    with pa.ipc.new_stream(pa.PythonFile(pieces, mode="w"), _SCHEMA, options=options) as stream:
        for group, states in groups:
            names.update(name for name, entries in states if entries)
            offset, rows, checksum = max(pieces.tell(), _SCHEMA_BYTES), 0, xxhash.xxh3_128()
            for batch in _batches(group, states, operator):
                if abandoned():
                    raise SnapshotAbandoned(f"the snapshot of {operator} was given up")
                start = pieces.tell()
                stream.write_batch(batch)
                checksum.update(pieces.pass_on()[max(0, offset - start) :])  # the schema belongs to no group
                rows += batch.num_rows
            table.append((group, offset, pieces.tell() - offset, rows, checksum.digest()))
            del states  # the caller frees it when the next one is asked for
    footer = SnapshotFooter(operator, max_parallelism, tuple(table), tuple(sorted(names)))
    body = encode(
        {
            "version": _VERSION,
            "operator": operator,
            "max_parallelism": max_parallelism,
            "groups": table,
            "states": list(footer.states),
        }
    )
    pieces.write(body + xxhash.xxh3_128(body).digest() + len(body).to_bytes(4, "little") + _MAGIC)
    pieces.pass_on()
    return footer


def _batches(group: int, states: list[tuple[str, dict[bytes, Any]]], operator: str) -> Iterator[Any]:
    rows = _Rows()
    turn_ends = time.perf_counter() + _SLICE
    for name, data in states:
        timers = name in TIMER_STATES
        entries, kept = iter(data), iter(data.values())
        while chunk := list(islice(entries, _CHUNK)):
            values = _encoded(list(islice(kept, _CHUNK)), chunk, name, operator)
            keys, namespaces = zip(*map(split_entry, chunk), strict=True) if timers else (chunk, None)
            large = sum(map(len, values)) > _BATCH_BYTES
            step = 1 if large else len(chunk)
            for i in range(0, len(chunk), step):
                part = slice(i, i + step)
                rows.add(name, keys[part], None if namespaces is None else namespaces[part], values[part])
                if len(rows) >= _BATCH_ROWS or rows.size >= _BATCH_BYTES:
                    yield rows.batch(group)
                    rows = _Rows()
            if time.perf_counter() >= turn_ends:
                time.sleep(_PAUSE)
                turn_ends = time.perf_counter() + _SLICE
    if len(rows):
        yield rows.batch(group)


def _encoded(values: list[Any], entries: list[bytes], name: str, operator: str) -> list[bytes]:
    try:
        return list(map(encode, values))
    except EncodingError:
        encoded = []
        for entry, value in zip(entries, values, strict=True):
            try:
                encoded.append(encode_around(value))
            except EncodingError as error:
                key = split_entry(entry)[0] if name in TIMER_STATES else entry
                raise EncodingError(f"state {name!r} of {operator}, key {shown(decode_key(key))}: {error}") from None
        return encoded


class _BytesColumn:
    """A binary column in the making. It is no list, which Python's garbage collector would go through every time."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._ends = array("i", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def extend(self, values: Sequence[bytes]) -> None:
        self._ends.extend(islice(accumulate(map(len, values), initial=len(self.data)), 1, None))
        self.data += b"".join(values)

    def array(self) -> Any:
        return pa.Array.from_buffers(
            pa.binary(), len(self), [None, pa.py_buffer(self._ends), pa.py_buffer(self.data)], null_count=0
        )


class _Rows:
    """Of a batch."""

    def __init__(self) -> None:
        self._keys = _BytesColumn()
        self._values = _BytesColumn()
        self._states: list[tuple[str, int, _BytesColumn | None]] = []
        """Name, first row and namespaces of each state, in order."""

    def __len__(self) -> int:
        return len(self._values)

    @property
    def size(self) -> int:
        return len(self._keys.data) + len(self._values.data)

    def add(
        self, name: str, keys: Sequence[bytes], namespaces: Sequence[bytes] | None, values: Sequence[bytes]
    ) -> None:
        if not self._states or self._states[-1][0] != name:
            self._states.append((name, len(self), None if namespaces is None else _BytesColumn()))
        column = self._states[-1][2]
        if namespaces is not None and column is not None:
            column.extend(namespaces)
        self._keys.extend(keys)
        self._values.extend(values)

    def batch(self, group: int) -> Any:
        names, namespaces = [], []
        ends = [first for _, first, _ in self._states[1:]] + [len(self)]
        for (name, first, column), end in zip(self._states, ends, strict=True):
            names.append(pa.repeat(pa.scalar(name, pa.string()), end - first))
            namespaces.append(pa.nulls(end - first, pa.binary()) if column is None else column.array())
        columns = [
            pa.repeat(pa.scalar(group, pa.int16()), len(self)),
            pa.concat_arrays(names),
            self._keys.array(),
            pa.concat_arrays(namespaces),
            self._values.array(),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


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
    for group, state, keys, namespaces, values in read_batches(source, key_groups):
        yield from zip(repeat(group, len(keys)), repeat(state), keys, namespaces or repeat(None), values, strict=False)


def read_batches(source: Any, key_groups: range | None = None) -> Iterator[StateBatch]:
    """The rows of a snapshot file, by key group; of the given groups, or all.

    Reads no bytes of other groups, and one group at a time, or several small ones. What was read is verified before it
    is decoded.

    Args:
        source: as in `read_footer`.

    Raises:
        SnapshotFormatError: it is no snapshot of keyed state, or damaged.
    """
    file = _opened(source)
    wanted = [entry for entry in _footer(file).groups if key_groups is None or entry[0] in key_groups]
    for entries in _read_together(wanted):
        start = entries[0][1]
        data = memoryview(file.read_at(sum(entry[2] for entry in entries), start))
        for group, offset, length, expected, checksum in entries:
            yield from _verified(data[offset - start : offset - start + length], group, length, expected, checksum)


def _read_together(groups: list[_Entry]) -> Iterator[list[_Entry]]:
    """Groups that lie side by side, up to `_READ` bytes."""
    together: list[_Entry] = []
    size = 0
    for entry in groups:
        _, offset, length, _, _ = entry
        if together and (offset != together[-1][1] + together[-1][2] or size + length > _READ):
            yield together
            together, size = [], 0
        together.append(entry)
        size += length
    if together:
        yield together


def _verified(data: memoryview, group: int, length: int, expected: int, checksum: bytes) -> Iterator[StateBatch]:
    if len(data) != length or xxhash.xxh3_128(data).digest() != checksum:
        raise SnapshotFormatError(f"the state of key group {group} is damaged: its checksum differs")
    rows = 0
    try:
        for batch in _batches_in(data):
            if batch.group != group:
                raise SnapshotFormatError(f"a row of key group {batch.group} lies among those of {group}")
            rows += len(batch.keys)
            yield batch
    except (pa.ArrowException, EOFError, DecodingError) as error:
        raise SnapshotFormatError(f"the state of key group {group} is damaged: {error}") from error
    if rows != expected:
        raise SnapshotFormatError(f"the state of key group {group} has {rows} rows instead of {expected}")


def _batches_in(data: memoryview) -> Iterator[StateBatch]:
    reader = pa.BufferReader(data)
    while reader.tell() < len(data):
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(reader), _SCHEMA)
        batch.validate(full=True)
        groups, names, keys, namespaces, values = batch.columns
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
                list(map(decode, _bytes_of(values[part]))),
            )


def _runs(groups: Any, names: Any) -> Iterator[tuple[tuple[int, str], int]]:
    """Key group and state, and how many rows have them, one after the other."""
    found = groups.unique(), names.unique()
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
    tail = bytes(file.read_at(_TAIL_BYTES, size - _TAIL_BYTES)) if size >= _TAIL_BYTES else b""
    magic = tail[-len(_MAGIC) :]
    if magic != _MAGIC:
        if magic[:-1] == _MAGIC[:-1]:
            raise UnknownSnapshotVersion(f"format {magic!r} is not known here; use the Weir that wrote it")
        raise SnapshotFormatError(f"{size} bytes that end in {magic!r} are no complete snapshot of keyed state")
    checksum, length = tail[:16], int.from_bytes(tail[16:20], "little")
    try:
        if length + _TAIL_BYTES > size:
            raise DecodingError(f"a footer of {length} bytes can't be in a file of {size}")
        body = file.read_at(length, size - _TAIL_BYTES - length)
        if xxhash.xxh3_128(body).digest() != checksum:
            raise DecodingError("its checksum differs")
        footer = decode(body)
        if footer["version"] != _VERSION:
            raise UnknownSnapshotVersion(
                f"format version {footer['version']} is not known here; use the Weir that wrote it"
            )
        groups = tuple((g, offset, size, rows, checksum) for g, offset, size, rows, checksum in footer["groups"])
        states = tuple(footer.get("states", ()))
        return SnapshotFooter(footer["operator"], footer["max_parallelism"], groups, states)
    except (DecodingError, KeyError, TypeError) as error:
        raise SnapshotFormatError(f"the footer of the snapshot is damaged: {error}") from error
