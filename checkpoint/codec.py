"""How values and keys become bytes: msgpack, in channels, in snapshots and in savepoints alike.

A value comes back equal, with its type, at every depth, or it is refused with an error that says where it sits:

| carried                           |                                                                                 |
|-----------------------------------|---------------------------------------------------------------------------------|
| None, bool, int, float, str       | integers of any size; NaN, infinities and -0.0; str with lone surrogates        |
| bytes, bytearray                  |                                                                                 |
| list, tuple, set, frozenset, dict | keys and members may be of any carried type that Python can hash                |
| datetime, date, time, timedelta   | naive, or with a `datetime.timezone` or `zoneinfo.ZoneInfo`, which is kept; fold |
| Decimal, UUID                     |                                                                                 |

Exactly these types: what a subclass adds (an enum, a named tuple, a `defaultdict`) would be lost.

Keys have an encoding of their own (`encode_key`): it is the identity of the key, in routing and in state.
"""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import ormsgpack
from ormsgpack import Ext, packb, unpackb

from checkpoint.codec_errors import DecodingError, EncodingError, UnknownTimeZone, advice, explained
from checkpoint.extensions import CONTAINERS, LEAVES, Extension, leaf, unpack_leaf

__all__ = [
    "MAX_DEPTH",
    "SCALARS",
    "DecodingError",
    "EncodingError",
    "UnknownTimeZone",
    "check",
    "copied",
    "decode",
    "decode_joined",
    "decode_key",
    "encode",
    "encode_around",
    "encode_key",
    "is_plain",
]

MAX_DEPTH: Final = 255
"""How deep lists and dicts may nest."""
MAX_EXTENSIONS: Final = 64
"""How many levels of those may be tuples, sets, or dicts with keys that msgpack has no type for."""

STRICTLY: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
"""For ormsgpack: refuse what it would turn into another type. Dicts whose keys aren't all str are an error in this
form: msgpack would make strings of enums, dates and UUIDs."""
_ANY_KEYS: Final = STRICTLY | ormsgpack.OPT_NON_STR_KEYS
_UNPACK: Final = ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_DATETIME_AS_TIMESTAMP_EXT

SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes, Decimal, UUID, date, timedelta})
"""Types whose values never change, and are all carried."""
_NATIVE: Final = frozenset({type(None), bool, int, float, str, bytes})
"""Scalars that msgpack has, apart from integers and strings at the edges."""
_PLAIN_KEYS: Final = _NATIVE - {float}
_MAP_KEYS: Final = _NATIVE | {tuple}
_all_scalars: Final = SCALARS.issuperset
_all_native: Final = _NATIVE.issuperset
_all_plain_keys: Final = _PLAIN_KEYS.issuperset
_BUFFERS: Final = frozenset({bytearray, memoryview})
_FEW: Final = 8
"""So many items are looked at one by one sooner than encoded."""
_SHORT: Final = 258
"""Bytes of msgpack that have no room for a binary of more than 255 bytes."""
_failure: Final = threading.local()
"""`error`: why the innermost extension could not be decoded, which ormsgpack doesn't pass on."""


def encode(value: Any) -> bytes:
    """`value` as it travels in channels and lies in snapshots.

    Raises:
        EncodingError: the value holds something that can't be encoded.
    """
    try:
        if type(value) is tuple and _all_native(map(type, value)):
            return packb(Ext(Extension.TUPLE, packb(list(value))))
        data = packb(value, _pack_other, STRICTLY)
    except TypeError:
        try:
            data = packb(value, _pack_other, _ANY_KEYS)
        except TypeError:
            return _encode_step_by_step(value)
        if not _all_fit_maps(value):
            return _encode_step_by_step(value)
    # ormsgpack takes a bytearray for bytes. Where its output holds no header of a binary, the value holds none.
    if (0xC4 in data or (len(data) > _SHORT and (0xC5 in data or 0xC6 in data))) and _holds_buffer(value):
        return _encode_step_by_step(value)
    return data


def encode_around(value: Any) -> bytes:
    """Like `encode`, for a list or dict of values that were checked one by one: it counts for no level of nesting."""
    return _encode_step_by_step(value, outside=-1)


def decode(data: bytes | memoryview) -> Any:
    """The value that `encode` was given.

    Raises:
        DecodingError: the bytes are damaged.
        UnknownTimeZone: they hold a time in a zone that this machine doesn't know.
    """
    try:
        return unpackb(data, ext_hook=_unpack, option=_UNPACK)
    except ValueError as error:
        raise _damaged(data, error) from error


