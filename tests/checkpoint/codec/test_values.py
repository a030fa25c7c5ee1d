from __future__ import annotations

import io
import math
import re
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.codec import (
    MAX_DEPTH,
    DecodingError,
    EncodingError,
    UnknownTimeZone,
    check,
    copied,
    decode,
    decode_key,
    encode,
    encode_all,
    encode_around,
    encode_key,
    extensions,
)
from checkpoint.codec.values import MAX_EXTENSIONS, _encode_step_by_step
from checkpoint.row_format import row_format
from tests.support.edge_values import Colour, Level, Name
from tests.support.values import EDGES, HASHABLE, KEYS, LARGE, VALUES, same

# -- what is carried ---------------------------------------------------------------------------------------------


@given(st.one_of(VALUES, st.dictionaries(KEYS, VALUES), st.dictionaries(st.integers(), st.lists(VALUES, max_size=3))))
def test_a_value_has_one_encoding_however_it_is_made(value: Any) -> None:
    assert encode(value) == encode_around(value)


@pytest.mark.parametrize("value", [{1: {2: memoryview(b"x")}}, {1: [{2: {object(): 3}}]}])
def test_behind_keys_other_than_str_nothing_is_taken_for_something_else(value: Any) -> None:
    with pytest.raises(EncodingError, match="can't encode"):
        encode(value)


def test_a_dict_with_such_keys_that_holds_itself_is_refused() -> None:
    value: dict[int, Any] = {1: []}
    value[1] += [value] * 50
    with pytest.raises(EncodingError, match="contains itself"):
        encode(value)


def through_a_channel(value: Any) -> Any:
    edge_format = row_format(carries_keys=False)
    builder = edge_format.builder()
    for each in (None, value, 1):
        builder.append(encode(each), None)
    return edge_format.rows(edge_format.from_frame(edge_format.to_frame(builder.seal()))).values[1]


@settings(deadline=None, max_examples=300)
@given(VALUES)
def test_whatever_is_accepted_comes_back_with_its_types(value: Any) -> None:
    check(value)
    assert same(decode(encode(value)), value)
    assert same(copied(value), value)
    assert same(through_a_channel(value), value)


@pytest.mark.parametrize("value", EDGES + LARGE, ids=lambda value: repr(value)[:60])
def test_edges_come_back_as_values_in_containers_and_as_keys_of_dicts(value: Any) -> None:
    inside: list[Any] = [value, [value], (value,), {"a": value}, {1: value}, {"a": {"b": [1, (2, value)]}}, {(): value}]
    if type(value) is not bytearray and not (type(value) is Decimal and value.is_snan()):
        inside += [
            {value: 1},
            {(value, 1): 2},
            {(1, (value,)): [2]},
            {value},
            frozenset({(value, 1)}),
            {"a": {value: 1}},
        ]
    for each in inside:
        assert same(decode(encode(each)), each), each
        assert same(through_a_channel(each), each), each


def test_datetimes_keep_their_clock_and_so_their_date() -> None:
    late = datetime(2013, 1, 1, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    assert decode(encode(late)).date() == date(2013, 1, 1)
    assert decode(encode(datetime.now(UTC))).tzinfo is UTC


@settings(deadline=None)
@given(st.sets(HASHABLE, max_size=6))
def test_equal_sets_have_the_same_bytes(members: set[Any]) -> None:
    grown: set[Any] = set()
    for member in sorted(members, key=repr):
        grown.add(member)
    shrunk = {*map(str, range(1000)), *members}
    shrunk.difference_update(shrunk - members)
    assert encode(grown) == encode(members) == encode(shrunk)


@settings(deadline=None)
@given(VALUES)
def test_what_was_read_is_encoded_as_before(value: Any) -> None:
    assert encode(decode(encode(value))) == encode(value)


MAP_KEYS = st.integers() | st.booleans() | st.none() | st.text(max_size=2) | st.floats() | st.just((1, "a"))
OTHER_KEYS = st.sampled_from([Colour.RED, Level.HIGH, Name.A, ((1,),), frozenset(), date.min, UUID(int=1), Decimal(1)])


@settings(deadline=None)
@given(
    st.recursive(
        VALUES | st.sampled_from([Colour.RED, {Name.A}, (Level.HIGH,), memoryview(b"x")]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MAP_KEYS | OTHER_KEYS, inner, max_size=3),
    )
)
def test_each_way_of_encoding_gives_the_same_bytes_and_refuses_the_same(value: Any) -> None:
    try:
        expected = _encode_step_by_step(value)
    except EncodingError as error:
        with pytest.raises(EncodingError, match=re.escape(str(error))):
            encode(value)
    else:
        assert encode(value) == expected


@given(st.lists(VALUES | st.integers() | st.text() | st.floats() | st.binary() | st.none(), max_size=6))
def test_many_values_are_encoded_like_each_of_them(values: list[Any]) -> None:
    assert encode_all(values) == [encode(value) for value in values]


@pytest.mark.parametrize(
    "value",
    [
        (1, (2, 3)),
        (1, (2**70, 54)),
        (-(2**63) - 1, (), ("a", 2**64)),
        ((1, (2, (3,))), 4),
        (1, (Decimal(1), 2)),
        {60_000: (5, (2**64 - 1, 2**64)), 120_000: ()},
    ],
)
def test_tuples_in_tuples_have_the_same_bytes_either_way(value: Any) -> None:
    assert encode(value) == _encode_step_by_step(value)
    assert repr(decode(encode(value))) == repr(value)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 2**16 - 1, 2**16])
