from __future__ import annotations

import math
import uuid
from collections import Counter, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.codec import (
    MAX_DEPTH,
    DecodingError,
    EncodingError,
    decode,
    decode_key,
    decode_state,
    encode,
    encode_key,
    encode_state,
)

INTEGERS = st.integers(-(2**63), 2**64 - 1)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text() | st.binary()
DICT_KEYS = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=2).map(tuple),
    max_leaves=4,
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(DICT_KEYS, inner), max_leaves=15)
WITH_TUPLES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.lists(inner).map(tuple), max_leaves=15)


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down."""
    return repr(a) == repr(b)


@settings(deadline=None)
@given(VALUES)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert same(decode(encode(value)), value)


@settings(deadline=None)
@given(WITH_TUPLES)
def test_tuples_stay_tuples_in_state(value: Any) -> None:
    assert same(decode_state(encode_state(value)), value)


def test_tuples_arrive_as_lists_in_channels() -> None:
    assert decode(encode((1, (2, 3)))) == [1, [2, 3]]


def test_bytearrays_arrive_as_bytes() -> None:
    assert decode(encode([bytearray(b"ab")])) == [b"ab"]


@pytest.mark.parametrize("through", [lambda v: decode(encode(v)), lambda v: decode_state(encode_state(v))])
@pytest.mark.parametrize("year", [1, 1960, 1970, 2013, 2110, 2600])
@pytest.mark.parametrize("microsecond", [0, 1, 123_456, 536_870, 536_871, 678_901, 999_999])
def test_datetimes_keep_their_instant_to_the_microsecond(through: Any, year: int, microsecond: int) -> None:
    moment = datetime(year, 1, 1, 5, 15, 0, microsecond, tzinfo=timezone(timedelta(hours=-5)))
    assert through({"at": moment}) == {"at": moment}
    assert through(moment).tzinfo == UTC


class Colour(IntEnum):
    RED = 1


@dataclass
class Point:
    x: int = 1


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("item", "name", "advice"),
    [
        ({1, 2}, "set", "list"),
        (frozenset({1}), "frozenset", "list"),
        (Decimal("1.5"), "Decimal", "str(x)"),
        (Colour.RED, "Colour", ".value"),
        (Point(), "Point", "asdict"),
        (Pair(1, 2), "Pair", "tuple(x)"),
        (Counter("aab"), "Counter", "dict(x)"),
        (date(2013, 1, 1), "date", "isoformat"),
        (datetime(2013, 1, 1), "datetime", "time zone"),
        (uuid.UUID(int=1), "UUID", "str(x)"),
        (2**64, "int", "64 bits"),
        (-(2**63) - 1, "int", "64 bits"),
        ("\ud800", "str", "surrogates"),
        (1j, "complex", "plain values"),
        (object(), "object", "plain values"),
    ],
)
@pytest.mark.parametrize("pack", [encode, encode_state])
def test_what_would_change_on_the_way_is_refused_with_its_type_its_place_and_advice(
    pack: Any, item: Any, name: str, advice: str
) -> None:
    with pytest.raises(EncodingError) as caught:
        pack({"ok": [1, "a"], "items": [0, {"x": item}]})
    message = str(caught.value)
    assert f"can't encode {name} at value['items'][1]['x']:" in message
    assert advice in message


def test_an_encoding_error_is_a_type_error_and_names_a_dict_key_that_is_at_fault() -> None:
    with pytest.raises(TypeError, match=r"frozenset at key frozenset\(\{1\}\) of value\['a'\]"):
        encode({"a": {frozenset({1}): 2}})


def test_a_value_that_contains_itself_or_nests_too_deep_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(EncodingError, match="contains itself"):
        encode(endless)
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert decode(encode(deep)) == deep
    with pytest.raises(EncodingError, match=f"deeper than {MAX_DEPTH} levels"):
        encode([deep])


@pytest.mark.parametrize("data", [b"", b"\xc1", encode([1, 2])[:-1], encode("abc")[:-1]])
@pytest.mark.parametrize("unpack", [decode, decode_state])
def test_damaged_bytes_are_an_error(unpack: Any, data: bytes) -> None:
    with pytest.raises(DecodingError, match="damaged"):
        unpack(data)


def test_state_bytes_in_a_channel_are_an_error_where_they_hold_tuples() -> None:
    with pytest.raises(DecodingError):
        decode(encode_state((1, 2)))


# -- keys ------------------------------------------------------------------------------------------------------


def test_one_as_int_float_bool_text_and_bytes_are_different_keys() -> None:
    keys = [1, 1.0, True, "1", b"1", None, [1]]
    assert len({encode_key(key) for key in keys}) == len(keys)


def test_equal_keys_have_one_encoding() -> None:
    assert encode_key(("AA", (1, 2.0))) == encode_key(["AA", [1, 2.0]])
    assert encode_key(-0.0) == encode_key(0.0)
    assert encode_key((1, -0.0)) == encode_key((1, 0.0))
    assert encode_key(math.nan) == encode_key(-math.nan)
    assert encode_key(datetime(2013, 1, 1, 5, tzinfo=UTC)) == encode_key(
        datetime(2013, 1, 1, 6, tzinfo=timezone(timedelta(hours=1)))
    )


@settings(deadline=None)
@given(
    INTEGERS | st.text() | st.binary() | st.booleans() | st.none() | st.floats(allow_nan=False).map(lambda x: x + 0.0)
)
def test_keys_come_back(key: Any) -> None:
    assert same(decode_key(encode_key(key)), key)


@pytest.mark.parametrize("key", [{"a": 1}, [1, {"a": 1}], {1}, bytearray(b"a"), Colour.RED, Pair(1, 2), object()])
def test_keys_that_could_change_or_would_lose_their_type_are_refused(key: Any) -> None:
    with pytest.raises(EncodingError, match=r"can't encode \w+ at key"):
        encode_key(key)


def test_a_key_out_of_range_is_refused() -> None:
    with pytest.raises(EncodingError, match="64 bits"):
        encode_key(2**64)
