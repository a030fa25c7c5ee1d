"""Rows of a snapshot file that become Arrow batches (see `checkpoint.state.snapshot_format`), and how many key groups
share one."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, Final

import pyarrow as pa

from checkpoint.state.snapshot_format import CHANGES_SCHEMA, SCHEMA, TTL_SCHEMA

BLOCK_ROWS: Final = 4096
"""Once there are as many in a batch, the next key group begins another one."""
BLOCK_BYTES: Final = 64 * 1024
"""The same. Who wants one small group reads so many bytes of others."""


class BytesColumn:
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


class BatchRows:
    """The rows of a batch that is being built."""

    def __init__(self) -> None:
        self._groups = array("h")
        self._keys = BytesColumn()
        self._values = BytesColumn()
        self._states: list[tuple[str, int, BytesColumn | None]] = []
        """Name, first row and namespaces of each state, in order."""

    def __len__(self) -> int:
        return len(self._values)

    @property
    def size(self) -> int:
        return len(self._keys.data) + len(self._values.data)

    @property
    def full(self) -> bool:
        """Whether the next key group goes into another batch."""
        return len(self) >= BLOCK_ROWS or self.size >= BLOCK_BYTES

    def add(
        self,
        group: int,
        name: str,
        keys: Sequence[bytes],
        namespaces: Sequence[bytes] | None,
        values: Sequence[bytes | None],
        written: Sequence[bytes | None] | None,
    ) -> None:
        if not self._states or self._states[-1][0] != name:
            self._states.append((name, len(self), None if namespaces is None else BytesColumn()))
        column = self._states[-1][2]
        if namespaces is not None and column is not None:
            column.extend(namespaces)
        self._groups.extend(array("h", (group,)) * len(keys))
        self._keys.extend(keys)
        self._values.extend(values)  # type: ignore[arg-type]  # only changes have none

    def batch(self) -> Any:
        return pa.RecordBatch.from_arrays(self._columns(), schema=SCHEMA)

    def _columns(self) -> list[Any]:
        names, namespaces = [], []
        ends = [first for _, first, _ in self._states[1:]] + [len(self)]
        for (name, first, column), end in zip(self._states, ends, strict=True):
            names.append(pa.repeat(pa.scalar(name, pa.string()), end - first))
            namespaces.append(pa.nulls(end - first, pa.binary()) if column is None else column.array())
        return [
            pa.Array.from_buffers(pa.int16(), len(self), [None, pa.py_buffer(self._groups)], null_count=0),
            pa.concat_arrays(names),
            self._keys.array(),
            pa.concat_arrays(namespaces),
            self._values.array(),
        ]


class ChangedRows(BatchRows):
    """Of what has changed: a value may be missing."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: list[bytes | None] = []
        self._written: list[bytes | None] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._changed)

    @property
    def size(self) -> int:
        return len(self._keys.data) + self._bytes

    def add(
        self,
        group: int,
        name: str,
        keys: Sequence[bytes],
        namespaces: Sequence[bytes] | None,
        values: Sequence[bytes | None],
        written: Sequence[bytes | None] | None,
    ) -> None:
        super().add(group, name, keys, namespaces, (), written)
        self._changed.extend(values)
        self._written.extend([None] * len(keys) if written is None else written)
        self._bytes += sum(map(len, filter(None, values)))

    def batch(self) -> Any:
        *columns, _ = self._columns()
        arrays = [*columns, pa.array(self._changed, pa.binary()), pa.array(self._written, pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, schema=CHANGES_SCHEMA)


class RowsWithStamps(BatchRows):
    """With the column that only files with a time to live have."""

    def __init__(self) -> None:
        super().__init__()
        self._written: list[bytes | None] = []

    def add(
        self,
        group: int,
        name: str,
        keys: Sequence[bytes],
        namespaces: Sequence[bytes] | None,
        values: Sequence[bytes | None],
        written: Sequence[bytes | None] | None,
    ) -> None:
        super().add(group, name, keys, namespaces, values, written)
        self._written.extend([None] * len(keys) if written is None else written)

    def batch(self) -> Any:
        columns = [*self._columns(), pa.array(self._written, pa.binary())]
        return pa.RecordBatch.from_arrays(columns, schema=TTL_SCHEMA)


def packed(groups: Iterable[Sequence[Any]]) -> Iterator[Any]:
    """The Arrow batches of key groups, ascending, with neighbours of small groups as one."""
    held: list[Any] = []
    rows = size = 0
    for batches in groups:
        if len(batches) == 1 and batches[0].num_rows < BLOCK_ROWS and batches[0].nbytes < BLOCK_BYTES:
            held += batches
            rows += batches[0].num_rows
            size += batches[0].nbytes
            if rows < BLOCK_ROWS and size < BLOCK_BYTES:
                continue
            batches = ()
        if held:
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
        yield from batches
    if held:
        yield pa.concat_batches(held)
