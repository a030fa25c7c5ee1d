"""JSON objects as columns: what fits a schema, what doesn't, and that nothing is changed on the way."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources import ArrowJson, KafkaSource
from sources.files import parquet_rows


def parse(schema: pa.Schema, *objects: Any) -> pa.RecordBatch:
    raw = [one if isinstance(one, bytes) else orjson.dumps(one) for one in objects]
    return ArrowJson(schema).parser()(raw)


def column(kind: pa.DataType, *values: Any) -> list[Any]:
    batch = parse(pa.schema([("x", kind)]), *({"x": value} for value in values))
    assert batch.schema.types == [kind]
    found: list[Any] = batch.column(0).to_pylist()
    return found


STOP = pa.struct([("city", pa.string()), ("day", pa.date32())])


@pytest.mark.parametrize(
    ("kind", "sent", "expected"),
    [
        (pa.bool_(), True, True),
        (pa.int8(), -128, -128),
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.float64(), 3, 3.0),
        (pa.float32(), 0.5, 0.5),
        (pa.string(), "ä", "ä"),
        (pa.large_string(), "ä", "ä"),
        (pa.binary(), "ä", b"\xc3\xa4"),
        (pa.dictionary(pa.int32(), pa.string()), "a", "a"),
        (pa.decimal128(10, 2), "12.50", Decimal("12.50")),
        (pa.decimal128(10, 2), 12.5, Decimal("12.50")),
        (pa.decimal128(10, 2), 12, Decimal("12.00")),
        (pa.date32(), "2026-01-02", date(2026, 1, 2)),
        (pa.date32(), 1, date(1970, 1, 2)),
        (pa.time64("us"), "03:04:05.5", time(3, 4, 5, 500_000)),
        (pa.timestamp("us", "UTC"), "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (pa.timestamp("ms", "UTC"), "2026-01-02T03:04:05+01:00", datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)),
        (pa.timestamp("ms"), "2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5)),
        (pa.timestamp("s"), "9999-12-31T23:59:59", datetime(9999, 12, 31, 23, 59, 59)),
        (pa.timestamp("s", "UTC"), -62135596800, datetime(1, 1, 1, tzinfo=UTC)),
        (pa.date32(), 2932896, date(9999, 12, 31)),
        (pa.date64(), 86_400_000, date(1970, 1, 2)),
        (pa.time32("s"), 86_399, time(23, 59, 59)),
        (pa.float32(), -3.0e38, pytest.approx(-3.0e38)),
        (pa.timestamp("ms", "UTC"), 1500, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        (pa.list_(pa.int32()), [1, None, 2], [1, None, 2]),
        (pa.list_(pa.list_(pa.string())), [["a"], [], None], [["a"], [], None]),
        (
            pa.list_(STOP),
            [{"city": "Rom", "day": "2026-01-02"}, {}],
            [{"city": "Rom", "day": date(2026, 1, 2)}, {"city": None, "day": None}],
        ),
        (pa.map_(pa.string(), pa.date32()), {"a": "2026-01-02", "b": None}, [("a", date(2026, 1, 2)), ("b", None)]),
        (STOP, {"city": "Rom", "other": 1}, {"city": "Rom", "day": None}),
    ],
    ids=str,
)
def test_values_get_the_type_of_the_schema(kind: pa.DataType, sent: Any, expected: Any) -> None:
    assert column(kind, sent, None, sent) == [expected, None, expected]


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (pa.bool_(), 1),
        (pa.int64(), 1.5),
        (pa.int64(), 1.0),
        (pa.int64(), True),
        (pa.int64(), "1"),
        (pa.int8(), 128),
        (pa.int64(), 2**63),
        (pa.float64(), True),
        (pa.float64(), 2**60 + 1),
        (pa.string(), 1),
        (pa.string(), ["a"]),
        (pa.decimal128(10, 2), "1.234"),
        (pa.decimal128(4, 2), "1000"),
        (pa.decimal128(10, 2), "x"),
        (pa.decimal128(10, 2), " 1"),
        (pa.decimal128(10, 2), "1_0"),
        (pa.decimal128(10, 2), "NaN"),
        (pa.decimal128(38, 10), "3.4e39"),  # of which a cast makes -3592082687034649484470368169.5103057920
        (pa.decimal128(38, 10), 3.4e39),
        (pa.decimal128(38, 0), str(34 * 10**38)),
        (pa.decimal256(76, 0), "34e76"),
        (pa.decimal128(38, 0), "1e999999999"),
        (pa.date32(), "2026-02-30"),
        (pa.date32(), 1.5),
        (pa.timestamp("us", "UTC"), "2026-01-02T03:04:05"),
        (pa.timestamp("us"), "2026-01-02T03:04:05Z"),
        (pa.timestamp("s"), "2026-01-02T03:04:05.5"),
        (pa.timestamp("ms", "UTC"), 1_700_000_000_000_000),
        (pa.timestamp("s", "UTC"), 2**62),
        (pa.timestamp("us"), -(2**63)),
        (pa.timestamp("ns"), -(2**63)),
        (pa.timestamp("ms"), "0000-12-31T00:00:00"),
        (pa.timestamp("s", "Europe/Berlin"), "9999-12-31T23:30:00Z"),
        (pa.date32(), 2_932_897),
        (pa.date32(), "0000-12-31"),
        (pa.date64(), 86_400_000 * 2_932_897),
        (pa.date64(), 1),
        (pa.time32("s"), 86_400),
        (pa.time32("ms"), -1),
        (pa.time64("us"), 2**62),
        (pa.time64("us"), "3 o'clock"),
        (pa.time64("us"), "03:04:05+01:00"),
        (pa.time64("us"), "03:04:05.1234567"),
        (pa.float32(), 1e300),
        (pa.float32(), -1e300),
        (pa.list_(pa.timestamp("ms")), [0, 2**62]),
        (pa.struct([("at", pa.date32())]), {"at": 2**31 - 1}),
        (pa.map_(pa.string(), pa.time32("s")), {"a": 86_400}),
        (pa.list_(pa.string()), "abc"),
        (pa.list_(pa.int32()), [1, "2"]),
        (pa.list_(pa.int32()), {"a": 1}),
        (STOP, [1]),
        (STOP, {"day": "x"}),
        (pa.map_(pa.string(), pa.int32()), [["a", 1]]),
        (pa.map_(pa.string(), pa.int32()), {"a": "1"}),
    ],
    ids=str,
)
def test_values_of_another_type_are_refused_never_bent(kind: pa.DataType, sent: Any) -> None:
    with pytest.raises(ValueError, match=r"'x"):
        column(kind, sent)


def python_value(number: int, kind: pa.DataType) -> Any:
    array = pa.array([number], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    array.validate(full=True)
    return array[0].as_py()


@given(
    kind=st.sampled_from(
        [
            *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us") for zone in (None, "UTC", "America/New_York")),
            *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us")),
        ]
    ),
    number=st.integers(-(2**63), 2**63 - 1)
    | st.integers(-(2**31), 2**31 - 1)
    | st.builds(int.__mul__, st.sampled_from([-62135596800, 253402300800]), st.sampled_from([1, 1000, 10**6])).flatmap(
        lambda edge: st.integers(edge - 5, edge + 5)
    ),
)
def test_numbers_are_refused_or_what_python_has_for_them(kind: pa.DataType, number: int) -> None:
    try:
        found = parse(pa.schema([("x", kind)]), {"x": number}, {})
    except ValueError:
        with pytest.raises((OverflowError, pa.ArrowException)):
            python_value(number, kind)
    else:
        assert found.to_pylist() == [{"x": python_value(number, kind)}, {"x": None}]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"[1]",
        b"null",
        b"5",
        b'"x"',
        b"{",
        b'{"x":1',
        b'{"x":1}{"x":2}',
        b'{"x":1} x',
        b'{"x":"\xff"}',
        b'{"x":NaN}',
        b"\x00",
    ],
)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # orjson's own messages
        parse(pa.schema([("x", pa.string())]), raw)


def test_fields_beyond_the_schema_are_left_out_and_missing_ones_are_null() -> None:
    schema = pa.schema([("b", pa.int64()), ("a", pa.string())])
    assert parse(schema, {"a": "x", "c": 1}, {"b": 2}, {}).to_pylist() == [
        {"b": None, "a": "x"},
        {"b": 2, "a": None},
        {"b": None, "a": None},
    ]


@pytest.mark.parametrize("kind", [pa.int64(), pa.struct([pa.field("y", pa.int64(), nullable=False)])], ids=str)
@pytest.mark.parametrize("one", [{}, {"x": None}, {"x": {}}, {"x": {"y": None}}])
def test_what_may_not_be_null_has_to_be_there(kind: pa.DataType, one: Any) -> None:
    with pytest.raises(ValueError, match=r"'x|'y"):
        parse(pa.schema([pa.field("x", kind, nullable=False)]), one)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "i": st.none() | st.integers(-(2**63), 2**63 - 1),
                "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "s": st.none() | st.text(),
                "l": st.none() | st.lists(st.none() | st.lists(st.integers(0, 9))),
                "o": st.none() | st.fixed_dictionaries({}, optional={"b": st.none() | st.booleans()}),
            },
        ),
        min_size=1,
        max_size=8,
    )
)
def test_rows_are_what_was_sent(objects: list[dict[str, Any]]) -> None:
    schema = pa.schema(
        [
            ("i", pa.int64()),
            ("f", pa.float64()),
            ("s", pa.string()),
            ("l", pa.list_(pa.list_(pa.int64()))),
            ("o", pa.struct([("b", pa.bool_())])),
        ]
    )
    expected = [{name: one.get(name) for name in schema.names} for one in objects]
    for one in expected:
        one["o"] = None if one["o"] is None else {"b": one["o"].get("b")}
    batch = parse(schema, *objects)
    batch.validate(full=True)
    assert batch.to_pylist() == expected


def test_the_definition_travels() -> None:
    schema = pa.schema([pa.field("x", pa.timestamp("us", "UTC"), nullable=False)])
    assert pickle.loads(pickle.dumps(ArrowJson(schema))) == ArrowJson(schema)


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        ({"x": "int"}, "must be a pyarrow.Schema"),
        (pa.schema([]), "at least one field"),
        (pa.schema([("x", pa.int8()), ("x", pa.int8())]), "each name once"),
        (pa.schema([("x", pa.list_(pa.duration("s")))]), r"'x\[\]'.*duration"),
        (pa.schema([("x", pa.timestamp("s", "Mars/Utopia"))]), "'x'.*time zone.*Mars/Utopia"),
    ],
)
def test_schemas_that_json_is_not_turned_into_are_refused(schema: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ArrowJson(schema)


def test_keys_are_no_columns() -> None:
    with pytest.raises(ValueError, match="key_format can't be ArrowJson"):
        KafkaSource("localhost:1", topics=["t"], key_format=ArrowJson(pa.schema([("x", pa.int8())])))


@pytest.mark.parametrize("around", [b'{"v":%s}', b'{"f": 0.1000000000000000055, "v" : %s }', b'{"s":"\\u003a","v":%s}'])
def test_decimals_are_those_of_the_text_however_long(around: bytes) -> None:
    parse = ArrowJson(pa.schema([("v", pa.decimal128(38, 20)), ("f", pa.float64())])).parser()
    for text in ("0.1", "1.10000000000000000001", "123456789012345678.12345678901234567890", "1e-20", "12"):
        (row,) = parse([around % text.encode()]).to_pylist()
        assert row["v"] == Decimal(text)
        assert row["f"] in (None, 0.1)
    for text in ("0e-999", "0.0", "0E-99999999999999999999", "-0.00000000000000000000"):
        assert parse([around % text.encode()])["v"].to_pylist()[0] == 0
    tiny = ("1e-400", "-1E-999", "1e-99999999999999999999", "1.2345678901234567e-99999999999999999999", "4.9e-320")
    for text in ("1.000000000000000000001", "1e-21", "true", "1e19", f"{34 * 10**38}", "3.4e39", *tiny):
        with pytest.raises((ValueError, pa.ArrowException)):
            parse([around % text.encode()])


@pytest.mark.parametrize("text", ["3.4e39", "3400000000000000000000000000000000000000", "-1e29", "1e77"])
def test_a_file_of_text_gives_no_other_decimals(text: str) -> None:
    with pytest.raises(pa.ArrowException):
        parquet_rows.cast(pa.array(["1.5", None, text]), pa.decimal128(38, 10), False)
    assert parquet_rows.cast(pa.array(["1.5", None, "2E+1"]), pa.decimal128(38, 10), False).to_pylist() == [
        Decimal("1.5"),
        None,
        Decimal(20),
    ]
