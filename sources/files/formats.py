"""From the content of files to records, piece by piece: what is in memory at once doesn't depend on a file's size."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, overload
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint.metrics import MetricSink
from formats.json_values import loads, loads_all

from .errors import BadRecord, FolderUnavailable
from .folder import Folder
from .ledger import Split
from .plain_types import cast, plain_schema

log = logging.getLogger(f"weir.{__name__}")

Format = Literal["parquet", "jsonl"]

_BLOCK: Final = 1024 * 1024
_PAGES: Final = 1024 * 1024
"""Bytes that are read of each column at once."""
_ROWS_AT_ONCE: Final = 8192
_BATCH_BYTES: Final = 4 * 1024 * 1024
_COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_SHOWN: Final = 200


@dataclass(frozen=True)
class FormatOptions:
    """How files become records; see `FileSource`."""

    format: Format
    schema: pa.Schema | None
    columns: tuple[str, ...] | None
    on_bad_record: Literal["fail", "skip"]
    max_record_bytes: int
    allow_truncated_timestamps: bool = False


class FileRow:
    """What an operator behind the source sees of one record besides its value."""

    __slots__ = ("file", "file_row")

    def __init__(self, file: str, file_row: int) -> None:
        self.file = file
        """Path relative to the source's folder."""
        self.file_row = file_row
        """Row of a Parquet file, or line, from 0."""


class FileRows(Sequence[FileRow]):
    """One context a record, made when it is looked at."""

    __slots__ = ("_file", "_rows")

    def __init__(self, file: str, rows: Sequence[int]) -> None:
        self._file = file
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> FileRow: ...
    @overload
    def __getitem__(self, index: slice) -> FileRows: ...
    def __getitem__(self, index: int | slice) -> FileRow | FileRows:
        if isinstance(index, slice):
            return FileRows(self._file, self._rows[index])
        return FileRow(self._file, self._rows[index])


class Chunk(ABC):
    """Some records of a split, and the positions within."""

    values: list[Any] | pa.RecordBatch
    size: int
    """Bytes, about."""
    rows: Sequence[int]
    """Of the records."""

    @abstractmethod
    def position(self, emitted: int) -> tuple[int, int]:
        """`Split.offset` and `Split.row` after the first `emitted` records."""


class SplitContent(ABC):
    """A split that is open."""

    @abstractmethod
    def read(self, most: int) -> Chunk | None:
        """The next records, at most `most` (none at all if all were bad); `None` at the end.

        Raises:
            BadRecord: by `on_bad_record`.
            FolderUnavailable: the file can't be read, or is damaged.
        """

    @property
    @abstractmethod
    def whole(self) -> bool:
        """Once `read` has said that this is the end: whether it is the end of the file as it was found, for certain."""

    @abstractmethod
    def close(self) -> None: ...


def open_split(
    folder: Folder, split: Split, parts: int, split_bytes: int, o: FormatOptions, m: MetricSink
) -> SplitContent:
    """
    Args:
        parts: of the file.

    Raises:
        FolderUnavailable: it can't be read.
    """
    if o.format == "jsonl":
        return JsonLines(folder, split, o, m)
    return ParquetRows(folder, split, parts, split_bytes, o)


# -- JSON lines -------------------------------------------------------------------------------------------------------


@dataclass
class _Lines(Chunk):
    values: list[Any]
    size: int
    rows: Sequence[int]
    lines: list[bytes]
    """All that were looked at: blank and skipped ones, too."""
    offset: int
    row: int
    """Of the first line."""
    unended: bool
    """The last line has no newline behind it."""

    def position(self, emitted: int) -> tuple[int, int]:
        read = len(self.lines) if emitted >= len(self.rows) else self.rows[emitted] - self.row
        length = sum(map(len, self.lines[:read])) + read - (self.unended and read == len(self.lines))
        return self.offset + length, self.row + read


