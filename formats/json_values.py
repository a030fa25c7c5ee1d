"""JSON, both ways, without a value changed.

orjson does the work. What it is lenient about (integers beyond 64 bits become floats, of a key that comes twice the
last one counts, NaN is written as null, enums and UUIDs as their values, tuples as arrays) is found by tests on whole
batches that are cheap, and the few records that they point at are read or written by the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import orjson
import ormsgpack

from checkpoint.codec import STRICTLY
from checkpoint.shown import shown
from formats.errors import NotInFormat
from formats.hints import hint

MAX_DEPTH: Final = 254
"""How deep arrays and objects may nest."""

_DIGITS: Final = bytes(0x30 if byte in b"0123456789-" else 0x20 for byte in range(256))
"""For `bytes.translate`: digits and signs become zeros, everything else blanks."""
_LARGE: Final = b"0" * 20
"""Integers beyond 64 bits have 20 digits, or 19 and a sign."""
_SAMPLE: Final = 5
"""Every fifth byte of a text above `_LARGE` is looked at first."""
_DOUBLE_DIGITS: Final = 15
"""A double loses nothing of so many digits."""
_DIGITS_AND_POINTS: Final = bytes(0x30 if byte in b"0123456789." else 0x20 for byte in range(256))
_LONG: Final = b"0" * (_DOUBLE_DIGITS + 1)
_TINY: Final = re.compile(rb"[eE]-[0-9]{3}")
_LEAST: Final = 1e-290
"""Doubles above it have all their digits."""
_LARGEST_BITS: Final = 1023
"""Digits of the longest integer that a double comes near to; orjson refuses to read longer ones."""
_AT_ONCE: Final = 512
"""Texts that are looked at together; with more of them the processor's cache is missed."""

