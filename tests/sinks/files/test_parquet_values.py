"""Parquet columns: what is accepted is read back equal, type and all, and the rest is refused with path and value."""

from __future__ import annotations

import io
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from edge_values import EVERYTHING, anything, same
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sinks import FileSink
from sinks.files.encoding import ParquetRows
from sinks.files.errors import RecordRefused

AT = datetime(2026, 1, 2, 3, 4, 5, 678901)
POINT = pa.struct([("x", pa.int64()), pa.field("y", pa.string(), nullable=False)])
DEEP = pa.list_(pa.struct([("p", POINT), ("m", pa.map_(pa.string(), pa.list_(pa.int32())))]))
PAIR = pa.list_(pa.float64(), 2)
"""Never null, it is refused within a struct that may be: pyarrow writes that, but can't read it."""
TYPES = [
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.large_binary(), pa.binary(3), pa.decimal128(10, 2), pa.decimal256(50, 2), pa.date32(), pa.date64(),
    pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ms"),
    pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "Asia/Kathmandu"),
    pa.duration("s"), pa.duration("us"), pa.duration("ns"), pa.list_(pa.int64()), pa.large_list(pa.string()),
    PAIR, POINT, DEEP, pa.map_(pa.string(), pa.int64()), pa.map_(pa.int32(), POINT),
    pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64()), pa.uuid(),
]  # fmt: skip


def back(kind: pa.DataType, *values: Any, round_floats: bool = False) -> list[Any]:
    """What a reader of the file gets."""
    rows = ParquetRows(pa.schema([("v", kind)]), (), round_floats)([{"v": value} for value in values])
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([rows]), file)
    column = pq.read_table(io.BytesIO(file.getvalue()))["v"]
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz))  # pandas would make its own of them
    if pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"))
    if pa.types.is_time(kind) and kind.unit == "ns":
        column = column.cast(pa.time64("us"))
    return list(column.to_pylist())


def equal(kind: pa.DataType, value: Any, found: Any) -> bool:
    """As far as the type can tell: a column of floats has no ints, one of decimals one scale, a map is a list of pairs,
    a column of timestamps one time zone, and what is missing in a struct is null."""
    types = pa.types
    if value is None or found is None:
        return value is found
    if types.is_floating(kind) and type(value) is int:
        return type(found) is float and found == value
    if types.is_decimal(kind):
        return type(found) is Decimal and found == value
    if types.is_timestamp(kind):
        return type(found) is datetime and found == value and (found.tzinfo is None) == (value.tzinfo is None)
    if types.is_map(kind):
        pairs = list(value.items()) if type(value) is dict else value
        return len(pairs) == len(found) and all(
            equal(kind.key_type, a, c) and equal(kind.item_type, b, d)
            for (a, b), (c, d) in zip(pairs, found, strict=True)
        )
    if types.is_struct(kind):
        return value.keys() <= found.keys() and all(
            equal(one.type, value.get(one.name), found[one.name]) for one in kind.fields
        )
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return len(value) == len(found) and all(
            equal(kind.value_type, one, other) for one, other in zip(value, found, strict=True)
        )
    if types.is_dictionary(kind):
        return equal(kind.value_type, value, found)
    return same(found, value)