def copied(value: Any) -> Any:
    """`value` as a channel would deliver it: equal, and sharing nothing with it that can be changed.

    Raises:
        EncodingError: the value holds something that can't be encoded.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is dict:
        if _all_scalars(map(type, value.values())) and _all_scalars(map(type, value)):
            return value.copy()
    elif (kind is list or kind is tuple) and _all_scalars(map(type, value)):
        return value.copy() if kind is list else value
    return decode(encode(value))


def check(value: Any) -> None:
    """Make sure that a checkpoint could hold `value`. Costs next to nothing for scalars.

    Raises:
        EncodingError: the value holds something that can't be encoded.
    """
    if not is_plain(value):
        encode(value)


def is_plain(value: Any) -> bool:
    """Whether it takes a look only to tell that `value` can be encoded: a scalar, a flat tuple, a small flat dict."""
    kind = type(value)
    if kind is dict and len(value) <= _FEW:
        for key, item in value.items():
            if type(key) is not str or type(item) not in SCALARS:
                break
        else:
            return True
    return kind in SCALARS or (kind is tuple and _all_scalars(map(type, value)))


def decode_joined(data: bytes) -> Any:
    """Like `decode`, for what was put together of encoded values.

    Raises:
        ValueError: it is damaged.
    """
    return unpackb(data, ext_hook=_unpack, option=_UNPACK)


# -- keys ------------------------------------------------------------------------------------------------------


def encode_key(key: Any) -> bytes:
    """The canonical encoding of a key: equal bytes mean the same key, for routing and for state.

    `1`, `1.0` and `True` are different keys. What is equal within a type is the same key: the two float zeros,
    `Decimal("1.0")` and `Decimal("1.00")`, datetimes of the same instant; and any two NaNs.

    Raises:
        EncodingError: the key isn't None, bool, int, float, str, bytes, Decimal, UUID, date, datetime, time,
            timedelta, or a tuple of these.
    """
    kind = type(key)
    try:
        if kind is str or kind is int:  # nearly all keys
            return packb(key)
        if kind is tuple and _all_plain_keys(map(type, key)):
            return packb(list(key))
    except TypeError:
        pass  # an integer or a string at the edges
    try:
        return _packed_key(key, 0)
    except (TypeError, RecursionError) as error:
        raise explained(key, "key", _problem_of_key, error, (MAX_DEPTH, MAX_DEPTH)) from None


def decode_key(data: bytes | memoryview) -> Any:
    """The key that `encode_key` was given; an aware datetime as the same instant in UTC.

    Raises:
        DecodingError: the bytes are damaged.
    """
    return _as_tuple(decode(data))


def _as_tuple(key: Any) -> Any:
    return tuple(map(_as_tuple, key)) if type(key) is list else key


def _packed_key(key: Any, depth: int) -> bytes:
    kind = type(key)
    if kind is float:
        key = float("nan") if key != key else key + 0.0  # -0.0 + 0.0 is 0.0
    elif kind is tuple:
        _check_depth(depth + 1, 0)
        return _array([_packed_key(item, depth + 1) for item in key])
    elif kind is datetime:
        key = key.replace(fold=0) if key.tzinfo is None else _instant(key)
    elif kind is time:
        if key.tzinfo is not None:
            raise TypeError("a time of day with a time zone is no key")
        key = key.replace(fold=0)
    elif kind is Decimal:
        key = _shortest(key)
    elif kind not in SCALARS:
        raise TypeError(f"{kind.__name__} is no key")
    return _scalar(key)


def _instant(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise TypeError("its instant lies outside of the years that UTC has here, 1 to 9999") from None


def _shortest(number: Decimal) -> Decimal:
    """The same for equal numbers; nothing is rounded."""
    if number.is_nan():
        if number.is_snan():
            raise TypeError("a signalling NaN is no key")
        return Decimal("NaN")
    if not number.is_finite():
        return number
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    kept = list(digits)
    while kept and kept[-1] == 0:
        kept.pop()
        exponent += 1
    return Decimal((sign, kept, exponent)) if kept else Decimal(0)


# -- what msgpack has no type for ------------------------------------------------------------------------------


def _pack_other(value: Any) -> Any:
    kind = type(value)
    if kind in LEAVES:
        return leaf(value)
    if kind is tuple and _all_native(map(type, value)):
        return Ext(Extension.TUPLE, packb(list(value)))
    if (kind is set or kind is frozenset) and _all_native(map(type, value)):
        return Ext(CONTAINERS[kind], _array(sorted(map(packb, value))))
    raise TypeError("left to what follows the depth")


def _encode_step_by_step(value: Any, outside: int = 0) -> bytes:
    try:
        return _packed(value, outside, outside)
    except (TypeError, RecursionError) as error:
        raise explained(value, "value", _problem, error, (MAX_DEPTH, MAX_EXTENSIONS)) from None


def _packed(value: Any, depth: int, extensions: int) -> bytes:
    """
    Args:
        depth: containers around the value.
        extensions: those of them that are extensions.
    """
    kind = type(value)
    if kind is list or kind is dict:
        return _packed_plainly(value, depth + 1, extensions)
    if kind is tuple or kind is set or kind is frozenset:
        _check_depth(depth + 1, extensions + 1)
        items = [_packed(item, depth + 1, extensions + 1) for item in value]
        if kind is not tuple:
            items.sort()  # equal sets have the same bytes
        return packb(Ext(CONTAINERS[kind], _array(items)))
    return _scalar(value)


def _packed_plainly(value: Any, depth: int, extensions: int) -> bytes:
    """A list or dict."""
    _check_depth(depth, extensions)
    if type(value) is list:
        if _all_native(map(type, value)):
            try:
                return packb(value)
            except TypeError:
                pass  # an integer or a string at the edges
        return _array([_packed(item, depth, extensions) for item in value])
    if _fit_map(value):
        try:
            if _all_native(map(type, value.values())):
                return packb(value, None, _ANY_KEYS)
            keys = [packb(list(key) if type(key) is tuple else key) for key in value]
        except TypeError:
            pass  # as above
        else:
            items = [_packed(item, depth, extensions) for item in value.values()]
            return _header(0x80, 0xDE, len(items)) + b"".join(map(bytes.__add__, keys, items))
    _check_depth(depth, extensions + 1)
    pairs = [_packed(each, depth, extensions + 1) for pair in value.items() for each in pair]
    return packb(Ext(Extension.DICT, _array(pairs)))


def _array(items: list[bytes]) -> bytes:
    return _header(0x90, 0xDC, len(items)) + b"".join(items)


def _header(short: int, long: int, n: int) -> bytes:
    """Of an array or map of `n` items, in as few bytes as msgpack has for it."""
    if n < 16:
        return bytes((short | n,))
    return bytes((long,)) + n.to_bytes(2, "big") if n < 2**16 else bytes((long + 1,)) + n.to_bytes(4, "big")


def _fit_map(keys: Any) -> bool:
    """Whether a msgpack map has room for such keys: those that msgpack knows, and flat tuples of them."""
    kinds = set(map(type, keys))
    return kinds <= _MAP_KEYS and (
        tuple not in kinds or all(_all_native(map(type, key)) for key in keys if type(key) is tuple)
    )


def _all_fit_maps(value: Any) -> bool:
    """Whether `_fit_map` is true of all dicts in a value that `packb` has taken."""
    pending = [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind is dict:
            if not _all_native(map(type, item)) and not _fit_map(item):
                return False
            item = item.values()
        elif kind is not list:
            continue
        if not _all_scalars(map(type, item)):
            pending.extend(item)
    return True


def _check_depth(depth: int, extensions: int) -> None:
    if depth > MAX_DEPTH or extensions > MAX_EXTENSIONS:
        raise TypeError(
            f"it nests deeper than {MAX_DEPTH} levels, or than {MAX_EXTENSIONS} of tuples, sets and dicts with such "
            "keys; flatten it"
        )


def _scalar(value: Any) -> bytes:
    kind = type(value)
    if kind is int and not -(2**63) <= value < 2**64:
        return packb(Ext(Extension.INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)))
    if kind is str:
        try:
            return packb(value)
        except TypeError:
            return packb(Ext(Extension.STR, value.encode("utf-8", "surrogatepass")))
    if kind is bytearray:
        return packb(Ext(Extension.BYTEARRAY, bytes(value)))
    if kind in _NATIVE:
        return packb(value)
    return packb(leaf(value))


def _problem(item: Any) -> str | None:
    """Why this very item (not its content) can't be encoded, and what to do; `None` if it can."""
    kind = type(item)
    if kind in LEAVES:
        try:
            leaf(item)
        except TypeError as error:
            return str(error)
        return None
    if kind in SCALARS or kind in CONTAINERS or kind in (list, dict, bytearray):
        return None
    return advice(item)


