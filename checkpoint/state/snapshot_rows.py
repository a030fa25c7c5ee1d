"""Rows of a snapshot file that become Arrow batches (see `checkpoint.state.snapshot_format`)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa

from checkpoint.state.snapshot_format import CHANGES_SCHEMA, SCHEMA, TTL_SCHEMA


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


class Rows:
    """The rows of a batch that is being built."""

    def __init__(self) -> None:
        self._keys = BytesColumn()
        self._values = BytesColumn()
        self._states: list[tuple[str, int, BytesColumn | None]] = []
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
        values: Sequence[bytes | None],
        written: Sequence[bytes | None] | None,
    ) -> None:
        if not self._states or self._states[-1][0] != name:
            self._states.append((name, len(self), None if namespaces is None else BytesColumn()))
        column = self._states[-1][2]
        if namespaces is not None and column is not None:
            column.extend(namespaces)
        self._keys.extend(keys)
        self._values.extend(values)  # type: ignore[arg-type]  # only changes have none

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


class ChangedRows(Rows):
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
        name: str,
        keys: Sequence[bytes],
        namespaces: Sequence[bytes] | None,
        values: Sequence[bytes | None],
        written: Sequence[bytes | None] | None,
    ) -> None:
        super().add(name, keys, namespaces, (), written)
        self._changed.extend(values)
        self._written.extend([None] * len(keys) if written is None else written)
        self._bytes += sum(map(len, filter(None, values)))

    def batch(self, group: int) -> Any:
        *columns, _ = self._columns(group)
        arrays = [*columns, pa.array(self._changed, pa.binary()), pa.array(self._written, pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, schema=CHANGES_SCHEMA)


class RowsWithStamps(Rows):
    """With the column that only files with a time to live have."""

    def __init__(self) -> None:
        super().__init__()
        self._written: list[bytes | None] = []

    def add(
        self,
        name: str,
        keys: Sequence[bytes],
        namespaces: Sequence[bytes] | None,
        values: Sequence[bytes | None],
        written: Sequence[bytes | None] | None,
    ) -> None:
        super().add(name, keys, namespaces, values, written)
        self._written.extend([None] * len(keys) if written is None else written)

    def batch(self, group: int) -> Any:
        columns = [*self._columns(group), pa.array(self._written, pa.binary())]
        return pa.RecordBatch.from_arrays(columns, schema=TTL_SCHEMA)