MORE = [
    AT, AT.replace(microsecond=0), AT.replace(microsecond=678000), AT.replace(tzinfo=UTC),
    AT.replace(microsecond=0, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
    date.min, date.max, time(3, 4, 5), time(23, 59, 59, 999000), time.max, time(1, tzinfo=UTC), timedelta(days=-1),
    timedelta.max, timedelta(milliseconds=1), Decimal("12.5"), Decimal("12.505"), Decimal("-99999999.99"),
    Decimal("100000000"), Decimal("1E+5"), Decimal("-Infinity"), 90_000, "now", "1", "2026-01-02", ["a"], [1, 2.0],
    [1.5, 2.5], [0.1, None], {"x": 1, "y": "a"}, {"x": 1}, {"y": "a", "z": 1},
    {"x": "1", "y": "a"}, {"x": 1.0, "y": "b"},
    [{"p": {"y": "a"}, "m": {"k": [1, None]}}], [{"p": {"y": "a", "z": 2}}], [{"m": {"k": [2**31]}}], [{"q": 1}],
    [("a", 1)], [("a", 1, 2)], [["a", 1]], [("a", "1")], {"a": 1.5}, {1: {"y": "a"}}, b"xyz", 2048.0, 2049, 65504.0,
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_value_is_read_back_equal_or_refused_with_its_field(kind: pa.DataType) -> None:
    accepted = 0
    for value in [*EVERYTHING, *MORE]:
        try:
            found = back(kind, None, value, None)
        except RecordRefused as error:
            assert "'v" in str(error)  # noqa: PT017  # most are refused
            continue
        accepted += value is not None
        assert equal(kind, value, found[1]), (value, found[1])
        assert found[0] is found[2] is None
    assert accepted or pa.types.is_null(kind)


@settings(max_examples=100)
@example(kind=pa.float32(), values=[0.1])
@given(kind=st.sampled_from(TYPES), values=st.lists(anything | st.sampled_from(MORE), min_size=1, max_size=4))
def test_any_values_are_read_back_equal_or_refused(kind: pa.DataType, values: list[Any]) -> None:
    try:
        found = back(kind, *values)
    except RecordRefused:
        return
    assert all(map(equal, [kind] * len(values), values, found)), (values, found)


@pytest.mark.parametrize("kind", [one for one in TYPES if one not in (pa.null(), PAIR, pa.string_view())], ids=str)
def test_structs_whose_fields_are_never_null_may_be_null_themselves(kind: pa.DataType) -> None:
    for struct in (pa.struct([pa.field("v", kind, nullable=False)]), pa.list_(pa.field("i", POINT, nullable=False))):
        assert back(struct, None, None) == [None, None]


def named(field: str, kind: pa.DataType) -> pa.Schema:
    return pa.schema([(field, kind)])


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (pa.int64(), 1.5, r"field 'v' has the float 1.5 where the schema says int64"),
        (pa.int64(), True, r"field 'v' has the bool True"),
        (pa.int32(), 2**31, r"field 'v' is 2147483648, which is no int32"),
        (pa.float32(), 1e300, r"field 'v' is 1e\+300, which is too large for float"),
        (pa.float32(), 0.1, r"field 'v' is 0.1, which float doesn't hold exactly.*round_floats=True"),
        (pa.float64(), 2**53 + 1, r"field 'v' is 9007199254740993"),
        (pa.list_(pa.string()), "abc", r"field 'v' has the str 'abc' where the schema says list"),
        (pa.list_(pa.string()), ("a",), r"field 'v' has the tuple"),
        (pa.list_(POINT), [{"y": "a", "z": 1}], r"no field 'z' in 'v\[\]'"),
        (pa.list_(POINT), [{"x": 1}], r"field 'v\[\].y' must not be null"),
        (pa.time32("s"), 90_000, r"field 'v' has the int 90000"),
        (pa.time32("ms"), time(1, microsecond=1), r"field 'v' .*would lose data"),
        (pa.timestamp("ms"), AT, r"field 'v' .*would lose data"),
        (pa.timestamp("us", "UTC"), AT, r"which has no offset, and timestamp\[us, tz=UTC\] needs one"),
        (pa.timestamp("us"), AT.replace(tzinfo=UTC), r"whose offset timestamp\[us\] loses"),
        (pa.date32(), AT, r"field 'v' has the datetime"),
        (pa.decimal128(10, 2), Decimal("1.505"), r"field 'v' is Decimal\('1.505'\)"),
        (pa.decimal128(10, 2), 1.5, r"field 'v' has the float 1.5"),
        (pa.string(), b"a", r"field 'v' has the bytes"),
        (pa.string(), 1, r"field 'v' has the int 1"),
        (pa.binary(), "a", r"field 'v' has the str 'a'"),
        (pa.binary(3), b"ab", r"field 'v' is b'ab'"),
        (pa.map_(pa.string(), pa.int64()), {1: 1}, r"field 'v\{\}' has the int 1"),
        (pa.uuid(), UUID(int=1).bytes, r"field 'v' has the bytes"),
    ],
)
def test_what_would_be_bent_is_refused_with_the_reason(kind: pa.DataType, value: Any, why: str) -> None:
    good = {"v": None}
    with pytest.raises(RecordRefused, match=why):
        ParquetRows(named("v", kind))([good, {"v": value}, good])


