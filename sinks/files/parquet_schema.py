"""Which Arrow schemas Parquet files can have, so that a sink and later readers learn of it before the first record."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types


def check(schema: pa.Schema) -> None:
    """
    Raises:
        ValueError: pyarrow couldn't write files of that schema, or not read them.
    """
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), schema).close()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"Parquet files can't have the schema {schema}: {error}") from error
    for field in schema:
        _check(field, field.name, False)


def _check(field: pa.Field, path: str, within_null: bool) -> None:
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
            _check(one, at, within_null)
    elif types.is_fixed_size_list(kind):
        _check(kind.value_field, f"{path}[]", within_null)
    elif types.is_list(kind) or types.is_large_list(kind):
        _check(kind.value_field, f"{path}[]", False)
    elif types.is_map(kind):
        _check(kind.item_field, f"{path}{{}}", False)
