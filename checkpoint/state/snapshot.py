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
| `value`     | binary           | `codec.encode_state`; a list or dict for list and map states          |

Timers are the rows of the states `event timers` and `processing timers`; their value is nil.

The buffers of each batch are compressed on their own, so that a reader needs only the bytes of its groups. The footer
holds `version`, `operator`, `max_parallelism` and `groups`, a list of [group, offset, length, rows, checksum]: bytes
from the start of the file, and the xxh3_128 of these bytes, 16 bytes big-endian as all checksums here. So what is read
is verified, and nothing else has to be read for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

import pyarrow as pa
import xxhash

from checkpoint.codec import DecodingError, EncodingError, decode, decode_key, decode_state, encode, encode_state
from checkpoint.state.timers import TIMER_STATES, split_entry

StateRow: TypeAlias = tuple[int, str, bytes, bytes | None, Any]
"""Key group, state, encoded key, namespace, value."""
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


class SnapshotFormatError(ValueError):
    """A file that is no snapshot of keyed state, or a damaged one."""


class RandomAccess(Protocol):
    """A file to read from."""

    def size(self) -> int: ...

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes from `offset` on; fewer at the end of the file."""


class SnapshotAbandoned(Exception):
    """The snapshot was released while or before it was written."""


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """What a snapshot file says about itself."""

    operator: str
    max_parallelism: int
    groups: tuple[tuple[int, int, int, int, bytes], ...]
    """Key group, offset, length (bytes), rows, checksum; ascending, only groups that hold something."""

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
    with pa.ipc.new_stream(pa.PythonFile(pieces, mode="w"), _SCHEMA, options=options) as stream:
        for group, states in groups:
            offset, rows, checksum = max(pieces.tell(), _SCHEMA_BYTES), 0, xxhash.xxh3_128()
            for batch in _batches(group, states, operator):
                if abandoned():
                    raise SnapshotAbandoned(f"the snapshot of {operator} was given up")
                start = pieces.tell()
                stream.write_batch(batch)
                checksum.update(pieces.pass_on()[max(0, offset - start) :])  # the schema belongs to no group
                rows += batch.num_rows
            table.append((group, offset, pieces.tell() - offset, rows, checksum.digest()))
    footer = SnapshotFooter(operator, max_parallelism, tuple(table))
    body = encode({"version": _VERSION, "operator": operator, "max_parallelism": max_parallelism, "groups": table})
    pieces.write(body + xxhash.xxh3_128(body).digest() + len(body).to_bytes(4, "little") + _MAGIC)
    pieces.pass_on()
    return footer


def _batches(group: int, states: list[tuple[str, dict[bytes, Any]]], operator: str) -> Iterator[Any]:
    rows = _Rows()
    turn_ends = time.perf_counter() + _SLICE
    for name, data in states:
        timers = name in TIMER_STATES
        entries, kept = list(data), list(data.values())
        for start in range(0, len(entries), _CHUNK):
            chunk = entries[start : start + _CHUNK]
            values = _encoded(kept[start : start + _CHUNK], chunk, name, operator)
            keys, namespaces = zip(*map(split_entry, chunk), strict=True) if timers else (chunk, [None] * len(chunk))
            large = sum(map(len, values)) > _BATCH_BYTES
            step = 1 if large else len(chunk)
            for i in range(0, len(chunk), step):
                rows.add(name, keys[i : i + step], namespaces[i : i + step], values[i : i + step])
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
        return list(map(encode_state, values))
    except EncodingError:
        for entry, value in zip(entries, values, strict=True):
            try:
                encode_state(value)
            except EncodingError as error:
                key = split_entry(entry)[0] if name in TIMER_STATES else entry
                raise EncodingError(f"state {name!r} of {operator}, key {decode_key(key)!r}: {error}") from None
        raise


class _Rows:
    """Of a batch."""

    def __init__(self) -> None:
        self.size = 0
        self._names: list[str] = []
        self._keys: list[bytes] = []
        self._namespaces: list[bytes | None] = []
        self._values: list[bytes] = []

    def __len__(self) -> int:
        return len(self._values)

    def add(self, name: str, keys: Sequence[bytes], namespaces: Sequence[bytes | None], values: list[bytes]) -> None:
        self._names += [name] * len(values)
        self._keys += keys
        self._namespaces += namespaces
        self._values += values
        self.size += sum(map(len, keys)) + sum(map(len, values))

    def batch(self, group: int) -> Any:
        columns = [
            pa.repeat(pa.scalar(group, pa.int16()), len(self)),
            pa.array(self._names, pa.string()),
            pa.array(self._keys, pa.binary()),
            pa.array(self._namespaces, pa.binary()),
            pa.array(self._values, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def read_footer(source: Any) -> SnapshotFooter:
    """What the file says about itself.

    Args:
        source: the file as bytes, memoryview or `pyarrow.Buffer`, or opened for random access (such as a
            `pyarrow.NativeFile`).

    Raises:
        SnapshotFormatError: it is no snapshot of keyed state, or damaged.
    """
    return _footer(_opened(source))


def read_snapshot(source: Any, key_groups: range | None = None) -> Iterator[StateRow]:
    """The rows of a snapshot file, by key group; of the given groups, or all. Reads no bytes of other groups, and one
    group at a time, verified before it is decoded.

    Args:
        source: as in `read_footer`.

    Raises:
        SnapshotFormatError: it is no snapshot of keyed state, or damaged.
    """
    file = _opened(source)
    for group, offset, length, expected, checksum in _footer(file).groups:
        if key_groups is not None and group not in key_groups:
            continue
        data = file.read_at(length, offset)
        if len(data) != length or xxhash.xxh3_128(data).digest() != checksum:
            raise SnapshotFormatError(f"the state of key group {group} is damaged: its checksum differs")
        rows = 0
        try:
            for row in _rows_of(data):
                if row[0] != group:
                    raise SnapshotFormatError(f"a row of key group {row[0]} lies among those of {group}")
                rows += 1
                yield row
        except (pa.ArrowException, EOFError, DecodingError) as error:
            raise SnapshotFormatError(f"the state of key group {group} is damaged: {error}") from error
        if rows != expected:
            raise SnapshotFormatError(f"the state of key group {group} has {rows} rows instead of {expected}")


def _rows_of(data: bytes) -> Iterator[StateRow]:
    reader = pa.BufferReader(data)
    while reader.tell() < len(data):
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(reader), _SCHEMA)
        groups, names, keys, namespaces, values = (column.to_pylist() for column in batch.columns)
        yield from zip(groups, names, keys, namespaces, map(decode_state, values), strict=True)


def _opened(source: Any) -> RandomAccess:
    opened: RandomAccess = source if hasattr(source, "read_at") else pa.BufferReader(source)
    return opened


def _footer(file: RandomAccess) -> SnapshotFooter:
    size = file.size()
    tail = bytes(file.read_at(_TAIL_BYTES, size - _TAIL_BYTES)) if size >= _TAIL_BYTES else b""
    magic = tail[-len(_MAGIC) :]
    if magic != _MAGIC:
        if magic[:-1] == _MAGIC[:-1]:
            raise SnapshotFormatError(f"format {magic!r} is not known here; use the Weir that wrote it")
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
            raise SnapshotFormatError(
                f"format version {footer['version']} is not known here; use the Weir that wrote it"
            )
        groups = tuple((g, offset, size, rows, checksum) for g, offset, size, rows, checksum in footer["groups"])
        return SnapshotFooter(footer["operator"], footer["max_parallelism"], groups)
    except (DecodingError, KeyError, TypeError) as error:
        raise SnapshotFormatError(f"the footer of the snapshot is damaged: {error}") from error