_PASS: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_NEWLINE: Final = orjson.Fragment(b"\n")
_TOGETHER: Final = 64
"""So many values are written as one text; of fewer each by itself is quicker."""
_MAYBE_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""How a NaN or an infinity begins in msgpack; valid UTF-8 has no such bytes."""


# -- in -----------------------------------------------------------------------------------------------------------


def loads(data: bytes | str) -> Any:
    """The value of a JSON text. Numbers with a fraction or an exponent are doubles, all others exact integers.

    Raises:
        ValueError: it is no JSON, has a key twice in an object, a number that is too large for a double, or nests
            deeper than `MAX_DEPTH`.
    """
    raw = data.encode() if isinstance(data, str) else data
    value = orjson.loads(raw)
    return value if _written(value) == raw else _exact(raw, value)


def loads_all(raw: Sequence[bytes], long_fractions: bool = False) -> list[Any]:
    """The values of several JSON texts.

    Args:
        long_fractions: whether numbers with a fraction and more digits than a double holds are to be Decimals, and
            those that are nearer to zero than doubles with all their digits.

    Raises:
        ValueError: `loads` would refuse one of them.
        TypeError: one is `None`.
    """
    if len(raw) <= _AT_ONCE:
        return _loads_some(raw, long_fractions)
    pieces = (raw[start : start + _AT_ONCE] for start in range(0, len(raw), _AT_ONCE))
    return [value for piece in pieces for value in _loads_some(piece, long_fractions)]


def _loads_some(raw: Sequence[bytes], long_fractions: bool) -> list[Any]:
    values = list(map(orjson.loads, raw))
    joined = b",".join(raw)
    try:
        written = orjson.dumps(values)
    except TypeError:  # one nests too deep
        return list(map(loads, raw))
    # What is written as it came has lost nothing; most programs write JSON in this one way.
    if written[1:-1] == joined:
        return values
    if long_fractions and (_LONG in joined.translate(_DIGITS_AND_POINTS) or _TINY.search(joined)):
        return [json.loads(one, object_pairs_hook=_object, parse_float=_fraction) for one in raw]
    if not _suspect(joined, written):
        return values
    return [_exact(one, value) for one, value in zip(raw, values, strict=True)]


def _written(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise NotInFormat(f"it nests deeper than {MAX_DEPTH} levels") from error


def _suspect(raw: bytes, written: bytes) -> bool:
    """Whether an integer may have become a float, or a key may have been twice in an object."""
    if _LARGE[::_SAMPLE] in raw[::_SAMPLE].translate(_DIGITS) and _LARGE in raw.translate(_DIGITS):
        return True
    # Each key has a colon behind it, and those within strings are written as they came, unless they were escaped.
    return raw.count(b":") != written.count(b":") or (b"\\" in raw and b"\\u003" in raw)


def _exact(raw: bytes, value: Any) -> Any:
    """`raw`, which orjson has taken for `value`."""
    if not _suspect(raw, _written(value)):
        return value
    try:
        return json.loads(raw.decode(), object_pairs_hook=_object)
    except RecursionError as error:
        raise NotInFormat(f"it nests deeper than {MAX_DEPTH} levels") from error


def long_fractions(raw: bytes) -> dict[str, Decimal]:
    """The numbers with a fraction in a JSON text that have more digits than a double holds, by their path."""
    if _LONG not in raw.translate(_DIGITS_AND_POINTS):
        return {}
    found: dict[str, Decimal] = {}
    pending: list[tuple[str, Any]] = [("$", json.loads(raw, parse_float=_fraction))]
    while pending:
        path, item = pending.pop()
        if type(item) is Decimal:
            found[path] = item
        elif type(item) is dict:
            pending += [(f"{path}.{name}", one) for name, one in item.items()]
        elif type(item) is list:
            pending += [(f"{path}[{i}]", one) for i, one in enumerate(item)]
    return found


def _fraction(text: str) -> float | Decimal:
    mantissa, number = text.partition("e")[0].partition("E")[0], float(text)
    if sum(map(str.isdigit, mantissa)) <= _DOUBLE_DIGITS and abs(number) > _LEAST:
        return number
    if not mantissa.strip("-0."):
        return number  # a zero has no digits to lose
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise NotInFormat(f"the number {text} has an exponent that is out of any range") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise NotInFormat(f"an object has the key {twice!r} more than once")
    return found


# -- out ----------------------------------------------------------------------------------------------------------


def dumps(value: Any) -> bytes:
    """The JSON text that `loads` makes an equal value of, types included.

    Raises:
        NotInFormat: JSON has no such value. The message says where it is in `value`, and what to do.
    """
    return dumps_all((value,))[0]


def dumps_all(values: Sequence[Any]) -> list[bytes]:
    """
    Raises:
        NotInFormat: `dumps` would refuse one of them.
    """
    try:
        lines = _lines(values)
        # orjson can't be told to refuse enums, tuples and UUIDs; ormsgpack can, and is quicker than looking at each.
        if _MAYBE_NOT_FINITE.search(ormsgpack.packb(list(values), None, STRICTLY)) is None:
            return lines
    except TypeError:
        pass
    if len(values) == 1:
        return [_dumps(values[0])]
    middle = len(values) // 2  # most of the others are as they should be
    return dumps_all(values[:middle]) + dumps_all(values[middle:])


def _lines(values: Sequence[Any]) -> list[bytes]:
    if len(values) < _TOGETHER:
        return [orjson.dumps(value, None, _PASS) for value in values]
    # Every text that orjson writes begins as a kilobyte, and many such cost more than the writing. So they are written
    # as one, and taken apart at newlines, which JSON has none of within strings.
    parts: list[Any] = [_NEWLINE] * (2 * len(values) - 1)
    parts[::2] = values
    return orjson.dumps(parts, None, _PASS)[1:-1].split(b",\n,")


def _dumps(value: Any) -> bytes:
    for path, item, depth in _walk(value):
        problem = _problem(item) if depth <= MAX_DEPTH else f"it nests deeper than {MAX_DEPTH} levels; flatten it"
        if problem is not None:
            raise NotInFormat(f"{path} can't be written as JSON: {problem}")
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _walk(value: Any) -> Iterator[tuple[str, Any, int]]:
    """Every item with the path to it, containers before their content."""
    pending: list[tuple[str, Any, int]] = [("value", value, 0)]
    while pending:
        path, item, depth = pending.pop()
        yield path, item, depth
        if type(item) is list:
            pending.extend((f"{path}[{i}]", item[i], depth + 1) for i in range(len(item) - 1, -1, -1))
        elif type(item) is dict:
            pending.extend((f"{path}[{shown(key)}]", one, depth + 1) for key, one in reversed(item.items()))


def _problem(item: Any) -> str | None:
    """Why JSON can't hold this very item (apart from its content), and what to do; `None` if it can."""
    kind = type(item)
    if item is None or kind is bool or kind is list:
        return None
    if kind is int:
        if item.bit_length() <= _LARGEST_BITS:
            return None
        return f"it is an integer of {item.bit_length()} bits, larger than readers take (1.8e308); write it as a str"
    if kind is float:
        if item - item == 0.0:
            return None
        return f"{item!r} is no number that JSON has; write None or a str in its place, or leave the field out"
    if kind is str:
        return _surrogates(item)
    if kind is dict:
        for key in item:
            if type(key) is not str:
                return f"its key {shown(key)} is of type {type(key).__qualname__}, and keys in JSON are str; convert it"
            if (problem := _surrogates(key)) is not None:
                return f"its key {shown(key)}: {problem}"
        return None
    return f"{shown(item)} is of type {kind.__qualname__}, which JSON doesn't have; {hint(item)}"


def _surrogates(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it holds lone surrogates and is no valid Unicode; decode its source with the right encoding"
    return None
