"""How values and keys become bytes: msgpack, in channels, in snapshots and in savepoints alike.

| Python value               | arrives as                                                              |
|----------------------------|-------------------------------------------------------------------------|
| None, bool, str, float     | itself                                                                  |
| int                        | itself, from -2**63 to 2**64 - 1; larger ones are refused               |
| bytes, bytearray           | bytes                                                                   |
| list                       | list                                                                    |
| tuple                      | list in channels (`encode`); tuple in state (`encode_state`)            |
| dict                       | dict; keys may be None, bool, int, float, str, bytes and tuples of them |
| datetime with a time zone  | the same instant in UTC                                                 |

Everything else is refused with an error that says where it sits, since a value that a channel silently changed (an
enum into its value, a naive datetime into a string) would show only after a restore or at another parallelism. One
exception: enums, dates and UUIDs used as *keys of a dict* arrive as their plain value or string.

Keys have an encoding of their own (`encode_key`): it is the identity of the key, in routing and in state.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

import ormsgpack
from ormsgpack import packb, unpackb

MAX_DEPTH: Final = 255
"""How deep lists and dicts may nest."""

_PACK: Final = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_PACK_STATE: Final = _PACK | ormsgpack.OPT_PASSTHROUGH_TUPLE
UNPACK_OPTIONS: Final = ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_DATETIME_AS_TIMESTAMP_EXT
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TUPLE: Final = 1
"""Extension type of a tuple in state: its items as a msgpack array."""


class EncodingError(TypeError):
    """A value that can't travel or be kept; the message names its type, the path to it and what to do."""


class DecodingError(ValueError):
    """Bytes that no version of this codec wrote."""


def encode(value: Any) -> bytes:
    """`value` as it travels in channels; tuples arrive as lists.

    Raises:
        EncodingError: the value holds something that can't be encoded.
    """
    try:
        return packb(value, _pack_datetime, _PACK)
    except TypeError as error:
        raise _explained(value, "value", error) from None


def decode(data: bytes | memoryview) -> Any:
    """The value that `encode` was given.

    Raises:
        DecodingError: the bytes are damaged.
    """
    try:
        return unpackb(data, option=UNPACK_OPTIONS)
    except ValueError as error:
        raise _damaged(data, error) from error


_UNCHANGED: Final = frozenset({type(None), bool, float, bytes})
_LEAST: Final = -(2**63)
_MOST: Final = 2**64 - 1


def copied(value: Any) -> Any:
    """`value` as a channel would deliver it, sharing nothing with it that can be changed.

    Raises:
        EncodingError: the value holds something that can't be encoded.
    """
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                break
            kind = type(item)
            if kind is str:
                if not item.isascii():
                    break
            elif kind is int:
                if not _LEAST <= item <= _MOST:
                    break
            elif kind not in _UNCHANGED:
                break
        else:
            return value.copy()
    elif kind in _UNCHANGED or (kind is str and value.isascii()) or (kind is int and _LEAST <= value <= _MOST):
        return value
    return decode(encode(value))


def encode_state(value: Any) -> bytes:
    """`value` as it is kept in snapshots: like `encode`, but tuples stay tuples.

    An operator that compares what it stored with what it receives must see no difference after a restore.

    Raises:
        EncodingError: the value holds something that can't be encoded.
    """
    try:
        return packb(value, _pack_state, _PACK_STATE)
    except TypeError as error:
        raise _explained(value, "value", error) from None


def decode_state(data: bytes | memoryview) -> Any:
    """The value that `encode_state` was given.

    Raises:
        DecodingError: the bytes are damaged.
    """
    try:
        return unpackb(data, ext_hook=_unpack_state, option=UNPACK_OPTIONS)
    except ValueError as error:
        raise _damaged(data, error) from error


def encode_key(key: Any) -> bytes:
    """The canonical encoding of a key: equal bytes mean the same key, for routing and for state.

    `1`, `1.0` and `True` are different keys. Tuples and lists with the same items are the same key, as are the
    two float zeros, any two NaNs, and datetimes of the same instant.

    Raises:
        EncodingError: the key isn't None, bool, int, float, str, bytes, a datetime with a time zone, or a list or
            tuple of these.
    """
    kind = type(key)
    try:
        if kind is str or kind is int:  # nearly all keys
            return packb(key, None, _PACK)
        return packb(_canonical(key), _pack_datetime, _PACK)
    except (TypeError, RecursionError) as error:
        raise _explained(key, "key", error, is_key=True) from None


def decode_key(data: bytes | memoryview) -> Any:
    """The key that `encode_key` was given, with lists for tuples.

    Raises:
        DecodingError: the bytes are damaged.
    """
    return decode(data)


_SCALARS: Final = frozenset({type(None), bool, int, str, bytes})


