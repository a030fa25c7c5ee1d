"""Rows of record batches as Python's values, exactly or not at all."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyarrow import types

from formats.columns import cast


def rows(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """
    Raises:
        ValueError: Python has no such value: nanoseconds, a time beyond the day, a date beyond the year 9999, text
            that is no UTF-8, two columns or fields of a struct with one name.
    """
    needs, checked = _needs(batch.schema)
    if len(set(batch.schema.names)) < len(batch.schema.names):
        raise ValueError(f"there are several columns of one name: {', '.join(batch.schema.names)}")
    if checked:
        try:
            batch.validate(full=True)
        except pa.ArrowException as error:
            raise ValueError(f"a column has a value that its type can't have: {error}") from error
    for i, kind in needs.items():
        field = batch.schema.field(i)
        batch = batch.set_column(i, pa.field(field.name, kind), cast(batch.column(i), kind, field.name))
    try:
        found: list[dict[str, Any]] = batch.to_pylist()
    except (OverflowError, UnicodeDecodeError, pa.ArrowException) as error:
        raise ValueError(f"a column has a value that Python doesn't have: {error}") from error
    return found


@lru_cache(maxsize=64)
def _needs(schema: pa.Schema) -> tuple[dict[int, pa.DataType], bool]:
    """The columns that are cast, and to what; and whether values may lie outside of their types."""
    plain = [python_type(kind) for kind in schema.types]
    needs = {i: kind for i, kind in enumerate(plain) if not kind.equals(schema.types[i])}
    return needs, any(name in str(schema.types) for name in ("time32", "time64", "date64"))


def python_type(kind: pa.DataType) -> pa.DataType:
    """The type with Python's precision: microseconds, where pyarrow would make pandas' objects or cut them."""
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_float16(kind):
        return pa.float32()
    if types.is_struct(kind):
        return pa.struct([one.with_type(python_type(one.type)) for one in kind.fields])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(python_type(kind.value_type)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(python_type(kind.value_type)))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(python_type(kind.value_type)), kind.list_size)
    if types.is_map(kind):
        return pa.map_(python_type(kind.key_type), kind.item_field.with_type(python_type(kind.item_type)))
    if types.is_dictionary(kind) and not python_type(kind.value_type).equals(kind.value_type):
        return python_type(kind.value_type)
    return kind
