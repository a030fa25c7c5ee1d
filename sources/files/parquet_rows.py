"""From Parquet files to record batches: what is in memory at once doesn't depend on a file's size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkpoint.shown import shown
from formats.arrow_rows import python_type
from formats.columns import is_text
from sources.files.errors import FolderUnavailable
from sources.files.folder import Folder
from sources.files.ledger import Split
from sources.files.split_content import Chunk, FormatOptions, SplitContent, explained


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` with the types that records are cast to."""
    return pa.schema([pa.field(field.name, python_type(field.type), field.nullable) for field in schema])


def cast(column: pa.Array, kind: pa.DataType, allow_truncated: bool) -> pa.Array:
    """
    Args:
        allow_truncated: whether times may lose what is finer than the type.

    Raises:
        pa.ArrowException: a value would be another.
    """
    if column.type.equals(kind):
        return column
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())  # which Arrow compares
    made = column.cast(kind, safe=not (allow_truncated and "timestamp" in str(kind)))
    if pa.types.is_decimal(kind) and is_text(column.type):  # Arrow makes another number of one that is too large
        for text, number in zip(column.to_pylist(), made.to_pylist(), strict=True):
            if number is not None and Decimal(text) != number:
                raise pa.ArrowInvalid(f"{shown(text)} is no {kind}")
    if _number(column.type) and _number(kind):
        # Arrow checks integers, but rounds floats and makes infinities of what is too large.
        back = made.cast(column.type, safe=False)
        same = pc.equal(back, column)
        if pa.types.is_floating(column.type):
            same = pc.or_(same, pc.is_nan(column))
        if pc.all(same).as_py() is False:
            value = column[pc.index(same, False).as_py()]
            raise pa.ArrowInvalid(f"{value} is no {kind}: it would be rounded to {made[pc.index(same, False).as_py()]}")
    return made


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


_PAGES: Final = 1024 * 1024
"""Bytes that are read of each column at once."""
_ROWS_AT_ONCE: Final = 8192
_BATCH_BYTES: Final = 4 * 1024 * 1024
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass
class _Rows(Chunk):
    values: pa.RecordBatch
    size: int
    rows: Sequence[int]
    group: int
    row: int
    """Where the first record is in its row group."""
    group_rows: int

    def position(self, emitted: int) -> tuple[int, int]:
        row = self.row + emitted
        return (self.group, row) if row < self.group_rows else (self.group + 1, 0)


class ParquetRows(SplitContent):
    """A split's row groups are those that begin in its share of the file's bytes."""

    def __init__(self, folder: Folder, split: Split, parts: int, split_bytes: int, options: FormatOptions) -> None:
        self._path = split.path
        self._options = options
        with explained(split.path):
            self._source = folder.open(split.path)
            self._file = pq.ParquetFile(self._source, buffer_size=_PAGES, pre_buffer=False)
            self._groups = self._own_groups(split, parts, split_bytes)
            self._in_path = partition_fields(split.path)
            self._columns, self._schema = self._project()
        self._skip = split.row
        """Rows of the first row group that were emitted."""
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._held: pa.RecordBatch | None = None
        self._group = 0
        self._row = 0
        """Where the first held row is in its row group."""
        self._first_row = 0
        """Where the row group begins in the file."""
        self._group_rows = 0

    def read(self, most: int) -> Chunk | None:
        with explained(self._path):
            while self._held is None or not len(self._held):
                if not self._advance():
                    return None
            batch, self._held = self._held.slice(0, most), self._held.slice(most)
        first = self._first_row + self._row
        chunk = _Rows(batch, batch.nbytes, range(first, first + len(batch)), self._group, self._row, self._group_rows)
        self._row += len(batch)
        return chunk

    @property
    def whole(self) -> bool:
        return True  # its footer says what belongs to it

    def close(self) -> None:
        self._held = None
        self._batches = iter(())
        self._file.close()
        self._source.close()

    def _advance(self) -> bool:
        """Hold the next rows; whether there are any."""
        batch = next(self._batches, None)
        if batch is None:
            if not self._groups:
                return False
            self._group = self._groups.pop(0)
            metadata = self._file.metadata
            self._first_row = sum(metadata.row_group(i).num_rows for i in range(self._group))
            self._row, self._group_rows = 0, metadata.row_group(self._group).num_rows
            row_size = metadata.row_group(self._group).total_byte_size / max(1, self._group_rows)
            rows = int(max(1, min(_ROWS_AT_ONCE, _BATCH_BYTES / max(1.0, row_size))))
            self._batches = self._file.iter_batches(rows, row_groups=[self._group], columns=self._columns)
            return True
        skipped = min(self._skip, len(batch))
        self._skip -= skipped
        self._row += skipped
        self._held = self._cast(batch.slice(skipped))
        return True

    def _own_groups(self, split: Split, parts: int, split_bytes: int) -> list[int]:
        metadata = self._file.metadata
        groups = []
        for i in range(split.offset, metadata.num_row_groups):
            column = metadata.row_group(i).column(0)
            begin = column.dictionary_page_offset or column.data_page_offset
            if min(begin // split_bytes, parts - 1) == split.part:
                groups.append(i)
        return groups

    def _project(self) -> tuple[list[str] | None, pa.Schema]:
        """The columns to be read, and the schema of the records."""
        there = self._file.schema_arrow
        options = self._options
        wanted = there.names if options.schema is None else options.schema.names
        wanted = wanted if options.columns is None else options.columns
        if twice := next((name for name in wanted if there.names.count(name) > 1), None):
            raise FolderUnavailable(
                f"{self._path} has several columns called {twice!r}, of which a record could have only one"
            )
        if options.schema is not None:
            return [name for name in options.schema.names if name in there.names], plain_schema(options.schema)
        for name in self._in_path:
            if name not in there.names:
                there = there.append(pa.field(name, pa.string()))
        names = there.names if options.columns is None else options.columns
        missing = [name for name in names if name not in there.names]
        if missing:
            raise FolderUnavailable(f"{self._path} has no column {', '.join(missing)}; it has {', '.join(there.names)}")
        columns = [name for name in names if name in self._file.schema_arrow.names]
        return columns, plain_schema(pa.schema([there.field(name) for name in names]))

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self._schema):
            return batch
        columns = []
        for field in self._schema:
            if field.name in batch.schema.names:
                columns.append(cast(batch.column(field.name), field.type, self._options.allow_truncated_timestamps))
            else:
                constant = pa.array([self._in_path.get(field.name)], pa.string())
                columns.append(pa.repeat(cast(constant, field.type, False)[0], len(batch)))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def partition_fields(path: str) -> dict[str, str | None]:
    """What the folders in a path say: country and day in `country=NZ/day=2026-11-28/part-1`."""
    fields = (folder.partition("=") for folder in path.split("/")[:-1] if "=" in folder)
    return {unquote(name): None if text == _NO_VALUE else unquote(text) for name, _, text in fields}
