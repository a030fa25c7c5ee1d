"""Values as Arrow columns and back, without a change.

A column is *typed* where all its values have one plain type (`None` beside it becomes null); else it holds the JSON
text of each value (see `json_form`), and its name ends in `_json`. So a column's name says how it is to be read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from checkpoint.codec import decode_opaquely as decode
from checkpoint.codec import encode
from checkpoint.shown import shown
from checkpoint.tables.json_form import from_json, to_json

JSON: Final = "_json"
"""What a column's name ends in that holds JSON texts."""
_MICROSECONDS: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1)
_NAN: Final = struct.pack(">d", float("nan"))


class NotInColumn(ValueError):
    """A value that a column has no place for, or a column that holds no values."""


_PLAIN: Final[Mapping[type, tuple[Any, Callable[[Any], bool]]]] = {
    bool: (pa.bool_(), lambda value: True),
    int: (pa.int64(), lambda value: -(2**63) <= value < 2**63),
    float: (pa.float64(), lambda value: value == value or struct.pack(">d", value) == _NAN),
    str: (pa.string(), lambda value: not any("\ud800" <= character <= "\udfff" for character in value)),
    bytes: (pa.binary(), lambda value: True),
    date: (pa.date32(), lambda value: True),
}
_NAIVE: Final = pa.timestamp("us")
_AWARE: Final = pa.timestamp("us", tz="UTC")


def type_of(value: Any) -> Any:
    """The Arrow type of a column that holds the value as it is; `None` if there is no such type. The null type for
    `None`, which any column holds."""
    kind = type(value)
    if value is None:
        return pa.null()
    if kind is datetime and not value.fold and (value.tzinfo is None or value.tzinfo is UTC):
        return _NAIVE if value.tzinfo is None else _AWARE
    found = _PLAIN.get(kind)
    return found[0] if found is not None and found[1](value) else None


class Inferred:
    """The type of a column, from all its values."""

    def __init__(self) -> None:
        self._type: Any = pa.null()

    def add(self, values: Iterable[Any]) -> None:
        if self._type is None:
            return
        found = {type_of(value) for value in values} - {pa.null(), self._type}
        if found:
            (one, *more) = found
            self._type = one if self._type == pa.null() and not more else None

    @property
    def type(self) -> Any:
        """`None`: JSON."""
        return None if self._type is None or self._type == pa.null() else self._type


def field(name: str, type: Any) -> Any:
    """The column of a name: typed, or as JSON if `type` is `None`. A typed one may hold null, which is `None`."""
    return pa.field(f"{name}{JSON}", pa.string(), nullable=False) if type is None else pa.field(name, type)


def column(values: Sequence[Any], type: Any, what: str) -> Any:
    """
    Args:
        type: `None`: JSON.
        what: the column, for messages.

    Raises:
        NotInColumn: a value has another type.
    """
    if type is None:
        return pa.array([to_json(value) for value in values], pa.string())
    for value in values:
        if value is not None and type_of(value) != type:
            raise NotInColumn(
                f"{what} has the value {shown(value)} ({type_name(value)}), which a column of {type} can't hold "
                "without a change; read it as JSON"
            )
    return pa.array(values, type)


def type_name(value: Any) -> str:
    return type(value).__qualname__


def encoded_column(
    table: Any, name: str, encoder: Callable[[Any], bytes] = encode, decoder: Callable[[bytes], Any] = decode
) -> list[bytes] | None:
    """The encodings of what a table has under a name: as `name`, `name_json`, or `name_bytes`, which holds encodings.

    Args:
        table: a `pyarrow.Table`.
        encoder, decoder: make an encoding of a value, and the value again.

    Returns:
        `None`: it has no such column.

    Raises:
        NotInColumn: a column that holds no values, two that don't agree, or both a typed and a JSON column.
        EncodingError: a value can't be kept.
    """
    names = set(table.column_names)
    if {name, name + JSON} <= names:
        raise NotInColumn(f"both {name!r} and {name + JSON!r} are there: which one counts? Leave one out")
    values = None
    if name in names:
        values = _values(table.column(name), name)
    elif name + JSON in names:
        values = _from_json(table.column(name + JSON), name + JSON)
    if f"{name}_bytes" not in names:
        return None if values is None else [encoder(value) for value in values]
    found = _encodings(table.column(f"{name}_bytes"), f"{name}_bytes", decoder)
    for row, (data, value) in enumerate(zip(found, values or (), strict=False)):
        given = encoder(value)
        if given != data and given != encoder(decoder(data)):
            raise NotInColumn(
                f"row {row}: {name} is {shown(value)} and {name}_bytes holds {shown(decoder(data))}: to change it, "
                f"leave out the column {name}_bytes"
            )
    return found


_COLUMNS: Final = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date32,
    pa.types.is_decimal,
    pa.types.is_null,
)


def _is_plain(kind: Any) -> bool:
    """Whether Arrow gives the values of a column as they are: a struct as a dict, a list as a list."""
    if pa.types.is_struct(kind):
        return all(_is_plain(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    return any(is_kind(kind) for is_kind in _COLUMNS)


def _values(found: Any, name: str) -> list[Any]:
    if pa.types.is_timestamp(found.type):
        return _moments(found, name)
    if not _is_plain(found.type):
        raise NotInColumn(
            f"column {name!r} is of {found.type}, which stands for no value without a guess; give the values as JSON "
            f"texts in a column {name + JSON!r}"
        )
    values: list[Any] = found.to_pylist()
    return values


def _moments(found: Any, name: str) -> list[Any]:
    if found.type.tz not in (None, "UTC", "Etc/UTC", "+00:00"):
        raise NotInColumn(f"column {name!r} is in the zone {found.type.tz}; make it UTC")
    try:
        micros = found.cast(pa.timestamp("us", tz=found.type.tz)).cast(pa.int64()).to_pylist()
    except pa.ArrowInvalid as error:
        raise NotInColumn(
            f"column {name!r} is finer than microseconds, which no value of Python is: {error}"
        ) from error
    zone = None if found.type.tz is None else UTC
    return [None if at is None else (_EPOCH + at * _MICROSECONDS).replace(tzinfo=zone) for at in micros]


def _from_json(found: Any, name: str) -> list[Any]:
    if not (pa.types.is_string(found.type) or pa.types.is_large_string(found.type)):
        raise NotInColumn(f"column {name!r} is of {found.type}; it holds JSON, so it must be of strings")
    values = []
    for row, text in enumerate(found.to_pylist()):
        if text is None:
            raise NotInColumn(f'row {row}: {name} is null; the value None is the text "null"')
        try:
            values.append(from_json(text))
        except (ValueError, RecursionError) as error:
            raise NotInColumn(f"row {row}: {name} is {shown(text, 200)}: {error}") from error
    return values


def _encodings(found: Any, name: str, decoder: Callable[[bytes], Any]) -> list[bytes]:
    if not (pa.types.is_binary(found.type) or pa.types.is_large_binary(found.type)):
        raise NotInColumn(f"column {name!r} is of {found.type}; it holds encoded values, so it must be binary")
    values: list[bytes] = found.to_pylist()
    for row, data in enumerate(values):
        try:
            if data is None:
                raise ValueError("it is null")
            decoder(data)
        except ValueError as error:
            raise NotInColumn(f"row {row}: {name} is no encoded value: {error}") from error
    return values
