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
from decimal import Decimal
from math import inf
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from checkpoint.options import named_options
from checkpoint.shown import shown
from formats.columns import Build, Columns, array, cast, check_bounds, check_instants, check_zone, is_text
from formats.json_values import loads_all


@named_options
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
            _columns.builder(field, field.name)

    def __str__(self) -> str:
        return "ArrowJson"

    def parser(self) -> Callable[[Sequence[bytes]], pa.RecordBatch]:
        """Makes a batch with one row for each of the given JSON objects.

        Raises (the function):
            ValueError, TypeError, OverflowError, pa.ArrowException: one of them is no JSON object, or doesn't fit.
        """
        schema = self.schema
        decimals = "decimal" in str(schema)
        fields = [(field.name, _columns.builder(field, field.name)) for field in schema]

        def parse(raw: Sequence[bytes]) -> pa.RecordBatch:
            objects = loads_all(raw, long_fractions=decimals)
            if set(map(type, objects)) != {dict}:
                raise ValueError("it is not a JSON object")
            arrays = [build([one.get(name) for one in objects]) for name, build in fields]
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        return parse


_NULL: Final = frozenset({type(None)})
_INT: Final = frozenset({int})
_NUMBER: Final = frozenset({int, float, Decimal})
"""Decimals are numbers with more digits than a float holds (see `loads_all`)."""
_STR: Final = frozenset({str})


def _leaf(kind: pa.DataType, path: str) -> Build | None:
    if types.is_boolean(kind):
        return _columns.plain(kind, frozenset({bool}), path)
    if types.is_integer(kind):
        return _columns.plain(kind, _INT, path)
    if types.is_float64(kind):
        return _floats(kind, path)
    if types.is_float32(kind):
        return _float32(kind, path)
    if is_text(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return _columns.plain(kind, _STR, path)
    if types.is_dictionary(kind) and is_text(kind.value_type):
        return _columns.plain(kind, _STR, path)
    if types.is_decimal(kind):
        return _decimal(kind, path)
    if types.is_timestamp(kind):
        check_zone(kind, path)
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return _temporal(kind, path)
    if types.is_map(kind) and not is_text(kind.key_type):
        raise ValueError(f"the field {path!r} of the schema has the type {kind}; names in JSON are strings")
    return None


_JSON: Final = {
    bool: "boolean",
    int: "integer",
    float: "number with a fraction",
    Decimal: "number with a fraction",
    str: "string",
    list: "array",
    dict: "object",
}


_columns: Final = Columns(_leaf, "ignore", {kind: f"JSON {name}" for kind, name in _JSON.items()})


def _floats(kind: pa.DataType, path: str) -> Build:
    def build(values: list[Any]) -> Any:
        if Decimal in _columns.check(values, _NUMBER, kind, path):
            values = [float(value) if type(value) is Decimal else value for value in values]
        return array(values, kind, path)

    return build


def _float32(kind: pa.DataType, path: str) -> Build:
    plain = _floats(kind, path)

    def build(values: list[Any]) -> Any:
        made = plain(values)
        if inf in (abs(one.as_py() or 0.0) for one in pc.min_max(made).values()):  # JSON itself has no infinity
            raise ValueError(f"the field {path!r} is no {kind}: its number is too large")
        return made

    return build


def _decimal(kind: pa.DataType, path: str) -> Build:
    def build(values: list[Any]) -> Any:
        _columns.check(values, _STR | _NUMBER, kind, path)
        # Not by a cast of strings, which makes another number of one that is too large.
        return array([None if one is None else _number(str(one), kind, path) for one in values], kind, path)

    return build


_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")


def _number(text: str, kind: pa.DataType, path: str) -> Decimal:
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"the field {path!r} is {shown(text)}, which is no {kind}")
    return Decimal(text)


_FINER_THAN_PYTHON: Final = re.compile(r"[.,][0-9]{7}")


def _temporal(kind: pa.DataType, path: str) -> Build:
    """Strings in ISO 8601, or numbers in the type's unit since 1970 (midnight, of times)."""
    number = pa.int32() if kind.bit_width == 32 else pa.int64()
    check = check_bounds if types.is_time(kind) else check_instants

    def build(values: list[Any]) -> Any:
        found = _columns.check(values, _STR | _INT, kind, path)
        if len(found) > 1:
            raise ValueError(f"the field {path!r} has a string in one record and a number in another")
        if found == _STR and types.is_time(kind):  # which Arrow doesn't read
            times = pa.array([None if one is None else _time(one, path) for one in values], pa.time64("us"))
            return cast(times, kind, path)
        made = cast(array(values, pa.string() if found == _STR else number, path), kind, path)
        check(made, kind, path)
        return made

    return build


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
