"""JSON objects as columns of an Arrow schema, a batch of messages at a time.

pyarrow's own JSON reader is as fast, but takes invalid UTF-8 for strings and ends the process on some malformed
input. Strictness is wanted, too: `pyarrow.array` would cut 1.5 to an integer, and take a string for a list of its
letters; and its dates and times may lie beyond those of Python, which a step that wants rows would find too late.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import time
from itertools import accumulate, chain
from math import inf
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from checkpoint.formats.json_values import loads_all

Build = Callable[[list[Any]], Any]
"""Makes an array of JSON values.

Raises:
    ValueError, TypeError, OverflowError, pa.ArrowException: a value doesn't fit the type.
"""


@dataclass(frozen=True)
class ArrowJson:
    """`value_format=ArrowJson(schema)`: values are JSON objects, which `map_batches` steps get as record batches.

    Fields that the schema doesn't name are left out; missing ones are null. A value that doesn't fit its field's type
    makes the record a bad one, as does a tombstone, which no row could tell from an empty object.

    Args:
        schema: of bool, integers, floats, decimals, strings, binary (the string's UTF-8), dates, times, timestamps,
            lists, structs and maps with names of strings.

    Raises:
        ValueError: the schema isn't one, or has a type that JSON isn't turned into.
    """

    schema: pa.Schema

    def __post_init__(self) -> None:
        if not isinstance(self.schema, pa.Schema):
            raise ValueError(f"schema must be a pyarrow.Schema, not {self.schema!r}")
        names = self.schema.names
        if not names or len(set(names)) < len(names):
            raise ValueError(f"schema must have at least one field, and each name once; it has {names}")
        for field in self.schema:
            _builder(field, field.name)

    def __str__(self) -> str:
        return "ArrowJson"

    def parser(self) -> Callable[[Sequence[bytes]], pa.RecordBatch]:
        """Makes a batch with one row for each of the given JSON objects.

        Raises (the function):
            ValueError, TypeError, OverflowError, pa.ArrowException: one of them is no JSON object, or doesn't fit.
        """
        schema = self.schema
        fields = [(field.name, _builder(field, field.name)) for field in schema]

        def parse(raw: Sequence[bytes]) -> pa.RecordBatch:
            objects = loads_all(raw)
            if set(map(type, objects)) != {dict}:
                raise ValueError("it is not a JSON object")
            arrays = [build([one.get(name) for one in objects]) for name, build in fields]
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        return parse


_NULL: Final = frozenset({type(None)})
_INT: Final = frozenset({int})
_NUMBER: Final = frozenset({int, float})
_STR: Final = frozenset({str})


def _builder(field: pa.Field, path: str) -> Build:
    kind = field.type
    build = _of_kind(kind, path)
    if field.nullable:
        return build

    def required(values: list[Any]) -> Any:
        if None in values:
            raise ValueError(f"the field {path!r} is null or missing, and the schema says that it never is")
        return build(values)

    return required


def _of_kind(kind: pa.DataType, path: str) -> Build:
    if types.is_boolean(kind):
        return _plain(kind, frozenset({bool}), path)
    if types.is_integer(kind):
        return _plain(kind, _INT, path)
    if types.is_float64(kind):
        return _plain(kind, _NUMBER, path)
    if types.is_float32(kind):
        return _float32(kind, path)
    if _is_text(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return _plain(kind, _STR, path)
    if types.is_dictionary(kind) and _is_text(kind.value_type):
        return _plain(kind, _STR, path)
    if types.is_decimal(kind):
        return _decimal(kind, path)
    if types.is_timestamp(kind):
        _check_zone(kind, path)
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return _temporal(kind, path)
    if types.is_list(kind) or types.is_large_list(kind):
        return _list(kind, path)
    if types.is_struct(kind):
        return _struct(kind, path)
    if types.is_map(kind) and _is_text(kind.key_type):
        return _map(kind, path)
    raise ValueError(f"the field {path!r} of the schema has the type {kind}, which JSON isn't turned into")


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _check(values: list[Any], allowed: frozenset[type], kind: pa.DataType, path: str) -> frozenset[type]:
    found = frozenset(map(type, values)) - _NULL
    if not found <= allowed:
        wrong = next(iter(found - allowed))
        raise ValueError(f"the field {path!r} has a JSON {_JSON[wrong]} where the schema says {kind}")
    return found


_JSON: Final = {
    bool: "boolean",
    int: "integer",
    float: "number with a fraction",
    str: "string",
    list: "array",
    dict: "object",
}


def _plain(kind: pa.DataType, allowed: frozenset[type], path: str) -> Build:
    def build(values: list[Any]) -> Any:
        _check(values, allowed, kind, path)
        return _array(values, kind, path)

    return build


def _array(values: list[Any], kind: pa.DataType, path: str) -> Any:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(f"the field {path!r} is no {kind}: {error}") from error


def _cast(values: Any, kind: pa.DataType, path: str) -> Any:
    try:
        return values.cast(kind)
    except pa.ArrowException as error:
        raise ValueError(f"the field {path!r} is no {kind}: {error}") from error


def _float32(kind: pa.DataType, path: str) -> Build:
    plain = _plain(kind, _NUMBER, path)

    def build(values: list[Any]) -> Any:
        array = plain(values)
        if inf in (abs(one.as_py() or 0.0) for one in pc.min_max(array).values()):  # JSON itself has no infinity
            raise ValueError(f"the field {path!r} is no {kind}: its number is too large")
        return array

    return build


def _decimal(kind: pa.DataType, path: str) -> Build:
    def build(values: list[Any]) -> Any:
        _check(values, _STR | _NUMBER, kind, path)
        return _cast(pa.array([None if one is None else str(one) for one in values], pa.string()), kind, path)

    return build


_FINER_THAN_PYTHON: Final = re.compile(r"[.,][0-9]{7}")


def _temporal(kind: pa.DataType, path: str) -> Build:
    """Strings in ISO 8601, or numbers in the type's unit since 1970 (midnight, of times)."""
    number = pa.int32() if kind.bit_width == 32 else pa.int64()
    check = _check_bounds if types.is_time(kind) else _check_instants

    def build(values: list[Any]) -> Any:
        found = _check(values, _STR | _INT, kind, path)
        if len(found) > 1:
            raise ValueError(f"the field {path!r} has a string in one record and a number in another")
        if found == _STR and types.is_time(kind):  # which Arrow doesn't read
            times = pa.array([None if one is None else _time(one, path) for one in values], pa.time64("us"))
            return _cast(times, kind, path)
        array = _cast(_array(values, pa.string() if found == _STR else number, path), kind, path)
        check(array, kind, path)
        return array

    return build


def _check_zone(kind: pa.DataType, path: str) -> None:
    try:
        pa.scalar(0, kind).as_py()
    except (KeyError, ValueError) as error:
        raise ValueError(f"the field {path!r} of the schema has a time zone that isn't known: {kind.tz!r}") from error


def _time(text: str, path: str) -> time:
    try:
        parsed = time.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"the field {path!r} is no time: {error}") from error
    if parsed.tzinfo is not None:
        raise ValueError(f"the field {path!r} is {text!r}, a time with an offset, which the schema's type can't keep")
    if _FINER_THAN_PYTHON.search(text):
        raise ValueError(f"the field {path!r} is {text!r}, which is finer than microseconds")
    return parsed


