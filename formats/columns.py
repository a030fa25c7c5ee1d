"""Arrow arrays from lists of values, a column at a time, strictly.

`pyarrow.array` would cut 1.5 to an integer, take a string for a list of its letters, and leave out the fields that a
struct doesn't have. Here the types of all values are looked at first, and what makes the arrays of scalars (a `Leaf`)
decides what they may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, chain
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from checkpoint.counted import counted
from checkpoint.shown import shown

Build = Callable[[list[Any]], Any]
"""Makes an array of values.

Raises:
    ValueError, TypeError, OverflowError, pa.ArrowException: a value doesn't fit the type.
"""
Leaf = Callable[[pa.DataType, str], Build | None]
"""What makes arrays of a type, of the field of that path; `None` = it doesn't."""

_NULL: Final = frozenset({type(None)})
_STR: Final = frozenset({str})
_PAIR: Final = 2


class Columns:
    """Makes builders.

    Args:
        leaf: of scalars.
        other_fields: of a struct's values, which its type doesn't have.
        names: what types are called in messages.
    """

    def __init__(
        self, leaf: Leaf, other_fields: Literal["refuse", "ignore"], names: Mapping[type, str] | None = None
    ) -> None:
        self._leaf = leaf
        self._other_fields = other_fields
        self._names = names or {}

    def builder(self, field: pa.Field, path: str) -> Build:
        """
        Raises:
            ValueError: the field has a type that nothing is turned into.
        """
        build = self._of(field.type, path)
        if field.nullable:
            return build

        def required(values: list[Any]) -> Any:
            if None in values:
                raise ValueError(f"the field {path!r} must not be null: it is null or missing")
            return build(values)

        return required

    def check(self, values: list[Any], allowed: frozenset[type], kind: pa.DataType, path: str) -> frozenset[type]:
        """The types of the values, which must be among those allowed, or `None`.

        Raises:
            ValueError: one isn't.
        """
        found = frozenset(map(type, values)) - _NULL
        if not found <= allowed:
            value = next(value for value in values if value is not None and type(value) not in allowed)
            name = self._names.get(type(value), type(value).__qualname__)
            raise ValueError(f"the field {path!r} has the {name} {shown(value)} where the schema says {kind}")
        return found

    def plain(self, kind: pa.DataType, allowed: frozenset[type], path: str) -> Build:
        def build(values: list[Any]) -> Any:
            self.check(values, allowed, kind, path)
            return array(values, kind, path)

        return build

    def _of(self, kind: pa.DataType, path: str) -> Build:
        leaf = self._leaf(kind, path)
        if leaf is not None:
            return leaf
        if types.is_list(kind) or types.is_large_list(kind):
            return self._list(kind, path)
        if types.is_fixed_size_list(kind):
            return self._fixed_size_list(kind, path)
        if types.is_struct(kind):
            return self._struct(kind, path)
        if types.is_map(kind):
            return self._map(kind, path)
        raise ValueError(f"the field {path!r} of the schema has the type {kind}, which nothing is turned into here")

    def _list(self, kind: pa.DataType, path: str) -> Build:
        items = self.builder(kind.value_field, f"{path}[]")
        make = (pa.ListArray if types.is_list(kind) else pa.LargeListArray).from_arrays

        def build(values: list[Any]) -> Any:
            self.check(values, frozenset({list}), kind, path)
            flat = items(list(chain.from_iterable(filter(None, values))))
            return make(_offsets(values, types.is_large_list(kind)), flat, type=kind)

        return build

    def _fixed_size_list(self, kind: pa.DataType, path: str) -> Build:
        if not kind.list_size:
            raise ValueError(f"the field {path!r} of the schema has the type {kind}, of lists without items")
        items = self._of(kind.value_type, f"{path}[]")
        size, nullable = kind.list_size, kind.value_field.nullable

        def build(values: list[Any]) -> Any:
            self.check(values, frozenset({list}), kind, path)
            for value in values:
                if value is not None and len(value) != size:
                    raise ValueError(
                        f"the field {path!r} has a list of {counted(len(value), 'item')} where the schema says {kind}"
                    )
                if value is not None and not nullable and None in value:
                    raise ValueError(f"the field {path + '[]'!r} must not be null: it is null or missing")
            nothing = [None] * size
            flat = items(list(chain.from_iterable(nothing if value is None else value for value in values)))
            return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=_mask(values))

        return build

    def _map(self, kind: pa.DataType, path: str) -> Build:
        """A column of maps: dicts, or lists of pairs, which is what Arrow itself gives."""
        names, items = self.builder(kind.key_field, f"{path}{{}}"), self.builder(kind.item_field, f"{path}{{}}")

        def build(values: list[Any]) -> Any:
            found = self.check(values, frozenset({dict, list}), kind, path)
            entries = [value.items() if type(value) is dict else value for value in values]
            if list in found:
                for value in values:
                    if type(value) is list and not all(type(one) is tuple and len(one) == _PAIR for one in value):
                        raise ValueError(f"the field {path!r} has {shown(value)} where the schema says {kind}")
            filled = list(chain.from_iterable(filter(None, entries)))
            flat_names, flat = names([name for name, _ in filled]), items([item for _, item in filled])
            return pa.MapArray.from_arrays(_offsets(entries, False), flat_names, flat, type=kind)

        return build

    def _struct(self, kind: pa.DataType, path: str) -> Build:
        fields = [(one.name, self._of(one.type, f"{path}.{one.name}")) for one in kind.fields]
        names = frozenset(name for name, _ in fields)
        if len(names) < len(fields):
            raise ValueError(f"the field {path!r} of the schema is a struct with two fields of one name, {kind}")
        required = [one.name for one in kind.fields if not one.nullable]

        def build(values: list[Any]) -> Any:
            self.check(values, frozenset({dict}), kind, path)
            present = [one for one in values if one is not None]
            if self._other_fields == "refuse":
                for one in present:
                    if not one.keys() <= names or not set(map(type, one)) <= _STR:
                        other = next(name for name in one if name not in names or type(name) is not str)
                        raise ValueError(f"the schema has no field {shown(other)} in {path!r}, which is {kind}")
            for name in required:
                if any(one.get(name) is None for one in present):
                    raise ValueError(f"the field {path + '.' + name!r} must not be null: it is null or missing")
            if not fields or not present:
                return (
                    pa.array(values, kind)
                    if not required
                    else pa.StructArray.from_arrays(
                        [_something(one.type, len(values)) for one in kind.fields], type=kind, mask=_mask(values)
                    )
                )
            # Parquet wants a value in fields that are never null where the whole struct is, too.
            nothing = {name: present[0][name] for name in required}
            rows = [nothing if one is None else one for one in values]
            arrays = [make([one.get(name) for one in rows]) for name, make in fields]
            return pa.StructArray.from_arrays(arrays, type=kind, mask=_mask(values))

        return build


