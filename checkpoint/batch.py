"""The wire format: what travels in channels, lies in channel state and is kept in savepoints.

An Arrow record batch with one row a record:

| column      | type                     |                                                                      |
|-------------|--------------------------|----------------------------------------------------------------------|
| `value`     | binary                   | msgpack (`codec.encode`)                                             |
| `timestamp` | int64, nullable          | event time in ms; null = none                                        |
| `key_group` | int16, keyed edges only  | decides where the row goes, also when in-flight data is rescaled     |
| `key`       | binary, keyed edges only | `codec.encode_key`; carried so that the key function runs only once  |

A *frame* is such a batch as one encapsulated Arrow IPC message. The schema isn't sent; both ends know whether the edge
is keyed.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa

from checkpoint.codec import DecodingError, decode, decode_joined, encode_key

_PLAIN: Final = pa.schema([pa.field("value", pa.binary(), nullable=False), pa.field("timestamp", pa.int64())])
_KEYED: Final = pa.schema(
    [*_PLAIN, pa.field("key_group", pa.int16(), nullable=False), pa.field("key", pa.binary(), nullable=False)]
)
NO_KEY: Final = encode_key(None)
"""Key of a record that has none, on an edge whose frames have keys since others have one. Its key group is the first of
the subtask it belongs to, so that all such records of a subtask stay together when they are rescaled."""
_PLAIN_ROW: Final = 4 + 8
_KEYED_ROW: Final = _PLAIN_ROW + 2 + 4
_MAX_BYTES: Final = 2**31 - 1
"""Offsets of a binary column are int32."""


def schema(keyed: bool) -> Any:
    """The Arrow schema of the batches on an edge."""
    return _KEYED if keyed else _PLAIN


class BatchBuilder:
    """Collects records for one channel until the batch is sealed. Not thread-safe."""

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
        """Add a record of an edge that isn't keyed; `timestamp` in ms."""
        self._values.append(value)
        self._timestamps.append(timestamp)
        self.size += len(value) + _PLAIN_ROW

    def append_keyed(self, value: bytes, timestamp: int | None, key: bytes, group: int) -> None:
        """Add a record of a keyed edge; `key` as `codec.encode_key` gives it, `group` its key group."""
        self._values.append(value)
        self._timestamps.append(timestamp)
        self._keys.append(key)
        self._groups.append(group)
        self.size += len(value) + len(key) + _KEYED_ROW

    def seal(self) -> Any:
        """The records so far as a `pyarrow.RecordBatch`; the builder is empty afterwards.

        Raises:
            ValueError: keyed and plain rows were mixed, or the batch exceeds 2 GiB.
        """
        n = len(self._values)
        if len(self._keys) != (n if self._keyed else 0):
            raise ValueError(f"{len(self._keys)} of {n} rows have a key on an edge with keyed={self._keyed}")
        if self.size > _MAX_BYTES:
            raise ValueError(f"a batch of {self.size} bytes exceeds 2 GiB; lower the target size of batches")
        timed = self._timestamps.count(None) < n
        columns = [
            _binary_array(self._values),
            pa.array(self._timestamps, pa.int64()) if timed else pa.nulls(n, pa.int64()),
        ]
        if self._keyed:
            groups = pa.py_buffer(array("h", self._groups))
            columns += [pa.Array.from_buffers(pa.int16(), n, [None, groups]), _binary_array(self._keys)]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema(self._keyed))
        self._reset()
        return batch


def _binary_array(values: list[bytes]) -> Any:
    """`pa.array(values, pa.binary())` in less than half the time."""
    offsets = array("i", accumulate(map(len, values), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


class Rows(NamedTuple):
    """A batch as Python lists, one item a record."""

    values: list[Any]
    timestamps: list[int | None] | None
    """Event times in ms; `None` if no record has one."""
    keys: list[bytes] | None
    """Encoded keys; `None` where the edge isn't keyed."""
    key_groups: list[int] | None


def rows(batch: Any) -> Rows:
    """Decode a batch or a slice of one.

    Raises:
        DecodingError: a value is damaged.
    """
    timestamps = batch.column(1)
    keyed = batch.num_columns > 2
    return Rows(
        _decode_all(batch.column(0)),
        None if timestamps.null_count == len(timestamps) else timestamps.to_pylist(),
        batch.column(3).to_pylist() if keyed else None,
        batch.column(2).to_pylist() if keyed else None,
    )


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


def rest(batch: Any, start: int) -> Any:
    """The rows from `start` on, without copying: what is left of a batch when a barrier falls into it."""
    return batch.slice(start)


def to_frame(batch: Any) -> Any:
    """The batch as a `pyarrow.Buffer`. Of a slice only the rows it shows are written."""
    return batch.serialize()


def from_frame(frame: Any, keyed: bool) -> Any:
    """The `pyarrow.RecordBatch` of a frame; it refers to the frame's memory.

    Raises:
        ValueError: the frame is cut off or damaged, or lacks the columns of a keyed edge. (The other way round Arrow
            can't tell: a keyed frame taken for a plain one loses its keys.)
    """
    try:
        return pa.ipc.read_record_batch(frame, schema(keyed))
    except (pa.ArrowException, OSError, EOFError) as error:
        kind = "keyed" if keyed else "plain"
        raise ValueError(f"{len(frame)} bytes are no frame of a {kind} edge: {error}") from error
