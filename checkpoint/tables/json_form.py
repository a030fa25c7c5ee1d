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
        ValueError: it is no JSON, has a key twice, or an object with a `$` that the table above doesn't have.
    """
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)


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
_FROM_TAG: Final[Mapping[str, Callable[[Any], Any]]] = {
    "$float": _FLOATS.__getitem__,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$bytearray": lambda text: bytearray(base64.b64decode(text, validate=True)),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$date": date.fromisoformat,
    "$datetime": datetime.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": lambda parts: timedelta(*parts),
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": lambda pairs: _unlike_each_other([(key, value) for key, value in pairs]),
    "$msgpack": lambda text: decode(base64.b64decode(text, validate=True)),
}


def _object(pairs: list[tuple[str, Any]]) -> Any:
    if not any(key.startswith("$") for key, _ in pairs):
        return _unlike_each_other(pairs)
    if len(pairs) != 1:
        raise ValueError(f"an object with {pairs[0][0]!r} and other members stands for no value")
    tag, content = pairs[0]
    make = _FROM_TAG.get(tag)
    if make is None:
        raise ValueError(f"{tag!r} is no type; there are {', '.join(_FROM_TAG)}")
    try:
        return make(content)
    except (TypeError, ValueError, KeyError, ArithmeticError, AttributeError) as error:
        raise ValueError(f"{tag} can't be {content!r}: {error}") from error


def _unlike_each_other(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f'{name} is no JSON; write {{"$float":"nan"}}, "inf" or "-inf"')
