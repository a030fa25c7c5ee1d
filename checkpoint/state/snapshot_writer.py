"""Writing a snapshot file, beside a task thread that must not be held up (see `checkpoint.state.snapshot_format`)."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, Final, Literal, Protocol, TypeAlias

import pyarrow as pa
import xxhash

from checkpoint.codec import EncodingError, decode_key, encode, encode_around
from checkpoint.shown import shown
from checkpoint.state.snapshot_format import MAGIC, SCHEMA, TTL_SCHEMA, TTL_VERSION, VERSION, SnapshotFooter
from checkpoint.state.timers import TIMER_STATES, split_entry

FrozenGroup: TypeAlias = tuple[int, list[tuple[str, dict[bytes, Any]]]]
"""Key group, and for each state its values by encoded key; for timers by entry (see `checkpoint.state.timers`)."""


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
_CHUNK: Final = 16
"""Rows that are encoded in one go, without a look at the clock."""
_SLICE: Final = 1e-3
"""Seconds of encoding after which the task thread gets its turn."""
_PAUSE: Final = 1e-4
"""Seconds; enough for a waiting thread to wake up and take the interpreter lock."""


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
    compression: Literal["lz4", "zstd", "none"],
    *,
    operator: str,
    max_parallelism: int,
    abandoned: Callable[[], bool] = lambda: False,
    encoded: bool = False,
    ttl: Mapping[str, TtlRows] = {},
) -> SnapshotFooter:
    """Write a snapshot file.

    Args:
        groups: ascending.
        abandoned: asked between batches.
        encoded: the values are.
        ttl: for the states with a time to live, what is written of them.

    Raises:
        EncodingError: a value can't be kept; the message names the operator, the state and the key.
        SnapshotAbandoned: `abandoned` said so.
    """
    pieces = _Pieces(sink)
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)
    table = []
    names: set[str] = set()
    schema = TTL_SCHEMA if ttl else SCHEMA
    schema_bytes = schema.serialize().size  # what Arrow writes in front of the first batch, and only then
    with pa.ipc.new_stream(pa.PythonFile(pieces, mode="w"), schema, options=options) as stream:
        for group, states in groups:
            offset, rows, checksum = max(pieces.tell(), schema_bytes), 0, xxhash.xxh3_128()
            for batch in _batches(group, states, operator, encoded, ttl, names):
                if abandoned():
                    raise SnapshotAbandoned(f"the snapshot of {operator} was given up")
                start = pieces.tell()
                stream.write_batch(batch)
                checksum.update(pieces.pass_on()[max(0, offset - start) :])  # the schema belongs to no group
                rows += batch.num_rows
            if rows:
                table.append((group, offset, pieces.tell() - offset, rows, checksum.digest()))
            del states  # the caller frees it when the next one is asked for
    clocks = {name: rows.clock_name for name, rows in ttl.items()}
    footer = SnapshotFooter(operator, max_parallelism, tuple(table), tuple(sorted(names)), clocks)
    body = encode(
        {
            "version": TTL_VERSION if ttl else VERSION,
            "operator": operator,
            "max_parallelism": max_parallelism,
            "groups": table,
            "states": list(footer.states),
            **({"ttl": clocks} if ttl else {}),
        }
    )
    pieces.write(body + xxhash.xxh3_128(body).digest() + len(body).to_bytes(4, "little") + MAGIC)
    pieces.pass_on()
    return footer


def _batches(
    group: int,
    states: list[tuple[str, dict[bytes, Any]]],
    operator: str,
    encoded: bool,
    ttl: Mapping[str, TtlRows],
    names: set[str],
) -> Iterator[Any]:
    """`names`: gets those of the states that have rows."""
    new = _RowsWithStamps if ttl else _Rows
    rows = new()
    turn_ends = time.perf_counter() + _SLICE
    for name, data in states:
        timers, of_ttl = name in TIMER_STATES, ttl.get(name)
        entries, kept = iter(data), iter(data.values())
        while chunk := list(islice(entries, _CHUNK)):
            values = list(islice(kept, _CHUNK))
            written: list[bytes | None] | None = None
            if of_ttl is not None:
                chunk, written, values = _living(of_ttl, chunk, values)
            if not encoded:
                values = _encoded(values, chunk, name, operator)
            keys, namespaces = zip(*map(split_entry, chunk), strict=True) if timers else (chunk, None)
            large = sum(map(len, values)) > _BATCH_BYTES
            step = 1 if large else max(1, len(chunk))
            for i in range(0, len(chunk), step):
                part = slice(i, i + step)
                names.add(name)
                rows.add(
                    name,
                    keys[part],
                    None if namespaces is None else namespaces[part],
                    values[part],
                    None if written is None else written[part],
                )
                if len(rows) >= _BATCH_ROWS or rows.size >= _BATCH_BYTES:
                    yield rows.batch(group)
                    rows = new()
            if time.perf_counter() >= turn_ends:
                time.sleep(_PAUSE)
                turn_ends = time.perf_counter() + _SLICE
    if len(rows):
        yield rows.batch(group)


def _living(rows: TtlRows, keys: list[bytes], kept: list[Any]) -> tuple[list[bytes], list[bytes | None], list[Any]]:
    """Keys of which something lives, with stamps and values."""
    found = [(key, *living) for key, one in zip(keys, kept, strict=True) if (living := rows.living(one)) is not None]
    return [one[0] for one in found], [one[1] for one in found], [one[2] for one in found]


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
    """The rows of a batch that is being built."""

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
        self,
        name: str,
        keys: Sequence[bytes],
        namespaces: Sequence[bytes] | None,
        values: Sequence[bytes],
        written: Sequence[bytes | None] | None,
    ) -> None:
        if not self._states or self._states[-1][0] != name:
            self._states.append((name, len(self), None if namespaces is None else _BytesColumn()))
        column = self._states[-1][2]
        if namespaces is not None and column is not None:
            column.extend(namespaces)
        self._keys.extend(keys)
        self._values.extend(values)

    def batch(self, group: int) -> Any:
        return pa.RecordBatch.from_arrays(self._columns(group), schema=SCHEMA)

    def _columns(self, group: int) -> list[Any]:
        names, namespaces = [], []
        ends = [first for _, first, _ in self._states[1:]] + [len(self)]
        for (name, first, column), end in zip(self._states, ends, strict=True):
            names.append(pa.repeat(pa.scalar(name, pa.string()), end - first))
            namespaces.append(pa.nulls(end - first, pa.binary()) if column is None else column.array())
        return [
            pa.repeat(pa.scalar(group, pa.int16()), len(self)),
            pa.concat_arrays(names),
            self._keys.array(),
            pa.concat_arrays(namespaces),
            self._values.array(),
        ]


class _RowsWithStamps(_Rows):
    """With the column that only files with a time to live have."""

    def __init__(self) -> None:
        super().__init__()
        self._written: list[bytes | None] = []

    def add(
        self,
        name: str,
        keys: Sequence[bytes],
        namespaces: Sequence[bytes] | None,
        values: Sequence[bytes],
        written: Sequence[bytes | None] | None,
    ) -> None:
        super().add(name, keys, namespaces, values, written)
        self._written.extend([None] * len(keys) if written is None else written)

    def batch(self, group: int) -> Any:
        columns = [*self._columns(group), pa.array(self._written, pa.binary())]
        return pa.RecordBatch.from_arrays(columns, schema=TTL_SCHEMA)