class JsonLines(SplitContent):
    def __init__(self, folder: Folder, split: Split, options: FormatOptions, metrics: MetricSink) -> None:
        self._path = split.path
        self._options = options
        self._metrics = metrics
        self._offset, self._row = split.offset, split.row
        self._lines: list[bytes] = []
        self._next = 0
        self._tail = b""
        self._ended = False
        self._size = split.size
        self._compression = next((c for suffix, c in _COMPRESSIONS.items() if split.path.endswith(suffix)), None)
        with _explained(split.path):
            self._stream = _open_lines(folder, split, self._compression)

    def read(self, most: int) -> Chunk | None:
        with _explained(self._path):
            while self._next >= len(self._lines) and not self._ended:
                self._fill()
        lines = self._lines[self._next : self._next + most]
        if not lines:
            return None
        self._next += len(lines)
        last = self._ended and self._next >= len(self._lines)
        chunk = self._decode(lines, unended=last and bool(self._tail))
        self._offset, self._row = chunk.position(len(chunk.rows))
        return chunk

    @property
    def whole(self) -> bool:
        return self._compression is None and self._offset >= self._size

    def close(self) -> None:
        self._stream.close()

    def _fill(self) -> None:
        block = self._stream.read(_BLOCK)
        if not block:
            self._ended = True
            self._lines, self._next = ([self._tail] if self._tail else []), 0
            return
        content = self._tail + block
        *self._lines, self._tail = content.split(b"\n")
        self._next = 0
        if len(self._tail) > self._options.max_record_bytes:
            raise BadRecord(
                f"{self._path}: line {self._row + len(self._lines) + 1} has more than {self._options.max_record_bytes} "
                f"bytes: {_shortened(self._tail)}. Is it a file of JSON lines? Then raise max_record_bytes"
            )

    def _decode(self, lines: list[bytes], unended: bool) -> _Lines:
        size = sum(map(len, lines))
        try:
            values = loads_all(lines)
            rows: Sequence[int] = range(self._row, self._row + len(lines))
        except ValueError:  # a bad line, or a blank one
            values, rows = self._decode_each(lines)
        return _Lines(values, size, rows, lines, self._offset, self._row, unended)

    def _decode_each(self, lines: list[bytes]) -> tuple[list[Any], list[int]]:
        values: list[Any] = []
        rows: list[int] = []
        for row, line in enumerate(lines, self._row):
            if not line or line.isspace():
                continue
            try:
                values.append(loads(line))
            except ValueError as error:
                self._bad(row, line, error)
                continue
            rows.append(row)
        return values, rows

    def _bad(self, row: int, line: bytes, error: ValueError) -> None:
        text = f"{self._path}: line {row + 1} is not JSON ({error}): {_shortened(line)}"
        if self._options.on_bad_record == "fail":
            raise BadRecord(
                f"{text}. The source stands before the lines read with this one and has lost nothing; correct format, "
                'or set on_bad_record="skip" to leave such lines out and count them (recordsSkipped)'
            ) from error
        self._metrics.count("recordsSkipped")
        log.warning("skipped a bad record: %s", text)


def _open_lines(folder: Folder, split: Split, compression: str | None) -> pa.NativeFile:
    """Standing at the split's offset."""
    if compression is None:
        file = folder.open(split.path)
        file.seek(split.offset)
        return file
    stream = pa.CompressedInputStream(folder.stream(split.path), compression)
    left = split.offset
    while left:
        skipped = len(stream.read(min(left, _BLOCK)))
        if not skipped:
            raise OSError(f"its content ends before byte {split.offset}, where the checkpoint stands")
        left -= skipped
    return stream


# -- Parquet ----------------------------------------------------------------------------------------------------------


@dataclass
class _Rows(Chunk):
    values: pa.RecordBatch
    size: int
    rows: Sequence[int]
    group: int
    row: int
    """Of the first record, in its row group."""
    group_rows: int

    def position(self, emitted: int) -> tuple[int, int]:
        row = self.row + emitted
        return (self.group, row) if row < self.group_rows else (self.group + 1, 0)


class ParquetRows(SplitContent):
    """A split's row groups are those that begin in its share of the file's bytes."""

    def __init__(self, folder: Folder, split: Split, parts: int, split_bytes: int, options: FormatOptions) -> None:
        self._path = split.path
        self._options = options
        with _explained(split.path):
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
        """In the row group; of the first held row."""
        self._first_row = 0
        """Of the row group, in the file."""
        self._group_rows = 0

    def read(self, most: int) -> Chunk | None:
        with _explained(self._path):
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
    """Of `country=NZ/day=2026-11-28/part-1` country and day."""
    fields = (folder.partition("=") for folder in path.split("/")[:-1] if "=" in folder)
    return {unquote(name): None if text == _NO_VALUE else unquote(text) for name, _, text in fields}


# -- both -------------------------------------------------------------------------------------------------------------


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        truncated = "Casting from timestamp" in str(error) and "lose data" in str(error)
        advice = (
            "Python has no nanoseconds; FileSource(…, allow_truncated_timestamps=True) cuts them off"
            if truncated
            else "Is it whole, and of the source's format?"
        )
        raise FolderUnavailable(f"cannot read {path}: {error}. {advice}") from error


def _shortened(content: bytes) -> str:
    return repr(content) if len(content) <= _SHOWN else f"{content[:_SHOWN]!r}… ({len(content)} bytes)"
