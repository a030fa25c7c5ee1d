"""Which types columns of files are read as: those whose values Python has exactly."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint.shown import shown
from formats.arrow_rows import python_type
from formats.columns import is_text


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
