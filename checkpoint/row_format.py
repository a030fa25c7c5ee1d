"""The edge format of rows: each value on its own, as msgpack.

A batch is an Arrow record batch with one row a record:

| column      | type            |                                                                        |
|-------------|-----------------|------------------------------------------------------------------------|
| `value`     | binary          | msgpack (`codec.encode`)                                               |
| `timestamp` | int64, nullable | event time in ms; null = none                                          |
| `key_group` | int16           | decides where the row goes, also when what was in flight is spread anew |
| `key`       | binary          | `codec.encode_key`; carried so that the key function runs only once    |

Edges that carry no keys have the first two only.

The payload of a frame is a batch as one encapsulated Arrow IPC message. The schema isn't sent; both ends know
whether the edge carries keys.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from checkpoint.codec import DecodingError, decode, decode_joined
from checkpoint.counted import counted
from checkpoint.edge_format import DecodedRows, EdgeFormat, StoredRows
from checkpoint.elements import Payload

_PLAIN: Final = pa.schema([pa.field("value", pa.binary(), nullable=False), pa.field("timestamp", pa.int64())])
_KEYED: Final = pa.schema(
    [*_PLAIN, pa.field("key_group", pa.int16(), nullable=False), pa.field("key", pa.binary(), nullable=False)]
)
_PLAIN_ROW: Final = 4 + 8
_KEYED_ROW: Final = _PLAIN_ROW + 2 + 4
_MAX_BYTES: Final = 2**31 - 1
"""Offsets of a binary column are int32."""


class RowBatchBuilder:
    """See `checkpoint.edge_format.BatchBuilder`."""

    __slots__ = ("_groups", "_keyed", "_keys", "_timestamps", "_values", "size")

    def __init__(self, keyed: bool) -> None:
        self._keyed = keyed
        self._reset()

    def _reset(self) -> None:
        self.size = 0
        """Bytes of the records so far, as they count against credit."""
        self._values: list[bytes] = []
        self._timestamps: list[int | None] = []
        self._keys: list[bytes] = []
        self._groups: list[int] = []

    @property
    def rows(self) -> int:
        return len(self._values)

    def append(self, value: bytes, timestamp: int | None) -> None:
        self._values.append(value)
        self._timestamps.append(timestamp)
        self.size += len(value) + _PLAIN_ROW

    def append_keyed(self, value: bytes, timestamp: int | None, key: bytes, group: int) -> None:
        self._values.append(value)
        self._timestamps.append(timestamp)
        self._keys.append(key)
        self._groups.append(group)
        self.size += len(value) + len(key) + _KEYED_ROW

    def seal(self) -> Any:
        n = len(self._values)
        if len(self._keys) != (n if self._keyed else 0):
            raise ValueError(f"{len(self._keys)} of {counted(n, 'row')} have a key on an edge with keyed={self._keyed}")
        if self.size > _MAX_BYTES:
            raise ValueError(f"a batch of {counted(self.size, 'byte')} exceeds 2 GiB; lower the target size of batches")
        timed = self._timestamps.count(None) < n
        columns = [
            pa.array(self._values, pa.binary()),
            pa.array(self._timestamps, pa.int64()) if timed else pa.nulls(n, pa.int64()),
        ]
        if self._keyed:
            groups = pa.py_buffer(array("h", self._groups))
            columns += [pa.Array.from_buffers(pa.int16(), n, [None, groups]), pa.array(self._keys, pa.binary())]
        batch = pa.RecordBatch.from_arrays(columns, schema=_KEYED if self._keyed else _PLAIN)
        self._reset()
        return batch


def _decode_all(column: Any) -> list[Any]:
    """All values of a binary column.

    Each is one msgpack object and they lie side by side, so that with a header in front they are one msgpack array:
    one call instead of one a row, which takes half the time.
    """
    n = len(column)
    if n == 0:
        return []
    _, offset_buffer, data = column.buffers()
    offsets = memoryview(offset_buffer).cast("i")
    begin, end = offsets[column.offset], offsets[column.offset + n]
    joined = b"".join((b"\xdd", n.to_bytes(4, "big"), memoryview(data)[begin:end]))
    try:
        values: list[Any] = decode_joined(joined)
    except ValueError:
        for i, value in enumerate(column.to_pylist()):
            try:
                decode(value)
            except DecodingError as error:
                raise DecodingError(f"row {i} of a batch of {n}: {error}") from None
        raise
    return values


class RowFormat(EdgeFormat):
    """There are two: `row_format` gives them."""

    def __init__(self, carries_keys: bool) -> None:
        self.carries_keys = carries_keys
        self._schema = _KEYED if carries_keys else _PLAIN

    def builder(self) -> RowBatchBuilder:
        return RowBatchBuilder(self.carries_keys)

    def to_frame(self, batch: Any) -> Any:
        return batch.serialize()

    def from_frame(self, frame: Payload) -> Any:
        try:
            return pa.ipc.read_record_batch(frame, self._schema)
        except (pa.ArrowException, OSError, EOFError) as error:
            kind = "keyed" if self.carries_keys else "plain"
            raise ValueError(
                f"{counted(len(frame), 'byte is', 'bytes are')} no frame of a {kind} edge: {error}"
            ) from error

    def rows(self, batch: Any) -> DecodedRows:
        timestamps = batch.column(1)
        return DecodedRows(
            _decode_all(batch.column(0)),
            None if timestamps.null_count == len(timestamps) else timestamps.to_pylist(),
            batch.column(3).to_pylist() if self.carries_keys else None,
            batch.column(2).to_pylist() if self.carries_keys else None,
        )

    def pieces(self, batch: Any, target: int) -> Iterator[Any]:
        rows = batch.num_rows
        columns = [column for column in batch.columns if pa.types.is_binary(column.type)]
        offsets = [memoryview(column.buffers()[1]).cast("B").cast("i")[column.offset :] for column in columns]
        fixed = _KEYED_ROW if self.carries_keys else _PLAIN_ROW

        def size(row: int) -> int:
            """Bytes of the rows before this one."""
            return row * fixed + sum(ends[row] - ends[0] for ends in offsets)

        start = 0
        while start < rows:
            fitting = bisect_right(range(rows + 1), size(start) + target, key=size) - 1
            end = max(fitting, start + 1)
            yield batch.slice(start, end - start)
            start = end

    def to_stored(self, batch: Any) -> StoredRows:
        keys = batch.columns[2:] if self.carries_keys else (None, None)
        return StoredRows(batch.column(0), batch.column(1), *keys)

    def from_stored(self, rows: StoredRows) -> Any:
        return pa.RecordBatch.from_arrays(list(rows if self.carries_keys else rows[:2]), schema=self._schema)

    def with_keys(self, batch: Any, key_groups: Any, keys: Any) -> Any:
        return pa.RecordBatch.from_arrays([*batch.columns[:2], key_groups, keys], schema=self._schema)

    def without_keys(self, batch: Any) -> Any:
        return batch.select([0, 1])


_WITH_KEYS: Final = RowFormat(carries_keys=True)
_WITHOUT_KEYS: Final = RowFormat(carries_keys=False)


def row_format(carries_keys: bool) -> EdgeFormat:
    """The row format of an edge whose batches have keys, or have none."""
    return _WITH_KEYS if carries_keys else _WITHOUT_KEYS
