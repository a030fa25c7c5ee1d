"""Which values Arrow's types become: those that can travel between steps."""

from __future__ import annotations

import pyarrow as pa


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` with the types that records are cast to."""
    return pa.schema([pa.field(field.name, plain(field.type), field.nullable) for field in schema])


def plain(type: pa.DataType) -> pa.DataType:
    """Moments stay moments, in microseconds; dates, times, decimals, and timestamps without a time zone become text,
    and maps lists of their entries."""
    types = pa.types
    if types.is_timestamp(type) and type.tz is not None:
        return pa.timestamp("us", type.tz)
    if types.is_temporal(type) and not types.is_duration(type):
        return pa.string()
    if types.is_decimal(type):
        return pa.string()
    if types.is_duration(type):
        return pa.int64()
    if types.is_float16(type):
        return pa.float32()
    if types.is_dictionary(type):
        return plain(type.value_type)
    if types.is_struct(type):
        return pa.struct([pa.field(f.name, plain(f.type), f.nullable) for f in type.fields])
    if types.is_map(type):
        return pa.list_(pa.struct([("key", plain(type.key_type)), ("value", plain(type.item_type))]))
    if types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        inner = plain(type.value_type)
        return pa.list_(inner, type.list_size) if types.is_fixed_size_list(type) else pa.list_(inner)
    if isinstance(type, pa.BaseExtensionType):
        return plain(type.storage_type)
    return type
