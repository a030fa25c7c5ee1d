"""Values that state, channels and keys have to give back as they were, and how to tell."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from pydantic_core import TzInfo


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down; time zones and folds included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):  # in the same order
        return same(list(a.items()), list(b.items()))
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, datetime):
        return (a.replace(tzinfo=None), a.fold, repr(a.tzinfo)) == (b.replace(tzinfo=None), b.fold, repr(b.tzinfo))
    return repr(a) == repr(b)


EDGES = [
    *(sign * 2**n + off for n in (7, 8, 15, 16, 31, 32, 53, 63, 64, 65, 200) for sign in (1, -1) for off in (-1, 0, 1)),
    *(0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 2.0**53),
    *("", "é", "e\u0301", "\ud800", "a\udfffb", "\0", "Żółć"),
    *(
        b"",
        b"\xc4",
        b"x" * 255,
        b"x" * 256,
        bytearray(),
        bytearray(b"x" * 256),
    ),
    *(None, True, False),
    *(datetime.min, datetime.max, date.min, date.max, time.min, time.max, timedelta.min, timedelta.max),
    *(one.replace(tzinfo=UTC) for one in (datetime.min, datetime.max)),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
    datetime.min.replace(tzinfo=ZoneInfo("Asia/Kolkata")),
    datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2020, 10, 25, 2, 30, fold=1),
    datetime(2020, 1, 1, fold=1, tzinfo=UTC),
    datetime(2020, 1, 1, tzinfo=ZoneInfo("UTC")),
    datetime(2020, 1, 1, tzinfo=timezone(timedelta(0), "UTC")),
    datetime(2020, 1, 1, tzinfo=timezone(timedelta(0), "GMT")),
    datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=53, seconds=28))),
    *(datetime(2020, 1, 1, tzinfo=TzInfo(seconds)) for seconds in (0, 7200, -12345)),
    time(1, 2, 3, 4, TzInfo(-3600)),
    datetime(2020, 1, 1, tzinfo=timezone(timedelta(microseconds=-1), "odd")),
    time(1, 2, 3, 4, timezone(timedelta(hours=-3)), fold=1),
    *map(Decimal, ("0", "-0", "1.00", "1E+5", "-Infinity", "NaN", "NaN12", "sNaN3", "9" * 38, "1E-38", "1E+999999")),
    UUID(int=0),
    UUID(int=2**128 - 1),
]
"""Scalars at the edges of their types."""
LARGE = ["x" * 70_000, b"x" * 70_000, bytearray(b"x" * 70_000)]
"""Kept out of the strategies, which tell them in full."""

OFFSETS = st.timedeltas(timedelta(hours=-23, minutes=-59), timedelta(hours=23, minutes=59))
ZONES = (
    st.none()
    | st.sampled_from([UTC, timezone(timedelta(0), "UTC"), timezone(timedelta(hours=1), "UTC+01:00")])
    | st.builds(timezone, OFFSETS)
    | st.builds(timezone, OFFSETS, st.text(max_size=3))
    | st.sampled_from(["Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "UTC"]).map(ZoneInfo)
)
TEXT = st.text(st.characters(), max_size=8)
"""Lone surrogates included."""
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    TEXT,
    st.binary(max_size=300),
    st.decimals(),
    st.uuids(),
    st.dates(),
    st.timedeltas(),
    st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.datetimes(), ZONES, st.integers(0, 1)),
    st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.times(), ZONES, st.integers(0, 1)),
    st.sampled_from([edge for edge in EDGES if type(edge) is not bytearray]),
).filter(lambda value: not (type(value) is Decimal and value.is_snan()))
"""All of them can be hashed."""


def _hashable(inner: Any) -> Any:
    return st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3)


HASHABLE = st.recursive(SCALARS, _hashable, max_leaves=4)
VALUES = st.recursive(
    SCALARS | st.binary(max_size=300).map(bytearray),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.sets(HASHABLE, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
    ),
    max_leaves=12,
)
"""All that is carried."""


def _may_be_key(value: Any) -> bool:
    if type(value) is time:
        return value.tzinfo is None
    if type(value) is datetime and value.tzinfo is not None:
        return timedelta(days=1) < value.replace(tzinfo=None) - datetime.min < timedelta(days=3_652_057)
    return True


KEYS = st.recursive(
    SCALARS.filter(_may_be_key),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
"""What a record's key may be."""
