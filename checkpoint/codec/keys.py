"""Keys as bytes and back: one encoding a key, which is its identity in routing and in state."""

from __future__ import annotations

from datetime import UTC, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from ormsgpack import packb

from checkpoint.codec.decoding import decode
from checkpoint.codec.errors import explained
from checkpoint.codec.values import MAX_DEPTH, NATIVE, SCALARS, array, check_depth, problem_of, scalar

_all_plain_keys: Final = (NATIVE - {float}).issuperset


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


_FIRST_NUMBERS: Final = tuple(map(packb, range(4096)))
_PAGE: Final = b"\xdc\x00\x02"
"""An array of two, longer than it must be: no key is encoded so, and each decoder reads it."""


def page_key(key: bytes, number: int) -> bytes:
    """What a page of an encoded key is kept under (see `checkpoint.state.stores.PagedStore`). It is no key's encoding,
    and `decode_key` gives the key and the number."""
    return _PAGE + key + (_FIRST_NUMBERS[number] if 0 <= number < len(_FIRST_NUMBERS) else encode_key(number))


def pages_of(key: bytes) -> bytes:
    """What the encodings of all pages of an encoded key begin with, and no others."""
    return _PAGE + key


def owner_of(key: bytes) -> bytes:
    """The encoded key that a page belongs to; any other encoded key as it is."""
    return encode_key(decode_key(key)[0]) if key.startswith(_PAGE) else key


def _as_tuple(key: Any) -> Any:
    return tuple(map(_as_tuple, key)) if type(key) is list else key


def _packed_key(key: Any, depth: int) -> bytes:
    kind = type(key)
    if kind is float:
        key = float("nan") if key != key else key + 0.0  # -0.0 + 0.0 is 0.0
    elif kind is tuple:
        check_depth(depth + 1, 0)
        return array([_packed_key(item, depth + 1) for item in key])
    elif kind is datetime:
        key = key.replace(fold=0) if key.tzinfo is None else _instant(key)
    elif kind is time:
        if key.tzinfo is not None:
            raise TypeError("a time of day with a time zone is no key")
        key = key.replace(fold=0)
    elif kind is Decimal:
        key = _shortest(key)
    elif kind not in SCALARS:
        raise TypeError(_instead(key))
    return scalar(key)


def _instead(key: Any) -> str:
    """What to use as a key in place of a value that is none.

    A key's bytes are its identity, for as long as there are checkpoints: they can't depend on the name of a class.
    """
    if isinstance(key, Enum):
        return "an enum is no key; use its .value"
    if isinstance(key, tuple):
        return "a named tuple is no key; use tuple(x)"
    return f"{type(key).__name__} is no key; use one of its fields, or a tuple of them"


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


def _problem_of_key(item: Any) -> str | None:
    kind = type(item)
    if kind is tuple:
        return None
    if kind in (list, dict, set, bytearray, memoryview):
        return f"a key must not change; use {'tuple(x)' if kind is list else 'a str, a number, bytes, or a tuple'}"
    if kind is not frozenset and problem_of(item) is not None:
        return problem_of(item)
    try:
        _packed_key(item, 0)
    except TypeError as error:
        return str(error)
    return None