def array(values: list[Any], kind: pa.DataType, path: str) -> Any:
    """
    Raises:
        ValueError: a value doesn't fit; shows it.
    """
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        for value in values:
            try:
                pa.array([value], kind)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as single:
                raise ValueError(f"the field {path!r} is {shown(value)}, which is no {kind}: {single}") from single
        raise ValueError(f"the field {path!r} is no {kind}: {error}") from error


def cast(values: Any, kind: pa.DataType, path: str) -> Any:
    """
    Raises:
        ValueError: a value would be another in `kind`.
    """
    try:
        return values.cast(kind)
    except pa.ArrowException as error:
        raise ValueError(f"the field {path!r} is no {kind}: {error}") from error


def check_bounds(values: Any, kind: pa.DataType, path: str) -> None:
    """
    Raises:
        ValueError: a time lies outside of the day, where Python would wrap it around, or a date64 inside of one.
    """
    try:
        values.validate(full=True)
    except pa.ArrowException as error:
        raise ValueError(f"the field {path!r} is no {kind}: {error}") from error


def check_instants(values: Any, kind: pa.DataType, path: str) -> None:
    """
    Raises:
        ValueError: a date or timestamp lies outside of Python's years, or a date64 inside of a day.
    """
    if types.is_date64(kind):
        check_bounds(values, kind, path)
    for one in pc.min_max(values).values():  # if the first and the last are fine, all are
        if one.is_valid and not _is_in_python(one):
            raise ValueError(f"the field {path!r} is {one.value}, a {kind} outside of the years 1 to 9999 of Python")


def check_zone(kind: pa.DataType, path: str) -> None:
    """
    Raises:
        ValueError: nobody knows the time zone of a timestamp's type.
    """
    try:
        pa.scalar(0, kind).as_py()
    except (KeyError, ValueError) as error:
        raise ValueError(f"the field {path!r} of the schema has a time zone that isn't known: {kind.tz!r}") from error


def is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _is_in_python(instant: Any) -> bool:
    if types.is_timestamp(instant.type) and instant.type.unit == "ns":
        return bool(instant.value > -(2**63))  # which pandas takes for a null; all others are
    try:
        instant.as_py()
    except OverflowError:
        return False
    return True


def _offsets(values: list[Any], large: bool) -> Any:
    ends = accumulate((0 if one is None else len(one) for one in values), initial=0)
    # A null in place of an offset makes its list null.
    offsets = [None if one is None else at for at, one in zip(ends, [*values, ()], strict=True)]
    return pa.array(offsets, pa.int64() if large else pa.int32())


def _something(kind: pa.DataType, n: int) -> Any:
    """An array without nulls, at any depth."""
    if types.is_struct(kind) and kind.num_fields:
        return pa.StructArray.from_arrays([_something(one.type, n) for one in kind.fields], type=kind)
    if types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_something(kind.value_type, n * kind.list_size), type=kind)
    if types.is_nested(kind):
        return pa.array([[]] * n, kind)
    if types.is_dictionary(kind):
        indices = _something(kind.index_type, n)
        return pa.DictionaryArray.from_arrays(indices, _something(kind.value_type, 1)).cast(kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _something(kind.storage_type, n))
    return pa.Array.from_buffers(kind, n, [None, *pa.nulls(n, kind).buffers()[1:]], null_count=0)


def _mask(values: list[Any]) -> Any:
    return pa.array([one is None for one in values], pa.bool_()) if None in values else None
