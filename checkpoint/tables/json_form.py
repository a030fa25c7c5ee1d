"""Any value that the codec carries as JSON text, and back, without a change of value or type.

What JSON has is plain JSON: null, booleans, integers up to 4,096 bits, finite floats (always with a point or an
exponent), strings, arrays for lists, objects for dicts whose keys are strings that don't begin with `$`. Everything
else is an object with one member:

| member       | its value                                                                     | stands for         |
|--------------|-------------------------------------------------------------------------------|--------------------|
| `$float`     | `"nan"`, `"inf"`, `"-inf"`                                                    | float              |
| `$bytes`     | base64                                                                        | bytes              |
| `$bytearray` | base64                                                                        | bytearray          |
| `$decimal`, `$uuid`, `$date`, `$time` | text                                                 | what they are called |
| `$datetime`  | ISO 8601, without offset or with `+00:00` for `datetime.UTC`                  | datetime           |
| `$timedelta` | `[days, seconds, microseconds]`                                               | timedelta          |
| `$tuple`     | array of the items                                                            | tuple              |
| `$set`, `$frozenset` | array of the members, in the order of their encoding                  | set, frozenset     |
| `$dict`      | array of `[key, value]`                                                       | any other dict     |
| `$msgpack`   | base64 of the value's encoding                                                | all that is left   |
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from checkpoint.codec import decode_opaquely as decode
from checkpoint.codec import encode

_LARGEST_BITS: Final = 4096
"""Python neither writes nor reads integers of more than 4,300 digits."""
_NAN: Final = struct.pack(">d", float("nan"))


def to_json(value: Any) -> str:
    """The text; equal values of equal types have equal texts, apart from the order of dicts.

    Raises:
        EncodingError: the codec doesn't carry the value.
    """
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def from_json(text: str) -> Any:
    """The value of a text.

    Raises:
        ValueError: it is no JSON, has a key twice, a number that is too large for a float, or an object with a `$` that
            the table above doesn't have, or whose content would stand for another value than it says.
    """
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_finite)


def _plain(value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if value.bit_length() <= _LARGEST_BITS else _packed(value)
    if kind is str:
        return value if _is_unicode(value) else _packed(value)
    if kind is float:
        return value if math.isfinite(value) else _not_finite(value)
    if kind is list:
        return [_plain(item) for item in value]
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") and _is_unicode(key) for key in value):
            return {key: _plain(item) for key, item in value.items()}
        return {"$dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    tagged = _TAGGED.get(kind)
    return _packed(value) if tagged is None else tagged(value)


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _not_finite(value: float) -> dict[str, str]:
    # There are other NaNs than Python's.
    same = value == value or struct.pack(">d", value) == _NAN
    return {"$float": repr(value)} if same else _packed(value)


def _packed(value: Any) -> dict[str, str]:
    return {"$msgpack": base64.b64encode(encode(value)).decode()}


def _datetime(value: datetime) -> dict[str, str]:
    if value.fold or (value.tzinfo is not None and value.tzinfo is not UTC):
        return _packed(value)
    return {"$datetime": value.isoformat()}


def _time(value: time) -> dict[str, str]:
    return _packed(value) if value.fold or value.tzinfo is not None else {"$time": value.isoformat()}


_TAGGED: Final[Mapping[type, Callable[[Any], dict[str, Any]]]] = {
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    bytearray: lambda value: {"$bytearray": base64.b64encode(value).decode()},
    Decimal: lambda value: {"$decimal": str(value)},
    UUID: lambda value: {"$uuid": str(value)},
    date: lambda value: {"$date": value.isoformat()},
    datetime: _datetime,
    time: _time,
    timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    tuple: lambda value: {"$tuple": [_plain(item) for item in value]},
    set: lambda value: {"$set": [_plain(item) for item in sorted(value, key=encode)]},
    frozenset: lambda value: {"$frozenset": [_plain(item) for item in sorted(value, key=encode)]},
}
_FLOATS: Final = {"nan": float("nan"), "inf": math.inf, "-inf": -math.inf}


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _members(items: list[Any]) -> frozenset[Any]:
    """Of a set."""
    found = frozenset(items)
    if len(found) != len(items):
        raise ValueError("a member comes twice, or is equal to another one")
    return found


def _timedelta(parts: list[int]) -> timedelta:
    if len(parts) != 3 or not all(type(part) is int for part in parts):
        raise ValueError("it is three integers: days, seconds and microseconds")
    return timedelta(*parts)


def _no_finer(make: Callable[[str], Any]) -> Callable[[str], Any]:
    """`make`, which would cut off what is below a microsecond."""

    def made(text: str) -> Any:
        if _BELOW_MICROSECONDS.search(text):
            raise ValueError("it is finer than microseconds, which no value of Python is")
        return make(text)

    return made


_BELOW_MICROSECONDS: Final = re.compile(r"[.,]\d{6}\d")
_FROM_TAG: Final[Mapping[str, tuple[type, Callable[[Any], Any]]]] = {
    "$float": (str, _FLOATS.__getitem__),
    "$bytes": (str, _bytes),
    "$bytearray": (str, lambda text: bytearray(_bytes(text))),
    "$decimal": (str, Decimal),
    "$uuid": (str, UUID),
    "$date": (str, date.fromisoformat),
    "$datetime": (str, _no_finer(datetime.fromisoformat)),
    "$time": (str, _no_finer(time.fromisoformat)),
    "$timedelta": (list, _timedelta),
    "$tuple": (list, tuple),
    "$set": (list, lambda items: set(_members(items))),
    "$frozenset": (list, _members),
    "$dict": (list, lambda pairs: _unlike_each_other([_pair(one) for one in pairs])),
    "$msgpack": (str, lambda text: decode(_bytes(text))),
}
"""Of what type the content is, and what makes the value."""


def _pair(items: Any) -> tuple[Any, Any]:
    if type(items) is not list or len(items) != 2:
        raise ValueError("it is an array of pairs [key, value]")
    return items[0], items[1]


def _object(pairs: list[tuple[str, Any]]) -> Any:
    if not any(key.startswith("$") for key, _ in pairs):
        return _unlike_each_other(pairs)
    if len(pairs) != 1:
        raise ValueError(f"an object with {pairs[0][0]!r} and other members stands for no value")
    tag, content = pairs[0]
    if tag not in _FROM_TAG:
        raise ValueError(f"{tag!r} is no type; there are {', '.join(_FROM_TAG)}")
    kind, make = _FROM_TAG[tag]
    try:
        if type(content) is not kind:  # else letters of a text would be members, or a float the digits of a Decimal
            raise TypeError(f"it is {'a text' if kind is str else 'an array'}")
        return make(content)
    except (TypeError, ValueError, KeyError, ArithmeticError, AttributeError) as error:
        raise ValueError(f"{tag} can't be {content!r}: {error}") from error


def _unlike_each_other(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text} is too large for a float")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f'{name} is no JSON; write {{"$float":"nan"}}, "inf" or "-inf"')