def test_containers_of_any_length_come_back(n: int) -> None:
    numbers = list(range(n))
    for value in (
        numbers,
        tuple(numbers),
        set(numbers),
        dict.fromkeys(numbers),
        [*numbers, (1, (2,))],
        {**dict.fromkeys(numbers), "a": (1, [2])},
        {**dict.fromkeys(numbers), date.min: 1},
    ):
        assert same(decode(encode(value)), value) if n < 20 else decode(encode(value)) == value


@settings(deadline=None)
@given(VALUES)
def test_a_copy_shares_nothing_that_can_be_changed(value: Any) -> None:
    def changeable(item: Any) -> set[int]:
        contents = [*item, *item.values()] if type(item) is dict else item
        own = {id(item)} if type(item) in (list, dict, set, bytearray) else set()
        inside = type(item) in (list, dict, set, tuple, frozenset)
        return own.union(*map(changeable, contents)) if inside else own

    assert changeable(copied(value)).isdisjoint(changeable(value))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (bytes.fromhex("c7 06 01 92 01 a3 616263"), (1, "abc")),
        (bytes.fromhex("81 92 01 a1 61 c3"), {(1, "a"): True}),
        (bytes.fromhex("d6 ff 00000005"), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
    ],
)
def test_what_earlier_versions_wrote_is_read(data: bytes, value: Any) -> None:
    assert same(decode(data), value)


def test_numbers_of_extension_types_stay() -> None:
    numbers = {name: code for name, code in vars(extensions.Extension).items() if name.isupper()}
    assert numbers == {
        "TUPLE": 1,
        "DICT": 2,
        "SET": 3,
        "FROZENSET": 4,
        "BYTEARRAY": 5,
        "INT": 6,
        "STR": 7,
        "DATETIME": 8,
        "DATE": 9,
        "TIME": 10,
        "TIMEDELTA": 11,
        "DECIMAL": 12,
        "UUID": 13,
        "RECORD": 14,
    }


# -- what is refused ---------------------------------------------------------------------------------------------


class Text(str):
    pass


