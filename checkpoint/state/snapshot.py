"""The file format of keyed state: written by a backend, readable without a running job.

    ┌ Arrow IPC stream ─────────────────────────────────────────────────────────────────────┐
    │ schema │ batches of key group a │ batches of key group b │ … │ end-of-stream marker    │
    └────────────────────────────────────────────────────────────────────────────────────────┘
    footer: msgpack map · its length, 4 bytes little-endian · magic, 8 bytes

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
holds `version`, `operator`, `max_parallelism` and `groups`, a list of [group, offset, length, rows] in bytes from
the start of the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

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
_MAGIC: Final = b"WeirKey1"
_VERSION: Final = 1
_BATCH_ROWS: Final = 4096
_BATCH_BYTES: Final = 1 << 20
_SLICE: Final = 1e-3
"""Seconds of encoding after which the task thread gets its turn."""
_PAUSE: Final = 1e-4
"""Seconds; enough for a waiting thread to wake up and take the interpreter lock."""


class SnapshotFormatError(ValueError):
    """A file that is no snapshot of keyed state, or a damaged one."""


class SnapshotAbandoned(Exception):
    """The snapshot was released while or before it was written."""


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """What a snapshot file says about itself."""

    operator: str
    max_parallelism: int
    groups: tuple[tuple[int, int, int, int], ...]
    """Key group, offset, length (bytes), rows; ascending, only groups that hold something."""

    @property
    def rows(self) -> int:
        return sum(rows for _, _, _, rows in self.groups)


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

    def pass_on(self) -> None:
        held, self._held = self._held, bytearray()
        self._passed_on += len(held)
        if held:
            self._sink(memoryview(held))

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
            offset, rows = max(pieces.tell(), _SCHEMA_BYTES), 0
            for batch in _batches(group, states, operator):
                if abandoned():
                    raise SnapshotAbandoned(f"the snapshot of {operator} was given up")
                stream.write_batch(batch)
                pieces.pass_on()
                rows += batch.num_rows
            table.append((group, offset, pieces.tell() - offset, rows))
    footer = SnapshotFooter(operator, max_parallelism, tuple(table))
    body = encode({"version": _VERSION, "operator": operator, "max_parallelism": max_parallelism, "groups": table})
    pieces.write(body + len(body).to_bytes(4, "little") + _MAGIC)
    pieces.pass_on()
    return footer


def _batches(group: int, states: list[tuple[str, dict[bytes, Any]]], operator: str) -> Iterator[Any]:
    names: list[str] = []
    keys: list[bytes] = []
    namespaces: list[bytes | None] = []
    values: list[bytes] = []
    size = 0
    turn_ends = time.perf_counter() + _SLICE
    for name, data in states:
        timers = name in TIMER_STATES
        namespace = None
        for key, value in data.items():
            if timers:
                key, namespace = split_entry(key)
            try:
                encoded = encode_state(value)
            except EncodingError as error:
                raise EncodingError(f"state {name!r} of {operator}, key {decode_key(key)!r}: {error}") from None
            names.append(name)
            keys.append(key)
            namespaces.append(namespace)
            values.append(encoded)
            size += len(encoded) + len(key)
            n = len(values)
            if not n % 64 and time.perf_counter() >= turn_ends:
                time.sleep(_PAUSE)
                turn_ends = time.perf_counter() + _SLICE
            if n == _BATCH_ROWS or size >= _BATCH_BYTES:
                yield _batch(group, names, keys, namespaces, values)
                names, keys, namespaces, values, size = [], [], [], [], 0
    if values:
        yield _batch(group, names, keys, namespaces, values)


def _batch(group: int, names: list[str], keys: list[bytes], namespaces: list[bytes | None], values: list[bytes]) -> Any:
    n = len(values)
    columns = [
        pa.repeat(pa.scalar(group, pa.int16()), n),
        pa.array(names, pa.string()),
        pa.array(keys, pa.binary()),
        pa.array(namespaces, pa.binary()),
        pa.array(values, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def read_footer(source: Any) -> SnapshotFooter:
    """What the file says about itself.

    Args:
        source: the file as bytes, memoryview or `pyarrow.Buffer`, or opened for random access (`pyarrow.NativeFile`).

    Raises:
        SnapshotFormatError: it is no snapshot of keyed state, or damaged.
    """
    return _footer(_opened(source))


def read_snapshot(source: Any, key_groups: range | None = None) -> Iterator[StateRow]:
    """The rows of a snapshot file, by key group; of the given groups, or all. Reads no bytes of other groups.

    Args:
        source: as in `read_footer`.

    Raises:
        SnapshotFormatError: it is no snapshot of keyed state, or damaged.
    """
    file = _opened(source)
    for group, offset, length, expected in _footer(file).groups:
        if key_groups is not None and group not in key_groups:
            continue
        rows = 0
        try:
            for row in _rows_of(file.read_at(length, offset)):
                if row[0] != group:
                    raise SnapshotFormatError(f"a row of key group {row[0]} lies among those of {group}")
                rows += 1
                yield row
        except (pa.ArrowException, OSError, EOFError, DecodingError) as error:
            raise SnapshotFormatError(f"the state of key group {group} is damaged: {error}") from error
        if rows != expected:
            raise SnapshotFormatError(f"the state of key group {group} has {rows} rows instead of {expected}")


def _rows_of(data: bytes) -> Iterator[StateRow]:
    reader = pa.BufferReader(data)
    while reader.tell() < len(data):
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(reader), _SCHEMA)
        groups, names, keys, namespaces, values = (column.to_pylist() for column in batch.columns)
        yield from zip(groups, names, keys, namespaces, map(decode_state, values), strict=True)


def _opened(source: Any) -> Any:
    return source if isinstance(source, pa.NativeFile) else pa.BufferReader(source)


def _footer(file: Any) -> SnapshotFooter:
    size = file.size()
    tail = bytes(file.read_at(12, size - 12)) if size >= 12 else b""
    if tail[4:] != _MAGIC:
        raise SnapshotFormatError(f"{size} bytes that end in {tail!r} are no complete snapshot of keyed state")
    length = int.from_bytes(tail[:4], "little")
    try:
        if length + 12 > size:
            raise DecodingError(f"a footer of {length} bytes can't be in a file of {size}")
        footer = decode(file.read_at(length, size - 12 - length))
        if footer["version"] != _VERSION:
            raise SnapshotFormatError(
                f"format version {footer['version']} is not known here; use the Weir that wrote it"
            )
        groups = tuple((group, offset, length, rows) for group, offset, length, rows in footer["groups"])
        return SnapshotFooter(footer["operator"], footer["max_parallelism"], groups)
    except (DecodingError, KeyError, TypeError) as error:
        raise SnapshotFormatError(f"the footer of the snapshot is damaged: {error}") from error
