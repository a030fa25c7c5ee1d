"""A number for a key of a map, the same for keys that are equal, in every process: by it entries go into pages.

Python's own hashes don't serve: those of texts differ from process to process.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from xxhash import xxh3_64_intdigest

_MASK: Final = (1 << 64) - 1
_SAME: Final = 0
"""Of what is equal to itself at most."""


def spread(map_key: Any) -> int | None:
    """
    Returns:
        64 bits; `None` for a key of another type than the plain ones, such as a dataclass: what it is equal to only its
        class can tell.
    """
    kind = type(map_key)
    if kind is str:
        try:
            return xxh3_64_intdigest(map_key.encode())
        except UnicodeEncodeError:
            return _text(map_key)
    if kind is int:
        return xxh3_64_intdigest((hash(map_key) & _MASK).to_bytes(8, "little"))
    of = _KINDS.get(kind) or _inherited(kind)
    return None if of is None else of(map_key)


def _text(value: str) -> int:
    return xxh3_64_intdigest(str.encode(value, "utf-8", "surrogatepass"))


def _number(value: Any) -> int:
    """Numbers of all types that are equal have equal hashes, which no process changes."""
    return xxh3_64_intdigest((hash(value) & _MASK).to_bytes(8, "little")) if value == value else _SAME


def _integer(value: int) -> int:
    return xxh3_64_intdigest((int.__hash__(value) & _MASK).to_bytes(8, "little"))


def _tuple(value: tuple[Any, ...]) -> int | None:
    parts = bytearray()
    for item in tuple.__iter__(value):
        part = spread(item)
        if part is None:
            return None
        parts += part.to_bytes(8, "little")
    return xxh3_64_intdigest(bytes(parts))


def _datetime(value: datetime) -> int:
    since = timedelta(value.toordinal(), value.hour * 3600 + value.minute * 60 + value.second, value.microsecond)
    offset = value.replace(fold=0).utcoffset()
    return _timedelta(since if offset is None else since - offset)


def _timedelta(value: timedelta) -> int:
    return xxh3_64_intdigest(b"%d %d %d" % (value.days, value.seconds, value.microseconds))


def _time(value: time) -> int | None:
    if value.tzinfo is not None:
        return None
    return xxh3_64_intdigest(b"%d %d %d %d" % (value.hour, value.minute, value.second, value.microsecond))


_KINDS: Final[dict[type, Callable[[Any], int | None]]] = {
    str: _text,
    int: _integer,
    bool: _number,
    float: _number,
    Decimal: lambda value: _SAME if value.is_nan() else _number(value),
    bytes: xxh3_64_intdigest,
    type(None): lambda value: _SAME,
    tuple: _tuple,
    UUID: lambda value: xxh3_64_intdigest(value.bytes),
    date: lambda value: xxh3_64_intdigest(b"%d" % value.toordinal()),
    datetime: _datetime,
    time: _time,
    timedelta: _timedelta,
}


def _inherited(kind: type) -> Callable[[Any], int | None] | None:
    """Of a type whose values are equal to those of a plain one, such as a named tuple or an `IntEnum`."""
    for base in (str, int, tuple):
        if issubclass(kind, base):
            same = kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__
            return _KINDS[base] if same else None
    return None