def _problem_of_key(item: Any) -> str | None:
    kind = type(item)
    if kind is tuple:
        return None
    if kind in (list, dict, set, bytearray, memoryview):
        return f"a key must not change; use {'tuple(x)' if kind is list else 'a str, a number, bytes, or a tuple'}"
    if kind is not frozenset and _problem(item) is not None:
        return _problem(item)
    try:
        _packed_key(item, 0)
    except TypeError as error:
        return str(error)
    return None


def _holds_buffer(value: Any) -> bool:
    """Whether there is a bytearray or memoryview in a value that `packb` has taken."""
    pending = [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind in _BUFFERS:
            return True
        if kind is dict or kind is list:
            contents = item.values() if kind is dict else item
            if not _all_scalars(map(type, contents)):
                pending.extend(contents)
    return False


def _unpack(code: int, data: bytes) -> Any:
    try:
        match code:
            case Extension.TUPLE:
                return tuple(decode_joined(data))
            case Extension.DICT:
                items = iter(decode_joined(data))
                return dict(zip(items, items, strict=True))
            case Extension.SET:
                return set(decode_joined(data))
            case Extension.FROZENSET:
                return frozenset(decode_joined(data))
            case _:
                return unpack_leaf(code, data)
    except Exception as error:
        if getattr(_failure, "error", None) is None:
            _failure.error = error
        raise


def _damaged(data: bytes | memoryview, error: ValueError) -> Exception:
    cause, _failure.error = getattr(_failure, "error", None), None
    if isinstance(cause, UnknownTimeZone):
        return cause
    return DecodingError(
        f"{len(data)} bytes that should be one msgpack value are damaged ({cause or error}); "
        f"they begin {bytes(data[:16])!r}"
    )