def test_narrow_floats_are_rounded_only_if_asked_for() -> None:
    assert back(pa.float32(), 0.1, None, 1e-50, math.nan, round_floats=True)[:3] == [0.10000000149011612, None, 0.0]
    assert back(pa.float32(), math.inf, 1.5) == [math.inf, 1.5]
    for round_floats in (False, True):
        with pytest.raises(RecordRefused, match="too large"):
            back(pa.float32(), 1.0, 1e39, round_floats=round_floats)
    with pytest.raises(ValueError, match="round_floats must be"):
        FileSink("/data", schema=named("v", pa.float32()), round_floats=1)  # type: ignore[arg-type]


def test_fields_that_are_in_folders_names_are_checked_by_the_schema_too() -> None:
    rows = ParquetRows(pa.schema([("id", pa.int64()), ("day", pa.date32())]), ["day", "other"])
    assert rows([{"id": 1, "day": date(2026, 1, 2), "other": "x"}]).to_pylist() == [{"id": 1}]
    with pytest.raises(RecordRefused, match="'day' has the str"):
        rows([{"id": 1, "day": "2026-01-02"}])


def test_a_schema_with_a_type_that_no_value_becomes_is_refused_at_once() -> None:
    kind = pa.dense_union([pa.field("a", pa.int64())])
    with pytest.raises(ValueError, match="'v' of the schema has the type dense_union"):
        FileSink("/data", schema=named("v", kind))


NEVER_NULL = pa.struct([pa.field("p", PAIR, nullable=False)])


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (pa.list_(pa.int64(), 0), "'v' of the schema has the type fixed_size_list<item: int64>.0., of lists without"),
        (pa.struct([]), "can't have the schema v: struct<>: .* no child field"),
        (pa.map_(pa.string(), pa.struct([])), "(?s)can't have the schema .* no child field"),
        (pa.decimal128(10, -2), "can't have the schema .* Scale must be"),
        (pa.struct([("s", pa.string_view())]), "a string_view in a struct, such as 'v.s'; make it a string"),
        (pa.list_(pa.struct([("b", pa.binary_view())])), r"a binary_view in a struct, such as 'v\[\].b'"),
        (NEVER_NULL, "can't read the field 'v.p' where a struct around it is null"),
        (pa.struct([pa.field("s", NEVER_NULL, nullable=False)]), "can't read the field 'v.s.p' where a struct"),
        (pa.list_(NEVER_NULL), r"can't read the field 'v\[\].p'"),
        (pa.map_(pa.string(), NEVER_NULL), "can't read the field 'v{}.p'"),
    ],
    ids=str,
)
def test_a_schema_that_pyarrow_would_not_write_or_not_read_is_refused_at_once(kind: pa.DataType, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FileSink("/data", schema=named("v", kind))


@pytest.mark.parametrize("offset", [timedelta(microseconds=1), timedelta(hours=-23, microseconds=-999_999)], ids=str)
def test_offsets_finer_than_a_second_keep_their_instant(offset: timedelta) -> None:
    value = AT.replace(tzinfo=timezone(offset))
    assert back(pa.timestamp("us", "UTC"), value) == [value]
    first = datetime.min.replace(tzinfo=timezone(timedelta(microseconds=1)))
    with pytest.raises(RecordRefused, match="outside of the years 1 to 9999"):
        back(pa.timestamp("us", "UTC"), first)
    with pytest.raises(RecordRefused, match="no timestamp"):
        back(pa.timestamp("s", "UTC"), value.replace(microsecond=0))
