"""From records to the bytes of a part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from checkpoint.counted import counted
from formats import NotInFormat
from formats.json_values import dumps, dumps_all
from formats.python_columns import PythonColumns
from sinks.files.errors import RecordRefused
from sinks.files.staged import StagedPart
from sinks.kafka.errors import shorten


def check_parquet_schema(schema: pa.Schema) -> None:
    """
    Raises:
        ValueError: pyarrow couldn't write files of that schema, or not read them.
    """
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), schema).close()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"Parquet files can't have the schema {schema}: {error}") from error
    for field in schema:
        _check_field(field, field.name, False)


def _check_field(field: pa.Field, path: str, within_null: bool) -> None:
    """
    Args:
        within_null: it is part of a struct that may be null.
    """
    kind = field.type
    within_null = within_null or field.nullable
    if types.is_struct(kind):
        for one in kind.fields:
            at = f"{path}.{one.name}"
            if types.is_string_view(one.type) or types.is_binary_view(one.type):
                plain = "string" if types.is_string_view(one.type) else "binary"
                raise ValueError(f"pyarrow doesn't write a {one.type} in a struct, such as {at!r}; make it a {plain}")
            if types.is_fixed_size_list(one.type) and within_null and not one.nullable:
                raise ValueError(
                    f"pyarrow can't read the field {at!r} where a struct around it is null: it is a list of a fixed "
                    "length that is never null. Make it nullable, or a list of any length, or the struct never null"
                )
            _check_field(one, at, within_null)
    elif types.is_fixed_size_list(kind):
        _check_field(kind.value_field, f"{path}[]", within_null)
    elif types.is_list(kind) or types.is_large_list(kind):
        _check_field(kind.value_field, f"{path}[]", False)
    elif types.is_map(kind):
        _check_field(kind.item_field, f"{path}{{}}", False)


Format = Literal["parquet", "jsonl"]
Rows: TypeAlias = Any
"""Encoded records: a list of lines, or a record batch."""

COMPRESSIONS: Final[dict[str, tuple[str, ...]]] = {
    "parquet": ("zstd", "snappy", "gzip", "lz4", "none"),
    "jsonl": ("none", "gzip", "zstd"),
}
"""By format; the first one is the default."""
_SUFFIXES: Final = {"none": "", "gzip": ".gz", "zstd": ".zst"}

_ROWS_AT_ONCE: Final = 1024
_DICT: Final = frozenset({dict})
_STR: Final = frozenset({str})
_ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
"""Bytes of values in memory; compressed they are a fraction of it."""


class PartEncoder(ABC):
    """Encodes the records of one part."""

    def __init__(self, part: StagedPart) -> None:
        self._part = part
        self.rows = 0

    @property
    def size(self) -> int:
        """Bytes of the part as far as they are known: what is in memory counts as it is there."""
        return self._part.size + self.buffered

    @property
    def buffered(self) -> int:
        """Bytes of records in memory."""
        return 0

    @abstractmethod
    def append(self, rows: Rows, limit: int) -> int:
        """Take rows of the format's encoder until the part's size is `limit` or more; returns how many."""

    def flush(self) -> None:
        """Write out what is in memory."""

    @abstractmethod
    def finish(self) -> None:
        """Write all that is left; the part itself stays open."""


class JsonLines(PartEncoder):
    def __init__(self, part: StagedPart, compression: str) -> None:
        super().__init__(part)
        sink: Any = pa.PythonFile(part, mode="w")
        self._out = sink if compression == "none" else pa.CompressedOutputStream(sink, compression)

    def append(self, rows: Rows, limit: int) -> int:
        taken = 0
        while taken < len(rows) and (taken == 0 or self.size < limit):
            lines = rows[taken : taken + _ROWS_AT_ONCE]
            taken += len(lines)
            self._out.write(b"\n".join([*lines, b""]))
        self.rows += taken
        return taken

    def finish(self) -> None:
        self._out.close()


class Parquet(PartEncoder):
    def __init__(self, part: StagedPart, compression: str, schema: pa.Schema) -> None:
        super().__init__(part)
        self._schema = schema
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0
        self._writer = pq.ParquetWriter(
            pa.PythonFile(part, mode="w"), schema, compression=None if compression == "none" else compression
        )

    @property
    def buffered(self) -> int:
        return self._buffered

    def append(self, rows: Rows, limit: int) -> int:
        taken = 0
        while taken < len(rows) and (taken == 0 or self.size < limit):
            batch = rows.slice(taken, _ROWS_AT_ONCE)
            self._buffer.append(batch)
            self._buffered += batch.nbytes
            taken += len(batch)
            if self._buffered >= _ROW_GROUP_BYTES:
                self.flush()
        self.rows += taken
        return taken

    def flush(self) -> None:
        if self._buffer:
            buffer, self._buffer, self._buffered = self._buffer, [], 0
            table = pa.Table.from_batches(buffer, self._schema)
            self._writer.write_table(table, row_group_size=len(table))

    def finish(self) -> None:
        self.flush()
        self._writer.close()


def suffix(kind: Format, compression: str) -> str:
    """How a part's name ends; readers tell the compression of JSON lines by it."""
    return ".parquet" if kind == "parquet" else f".jsonl{_SUFFIXES[compression]}"