def _check_bounds(array: Any, kind: pa.DataType, path: str) -> None:
    """
    Raises:
        ValueError: a time lies outside of the day, where Python would wrap it around, or a date64 inside of one.
    """
    try:
        array.validate(full=True)
    except pa.ArrowException as error:
        raise ValueError(f"the field {path!r} is no {kind}: {error}") from error


def _check_instants(array: Any, kind: pa.DataType, path: str) -> None:
    """
    Raises:
        ValueError: a date or timestamp lies outside of Python's years, or a date64 inside of a day.
    """
    if types.is_date64(kind):
        _check_bounds(array, kind, path)
    for one in pc.min_max(array).values():  # if the first and the last are fine, all are
        if one.is_valid and not _is_in_python(one):
            raise ValueError(f"the field {path!r} is {one.value}, a {kind} outside of the years 1 to 9999 of Python")


def _is_in_python(instant: Any) -> bool:
    if types.is_timestamp(instant.type) and instant.type.unit == "ns":
        return bool(instant.value > -(2**63))  # which pandas takes for a null; all others are
    try:
        instant.as_py()
    except OverflowError:
        return False
    return True


def _list(kind: pa.DataType, path: str) -> Build:
    items = _builder(kind.value_field, f"{path}[]")
    make = (pa.ListArray if types.is_list(kind) else pa.LargeListArray).from_arrays

    def build(values: list[Any]) -> Any:
        _check(values, frozenset({list}), kind, path)
        flat = items(list(chain.from_iterable(filter(None, values))))
        return make(_offsets(values, types.is_large_list(kind)), flat, type=kind)

    return build


def _map(kind: pa.DataType, path: str) -> Build:
    names, items = _builder(kind.key_field, path), _builder(kind.item_field, f"{path}{{}}")

    def build(values: list[Any]) -> Any:
        _check(values, frozenset({dict}), kind, path)
        filled = list(filter(None, values))
        flat_names = names(list(chain.from_iterable(filled)))
        flat = items(list(chain.from_iterable(one.values() for one in filled)))
        return pa.MapArray.from_arrays(_offsets(values, False), flat_names, flat, type=kind)

    return build


def _offsets(values: list[Any], large: bool) -> Any:
    ends = accumulate((0 if one is None else len(one) for one in values), initial=0)
    # A null in place of an offset makes its list null.
    offsets = [None if one is None else at for at, one in zip(ends, [*values, ()], strict=True)]
    return pa.array(offsets, pa.int64() if large else pa.int32())


def _struct(kind: pa.DataType, path: str) -> Build:
    fields = [
        (kind.field(i).name, _of_kind(kind.field(i).type, f"{path}.{kind.field(i).name}"))
        for i in range(kind.num_fields)
    ]
    required = [(kind.field(i).name) for i in range(kind.num_fields) if not kind.field(i).nullable]

    def build(values: list[Any]) -> Any:
        _check(values, frozenset({dict}), kind, path)
        present = [one for one in values if one is not None]
        for name in required:
            if any(one.get(name) is None for one in present):
                raise ValueError(f"the field {path}.{name!r} is null or missing, and the schema says that it never is")
        nothing: dict[str, Any] = {}
        rows = [nothing if one is None else one for one in values]
        arrays = [make([one.get(name) for one in rows]) for name, make in fields]
        mask = pa.array([one is None for one in values], pa.bool_()) if len(present) < len(values) else None
        return pa.StructArray.from_arrays(arrays, type=kind, mask=mask)

    return build