def _canonical(key: Any) -> Any:
    kind = type(key)
    if kind in _SCALARS or kind is datetime:
        return key
    if kind is float:
        return math.nan if key != key else key + 0.0  # -0.0 + 0.0 is 0.0
    if kind is tuple or kind is list:
        return [_canonical(item) for item in key]
    raise TypeError(f"{kind.__name__} is no key")


def _pack_datetime(value: Any) -> Any:
    if type(value) is datetime and value.tzinfo is not None:
        since = value - _EPOCH
        nanos, at = since.microseconds * 1000, since.days * 86_400 + since.seconds
        if nanos >= 2**29 and 0 <= at < 2**34:
            # ormsgpack drops the fraction where its topmost bit is set; this is msgpack's timestamp 64.
            return ormsgpack.Fragment(b"\xd7\xff" + (nanos << 34 | at).to_bytes(8, "big"))
        return ormsgpack.Fragment(packb(value, None, ormsgpack.OPT_DATETIME_AS_TIMESTAMP_EXT))
    raise TypeError("not encodable")


def _pack_state(value: Any) -> Any:
    if type(value) is tuple:
        return ormsgpack.Ext(_TUPLE, packb(list(value), _pack_state, _PACK_STATE))
    return _pack_datetime(value)


def _unpack_state(code: int, data: bytes) -> Any:
    if code == _TUPLE:
        return tuple(unpackb(data, ext_hook=_unpack_state, option=UNPACK_OPTIONS))
    raise ValueError(f"unknown extension type {code}")


def _damaged(data: bytes | memoryview, error: ValueError) -> DecodingError:
    return DecodingError(
        f"{len(data)} bytes that should be one msgpack value are damaged ({error}); they begin {bytes(data[:16])!r}"
    )


# -- what is wrong with a value, found only once encoding has failed -------------------------------------------


def _explained(value: Any, root: str, cause: BaseException, *, is_key: bool = False) -> EncodingError:
    for path, item, depth in _walk(value, root):
        if depth > MAX_DEPTH:
            return EncodingError(f"{root} nests deeper than {MAX_DEPTH} levels, or contains itself; flatten it")
        problem = _problem(item, is_key)
        if problem is not None:
            return EncodingError(f"can't encode {type(item).__qualname__} at {path}: {problem}")
    return EncodingError(f"can't encode {root} of type {type(value).__qualname__}: {cause}")


def _walk(value: Any, root: str) -> Iterator[tuple[str, Any, int]]:
    """Every item with the path to it, containers before their content, until `MAX_DEPTH` is passed."""
    pending: list[tuple[str, Any, int]] = [(root, value, 0)]
    while pending:
        path, item, depth = pending.pop()
        yield path, item, depth
        kind = type(item)
        if kind is list or kind is tuple:
            pending.extend((f"{path}[{i}]", item[i], depth + 1) for i in range(len(item) - 1, -1, -1))
        elif kind is dict:
            for key, content in reversed(item.items()):
                pending.append((f"{path}[{key!r}]", content, depth + 1))
                pending.append((f"key {key!r} of {path}", key, depth + 1))


_NATIVE: Final = frozenset({type(None), bool, float, bytes, bytearray, memoryview, list, tuple, dict})
_PLAIN: Final = "None, bool, int, float, str, bytes, list, tuple, dict or a datetime with a time zone"


def _problem(item: Any, is_key: bool) -> str | None:
    """Why this very item (not its content) can't be encoded, and what to do; `None` if it can."""
    kind = type(item)
    if is_key and kind in (dict, bytearray, memoryview):
        return "a key must not change; use a str, a number, bytes, or a tuple of these"
    if kind in _NATIVE:
        return None
    if kind is int:
        if -(2**63) <= item < 2**64:
            return None
        return "integers must fit into 64 bits; keep larger ones as str or bytes"
    if kind is str:
        try:
            item.encode()
        except UnicodeEncodeError:
            return "it holds lone surrogates and is no valid Unicode; decode its source with the right encoding"
        return None
    if kind is datetime:
        return None if item.tzinfo is not None else "it has no time zone; add one, such as datetime.timezone.utc"
    return _hint(item)


def _hint(item: Any) -> str:
    if isinstance(item, Enum):
        return "use its .value"
    if isinstance(item, set | frozenset):
        return "use a list, or a dict with the members as keys"
    if isinstance(item, Decimal):
        return "use str(x), or float(x) where rounding does no harm"
    if isinstance(item, datetime):
        return "use .to_pydatetime() or an int of milliseconds"
    if isinstance(item, date | time):
        return "use .isoformat()"
    if isinstance(item, UUID):
        return "use str(x) or x.bytes"
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return "use dataclasses.asdict(x)"
    if type(item).__module__.partition(".")[0] == "numpy":
        return "use .item() for a scalar, .tolist() for an array"
    for base in (dict, list, tuple, str, bool, int, float, bytes):
        if isinstance(item, base):
            return f"subclasses lose their type on the way; use {base.__name__}(x)"
    return f"convert it to plain values: {_PLAIN}"