class Elsewhere(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(hours=1)


REFUSED = [
    (Text("a"), "Text", "str(x)"),
    (Counter("aab"), "Counter", "dict(x)"),
    (defaultdict(int), "defaultdict", "dict(x)"),
    (OrderedDict(a=1), "OrderedDict", "dict(x)"),
    (deque([1]), "deque", "plain values"),
    (memoryview(b"a"), "memoryview", "bytes(x)"),
    (np.float64(1.5), "float64", ".item()"),
    (np.int64(1), "int64", ".item()"),
    (np.zeros(2), "ndarray", ".tolist()"),
    (pd.Timestamp(2020, 1, 1), "Timestamp", "to_pydatetime"),
    (datetime(2020, 1, 1, tzinfo=Elsewhere()), "datetime", "zoneinfo.ZoneInfo"),
    (time(1, tzinfo=Elsewhere()), "time", "zoneinfo.ZoneInfo"),
    (1j, "complex", "plain values"),
    (Fraction(1, 2), "Fraction", "plain values"),
    (range(3), "range", "plain values"),
    (object(), "object", "plain values"),
    ((x for x in [1]), "generator", "yet to run: use list(x), or flat_map"),
]


@pytest.mark.parametrize(("item", "name", "advice"), REFUSED, ids=lambda value: None if type(value) is str else "")
def test_what_would_change_on_the_way_is_refused_with_its_type_its_place_and_advice(
    item: Any, name: str, advice: str
) -> None:
    for pack in (encode, check, copied):
        for keys in ({}, {1: 2}, {date.min: 1}):
            with pytest.raises(EncodingError) as caught:
                pack({"ok": [1, "a"], "items": [0, {"x": (1, item), **keys}]})  # type: ignore[operator]
            message = str(caught.value)
            assert f"can't encode {name} at value['items'][1]['x'][1]:" in message
            assert advice in message


@pytest.mark.parametrize("item", [item for item, _, _ in REFUSED if getattr(type(item), "__hash__", None)])
def test_what_would_change_as_the_key_of_a_dict_or_as_a_member_of_a_set_is_refused(item: Any) -> None:
    try:
        hash(item)
    except TypeError:
        return
    for value in ({item: 1}, {(item, 1): 1}, {((item,), 1): 1}, {item}, {"a": [{item: 1}]}):
        with pytest.raises(EncodingError, match=f"can't encode {type(item).__qualname__} at .*value"):
            encode(value)


def test_a_time_zone_from_a_file_is_refused() -> None:
    for key in (None, "Europe/Berlin", "mine", "Europe"):
        with pytest.raises(EncodingError, match="read from a file"):
            encode(datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo.from_file(io.BytesIO(TZIF), key=key)))


TZIF = (
    b"TZif" + bytes(16) + bytes.fromhex("00000000 00000000 00000000 00000000 00000001 00000004") + bytes(6) + b"UTC\0"
)