def pick(rows: Rows, indices: Sequence[int]) -> Rows:
    """Some of the rows, in the order of `indices`."""
    return [rows[i] for i in indices] if isinstance(rows, list) else rows.take(pa.array(indices, pa.int32()))


def json_lines(values: Sequence[Any]) -> Rows:
    """
    Raises:
        RecordRefused: a record has no JSON that would be read as an equal value.
    """
    try:
        return dumps_all(values)
    except NotInFormat:
        for value in values:  # once more, to find out which one it was
            try:
                dumps(value)
            except NotInFormat as error:
                raise RecordRefused(f"a record can't be written: {error}. The record is {shorten(value)}") from error
        raise


class ParquetRows:
    """Makes record batches of records, strictly (see `formats.python_columns`)."""

    def __init__(self, schema: pa.Schema, elsewhere: Sequence[str] = (), round_floats: bool = False) -> None:
        """
        Args:
            elsewhere: fields of the records that are in the folders' names, and not in the files; those that the
                schema has are checked by it.

        Raises:
            ValueError: the schema has a type that records aren't turned into, or that Parquet files can't have.
        """
        columns = PythonColumns(round_floats)
        self.schema = pa.schema([field for field in schema if field.name not in elsewhere], metadata=schema.metadata)
        """The files' schema."""
        self._fields = frozenset((*schema.names, *elsewhere))
        self._builders = [(field.name, columns.builder(field, field.name)) for field in schema]
        check_parquet_schema(self.schema)

    def __call__(self, values: Sequence[Any]) -> pa.RecordBatch:
        """
        Raises:
            RecordRefused: a record doesn't fit the schema.
        """
        try:
            if (
                set(map(type, values)) <= _DICT
                and all(value.keys() <= self._fields for value in values)
                and set(map(type, chain.from_iterable(values))) <= _STR
            ):
                return self._batch(values)
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            pass  # which record it was is found out next
        for value in values:
            self._check(value)
        raise RuntimeError(
            f"{counted(len(values), 'record')} fit the schema one by one, but not together: {self.schema}"
        )

    def _batch(self, values: Sequence[Any]) -> pa.RecordBatch:
        arrays = {name: build([value.get(name) for value in values]) for name, build in self._builders}
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)

    def _check(self, value: Any) -> None:
        if type(value) is not dict:
            raise _refused(value, "it is no dict")
        extra = [name for name in value if name not in self._fields or type(name) is not str]
        if extra:
            raise _refused(value, f"the schema has no field {', '.join(sorted(map(repr, extra)))}")
        try:
            self._batch([value])
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise _refused(value, str(error)) from error


def _refused(value: Any, why: str) -> RecordRefused:
    return RecordRefused(
        f"a record doesn't fit the schema of the Parquet files: {why}. The record is {shorten(value)}. Convert it in a "
        "step before the sink, or change the schema"
    )
