"""Arrow types for columns of Python values, by a rule that changes none: all values of a column are of one type.

`pyarrow.array` would make 1.0 of a 1 that has a 1.5 beside it, and b"a" of an "a" beside bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from checkpoint.shown import shown

_INT64: Final = (-(2**63), 2**63 - 1)
_UINT64: Final = (0, 2**64 - 1)
_SIMPLE: Final[Mapping[type, pa.DataType]] = {
    bool: pa.bool_(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    time: pa.time64("us"),
    timedelta: pa.duration("us"),
}


def infer(values: list[Any], path: str) -> pa.DataType:
    """The type that holds all the values exactly.

    Raises:
        ValueError: none does; names two values that don't go together.
    """
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if not kinds:
        return pa.null()
    if len(kinds) > 1:
        raise _mixed(values, path, lambda value: type(value).__qualname__)
    (kind,) = kinds
    if (simple := _SIMPLE.get(kind)) is not None:
        return simple
    if kind is list:
        return pa.list_(infer(list(chain.from_iterable(filter(None, values))), f"{path}[]"))
    present = [value for value in values if value is not None]
    if kind is int:
        return _integers(present, path)
    if kind is dict:
        return _struct(values, present, path)
    if kind is datetime:
        if len({_zone(value) for value in present}) > 1:
            raise _mixed(values, path, lambda value: f"datetime with the time zone {_zone(value)}")
        return pa.timestamp("us", _zone(present[0]))
    if kind is Decimal:
        return pa.array(present).type  # of the digits that they need
    raise ValueError(
        f"the field {path!r} is {shown(present[0])}, a {kind.__qualname__}, which no column holds. Convert it in a "
        "map in front"
    )


def _integers(present: list[int], path: str) -> pa.DataType:
    low, high = min(present), max(present)
    for kind, (lowest, highest) in ((pa.int64(), _INT64), (pa.uint64(), _UINT64)):
        if lowest <= low and high <= highest:
            return kind
    raise ValueError(
        f"the field {path!r} has integers from {shown(low)} to {shown(high)}, which no integer type of Arrow holds "
        "together. Make them str or Decimals in a map in front"
    )


def _struct(values: list[Any], present: list[dict[Any, Any]], path: str) -> pa.DataType:
    names = present[0].keys()
    for value in present:
        if value.keys() != names:
            raise _mixed(
                values, path, lambda one: f"dict with the fields {', '.join(map(shown, sorted(one, key=shown)))}"
            )
    for name in names:
        if type(name) is not str:
            raise ValueError(f"the field {path!r} has the key {shown(name)}, but names of fields must be str")
    return pa.struct([(name, infer([value[name] for value in present], f"{path}.{name}")) for name in names])


def _zone(value: datetime) -> str | None:
    """As Arrow calls it."""
    zone, offset = value.tzinfo, value.utcoffset()
    if zone is None or offset is None:
        return None
    if isinstance(zone, ZoneInfo) and zone.key is not None:
        return zone.key
    if zone is UTC:
        return "UTC"
    minutes, seconds = divmod(offset.total_seconds(), 60)
    if seconds:
        raise ValueError(f"{shown(value)} has an offset with seconds, which Arrow doesn't have. Give it in UTC")
    hours, minutes = divmod(abs(int(minutes)), 60)
    return f"{'-' if offset < timedelta() else '+'}{hours:02}:{minutes:02}"


def _mixed(values: list[Any], path: str, name: Callable[[Any], str]) -> ValueError:
    first = next(i for i, value in enumerate(values) if value is not None)
    other = next(i for i, value in enumerate(values) if value is not None and name(value) != name(values[first]))
    return ValueError(
        f"the field {path!r} is the {name(values[first])} {shown(values[first])} in row {first} and the "
        f"{name(values[other])} {shown(values[other])} in row {other}. Give a schema that both fit, "
        "map_batches(…, schema=pa.schema(…)), or make them of one type in a map in front"
    )
