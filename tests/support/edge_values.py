"""Values at the edges of types, and what it means that two are equal; shared by the tests of all formats and sinks."""

from __future__ import annotations

import dataclasses
import math
import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Final
from uuid import UUID

import numpy
from hypothesis import strategies as st


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 1


class Name(StrEnum):
    A = "a"


class Text(str):
    pass


class Whole(int):
    pass


class Items(list):  # type: ignore[type-arg]
    pass


class Fields(dict):  # type: ignore[type-arg]
    pass


@dataclasses.dataclass(frozen=True)
class Point:
    x: int


INTEGERS: Final = sorted(
    {
        sign * 2**bits + step
        for bits in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64, 100)
        for sign in (1, -1)
        for step in (-1, 0, 1)
    }
    | {0}
)
FLOATS: Final = (
    0.0, -0.0, 1.0, 0.1, 1.5, 2.0**53, 2.0**53 + 2, 1e22, 1e300, -1e300, 5e-324, 2.2250738585072014e-308,
    1.7976931348623157e308, 3.4028234663852886e38, 16777217.0,
)  # fmt: skip
NOT_FINITE: Final = (math.nan, math.inf, -math.inf)
TEXTS: Final = (
    "", "a", "abc", "\0", "a\nb", '"', "\\", "\\u003a", ":", 'a":1', "é", "e\u0301", "→", "a.b", "😀", "1", "null",
    "12345678901234567890123", "x" * 300,
)  # fmt: skip
SURROGATES: Final = ("\ud800", "a\udfff", "\udcff\ud800")
INSTANTS: Final = (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
)
NAIVE: Final = tuple(one.replace(tzinfo=None) for one in INSTANTS)
OTHERS: Final = (
    b"", b"abc", bytearray(b"abc"), memoryview(b"abc"), (), (1, 2), {1}, frozenset({"a"}),
    Decimal("12.50"), Decimal("12345678901234567890123456789012345678"), Decimal("NaN"),
    date(2026, 1, 2), time(3, 4, 5, 678901), timedelta(seconds=1), UUID(int=7),
    Colour.RED, Level.HIGH, Name.A, Text("a"), Whole(1), Items([1]), Fields(a=1), Point(1),
    numpy.int64(1), numpy.float64(1.5), numpy.bool_(True), numpy.array([1]), object, 1j, ...,
)  # fmt: skip
"""None of these is JSON's."""

EVERYTHING: Final = (
    None, True, False, *INTEGERS, *FLOATS, *NOT_FINITE, *TEXTS, *SURROGATES, *INSTANTS, *NAIVE, *OTHERS,
    [], {}, [1], {"a": 1}, [[]], {"a": {}}, {"": 1}, [None], {"a": None}, {1: 2}, {None: 1}, {"1": 1, 1: 2},
    {Text("a"): 1}, {Name.A: 1}, {"\ud800": 1},
)  # fmt: skip

integers = st.sampled_from(INTEGERS) | st.integers(-(2**80), 2**80)
floats = st.sampled_from(FLOATS) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.sampled_from(TEXTS) | st.text(max_size=20)
json_scalars = st.none() | st.booleans() | integers | floats | texts


def shown(value: Any) -> str:
    """An id for a row of a table, the same in each process that collects it: without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def nested(items: st.SearchStrategy[Any], keys: st.SearchStrategy[Any] = texts) -> st.SearchStrategy[Any]:
    """The items, and lists and dicts of them."""
    return st.recursive(
        items, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
    )


json_values = nested(json_scalars)
"""What JSON has."""
anything = nested(
    json_scalars | st.sampled_from(EVERYTHING) | st.datetimes() | st.decimals() | st.binary(max_size=4),
    texts | st.sampled_from((1, None, Name.A, Text("a"), "\ud800", 1.0)),
)
"""With much that JSON does not have, at any depth."""


def same(one: Any, other: Any) -> bool:
    """Equal, types included, at any depth; a NaN equals a NaN, and the two zeros differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            same(a, b) and same(one[a], other[b]) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one.hex() == other.hex()
    if isinstance(one, datetime):
        return one == other and one.utcoffset() == other.utcoffset()
    return bool(one == other)