def test_a_time_zone_that_this_machine_lacks_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode([{"at": datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))}])

    def unknown(key: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(key)

    monkeypatch.setattr(extensions, "ZoneInfo", unknown)
    with pytest.raises(UnknownTimeZone, match=r"'Europe/Berlin'.*tzdata"):
        decode(data)


def test_an_encoding_error_is_a_type_error_and_names_a_dict_key_that_is_at_fault() -> None:
    with pytest.raises(TypeError, match=r"complex at key 1j of value\['a'\]"):
        encode({"a": {1j: 2}})


def test_a_value_that_contains_itself_or_nests_too_deep_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    itself: dict[int, Any] = {}
    itself[1] = [itself]
    for value in (endless, itself):
        with pytest.raises(EncodingError, match="contains itself"):
            encode(value)
    for wrap in (lambda value: [value], lambda value: {1: value}):
        deep: Any = 1
        for _ in range(MAX_DEPTH):
            deep = wrap(deep)
        assert decode(encode(deep)) == deep
        with pytest.raises(EncodingError, match=f"deeper than {MAX_DEPTH} levels"):
            encode(wrap(deep))


@pytest.mark.parametrize(
    "wrap", [lambda v: (v,), lambda v: frozenset({v}), lambda v: {(1, frozenset({1})): v}, lambda v: (1, [v])]
)
def test_nesting_that_is_accepted_is_read_and_the_rest_is_refused(wrap: Any) -> None:
    value: Any = 1
    for _ in range(MAX_EXTENSIONS // 2):
        value = wrap(value)
        assert same(decode(encode(value)), value)
    for _ in range(MAX_EXTENSIONS // 2 + 1):
        value = wrap(value)
    with pytest.raises(EncodingError, match="nests deeper than"):
        encode(value)
    mixed: Any = (1,)
    for _ in range(MAX_DEPTH - 1):
        mixed = [mixed, 2**70]
    assert same(decode(encode(mixed)), mixed)
    with pytest.raises(EncodingError, match="nests deeper than"):
        encode({1: mixed})


@pytest.mark.parametrize("data", [b"", b"\xc1", encode([1, 2])[:-1], encode("abc")[:-1], b"\xd4\x63a", b"\xd4\x08a"])
def test_damaged_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(DecodingError, match="damaged"):
        decode(data)


# -- keys ------------------------------------------------------------------------------------------------------


def test_one_as_int_float_bool_text_and_bytes_are_different_keys() -> None:
    keys = [1, 1.0, True, "1", b"1", None, (1,), Decimal(1), date.min, datetime.min]
    assert len({encode_key(key) for key in keys}) == len(keys)


def test_equal_keys_have_one_encoding() -> None:
    assert encode_key(-0.0) == encode_key(0.0)
    assert encode_key((1, -0.0)) == encode_key((1, 0.0))
    assert encode_key(math.nan) == encode_key(-math.nan)
    assert encode_key(Decimal("1.50")) == encode_key(Decimal("1.5"))
    assert encode_key(Decimal("-0.00")) == encode_key(Decimal(0))
    assert encode_key(datetime(2013, 1, 1, fold=1)) == encode_key(datetime(2013, 1, 1))
    assert encode_key(datetime(2013, 1, 1, 5, tzinfo=UTC)) == encode_key(
        datetime(2013, 1, 1, 6, tzinfo=timezone(timedelta(hours=1)))
    )


def equal(a: Any, b: Any) -> bool:
    """Whether two values have one type and are equal as Python compares; any NaN equals any other."""
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(map(equal, a, b))
    if type(a) is datetime and a.tzinfo is not None and b.tzinfo is not None:
        return bool(a.astimezone(UTC) == b.astimezone(UTC))  # else what a fold may change equals nothing
    return bool(a == b) or (a != a and b != b)


@settings(deadline=None, max_examples=300)
@given(KEYS)
def test_keys_that_are_accepted_come_back_and_are_the_same_key_again(key: Any) -> None:
    data = encode_key(key)
    assert equal(decode_key(data), key)
    assert encode_key(decode_key(data)) == data


@settings(deadline=None, max_examples=300)
@given(KEYS, KEYS)
def test_other_keys_have_other_bytes(one: Any, other: Any) -> None:
    assert (encode_key(one) == encode_key(other)) == equal(decode_key(encode_key(one)), other)


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("a", "a161"),
        (1, "01"),
        (True, "c3"),
        (None, "c0"),
        (-0.0, "cb0000000000000000"),
        (math.nan, "cb7ff8000000000000"),
        (b"x", "c40178"),
        (("AA", 5), "92a2414105"),
        (("AA", (1.5, None)), "92a2414192cb3ff8000000000000c0"),
        (datetime(2013, 1, 1, 5, tzinfo=timezone(timedelta(hours=-5))), "d6ff50e2b3a0"),
        (datetime(2013, 1, 1, 5, 0, 0, 600_000, tzinfo=UTC), "d7ff8f0d180050e26d50"),
    ],
)
def test_the_encoding_of_keys_stays_since_it_decides_where_state_is(key: Any, data: str) -> None:
    assert encode_key(key).hex() == data


@pytest.mark.parametrize("key", [{"a": 1}, [1], (1, {"a": 1}), (1, [2]), {1}, bytearray(b"a"), Colour.RED, object()])
def test_keys_that_could_change_or_would_lose_their_type_are_refused(key: Any) -> None:
    with pytest.raises(EncodingError, match=r"can't encode \w+ at key"):
        encode_key(key)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "1 to 9999"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "1 to 9999"),
        (time(1, tzinfo=UTC), "time zone"),
        (Decimal("sNaN"), "signalling"),
    ],
)
def test_keys_that_could_not_be_read_are_refused(key: Any, reason: str) -> None:
    for each in (key, (1, key), (1, (key,))):
        with pytest.raises(EncodingError, match=reason):
            encode_key(each)


def test_what_no_value_can_hold_is_named_as_deep_as_values_may_nest() -> None:
    def nested(levels: int) -> Any:
        value: Any = object()
        for _ in range(levels):
            value = (value,)
        return value

    with pytest.raises(EncodingError, match=r"can't encode object at value(\[0\])+: "):
        encode(nested(MAX_EXTENSIONS))
    with pytest.raises(EncodingError, match=rf"nests deeper than {MAX_EXTENSIONS} levels of tuples and sets"):
        encode(nested(MAX_EXTENSIONS + 1))
