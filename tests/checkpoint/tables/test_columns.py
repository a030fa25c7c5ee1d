"""Values as Arrow columns."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import decode, encode, encode_key
from checkpoint.tables.columns import Inferred, NotInColumn, column, encoded_column, field
from tests.support.values import EDGES, VALUES


def there_and_back(values: list[Any], *, with_bytes: bool = False) -> list[bytes]:
    inferred = Inferred()
    inferred.add(values)
    columns = [column(values, inferred.type, "value")]
    schema = [field("value", inferred.type)]
    if with_bytes:
        columns.append(pa.array(map(encode, values), pa.binary()))
        schema.append(pa.field("value_bytes", pa.binary()))
    found = encoded_column(pa.Table.from_arrays(columns, schema=pa.schema(schema)), "value")
    assert found is not None
    return found


@given(
    st.one_of(
        st.lists(VALUES, max_size=5),
        *(
            st.lists(one | st.none(), max_size=5)
            for one in (
                st.integers(),
                st.integers(-(2**63), 2**63 - 1),
                st.floats(),
                st.text(),
                st.binary(),
                st.booleans(),
                st.dates(),
                st.datetimes(),
                st.datetimes(timezones=st.just(UTC)),
            )
        ),
    )
)
def test_values_come_back_byte_for_byte(values: list[Any]) -> None:
    assert there_and_back(values) == [encode(value) for value in values]
    assert there_and_back(values, with_bytes=True) == [encode(value) for value in values]


@pytest.mark.parametrize("value", EDGES, ids=range(len(EDGES)))
def test_values_at_the_edges_come_back_from_a_column(value: Any) -> None:
    assert there_and_back([value, value]) == [encode(value)] * 2


@pytest.mark.parametrize(
    ("values", "type"),
    [
        ([1, None, -(2**63)], pa.int64()),
        ([1, 2**63], None),
        ([1, True], None),
        ([1.0, math.nan], pa.float64()),
        ([1, 1.0], None),
        (["a"], pa.string()),
        (["a", "\ud800"], None),
        ([b"a"], pa.binary()),
        ([date(2024, 1, 1)], pa.date32()),
        ([datetime(2024, 1, 1)], pa.timestamp("us")),
        ([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
        ([datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)], None),
        ([Decimal(1)], None),
        ([(1,)], None),
        ([[1]], None),
        ([None], None),
        ([], None),
    ],
)
def test_a_column_has_a_type_where_all_values_have_one(values: list[Any], type: Any) -> None:
    inferred = Inferred()
    for value in values:
        inferred.add([value])
    assert inferred.type == type


def test_a_value_of_another_type_than_the_column_is_refused() -> None:
    with pytest.raises(NotInColumn, match=r"state 'n' has the value True \(bool\), which a column of int64 can't hold"):
        column([1, True], pa.int64(), "state 'n'")


def given_columns(**columns: Any) -> list[bytes] | None:
    return encoded_column(pa.table(columns), "value")


def test_columns_that_others_make_are_taken_where_they_say_what_they_mean() -> None:
    def values(found: Any) -> list[Any]:
        encoded = given_columns(value=found)
        assert encoded is not None
        return [decode(data) for data in encoded]

    assert values(pa.array([1, 2], pa.int8())) == [1, 2]
    assert values(pa.array([1.5], pa.float32())) == [1.5]
    assert values(pa.array([Decimal("1.50")], pa.decimal128(10, 2))) == [Decimal("1.50")]
    assert values(pa.array([{"a": [1, None], "b": "x"}])) == [{"a": [1, None], "b": "x"}]
    assert values(pa.array([1_000], pa.timestamp("ms"))) == [datetime(1970, 1, 1, 0, 0, 1)]
    assert values(pa.nulls(1)) == [None]
    assert given_columns(other=[1]) is None


def test_columns_that_could_mean_something_else_are_refused() -> None:
    one = pa.array([1])
    for columns, problem in [
        ({"value": one, "value_json": ["1"]}, "which one counts"),
        ({"value": one, "value_bytes": [encode(2)]}, "row 0: value is 1 and value_bytes holds 2"),
        ({"value_json": one}, "must be of strings"),
        ({"value_json": ["{"]}, "row 0: value_json is"),
        ({"value_json": pa.array([None], pa.string())}, 'is the text "null"'),
        ({"value_bytes": ["x"]}, "must be binary"),
        ({"value_bytes": [b"\xc1"]}, "row 0: value_bytes is no encoded value"),
        ({"value": pa.array([1], pa.timestamp("ns"))}, "finer than microseconds"),
        ({"value": pa.array([1], pa.timestamp("us", tz="Asia/Tokyo"))}, "in the zone Asia/Tokyo"),
        ({"value": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}, "without a guess"),
        ({"value": pa.array([1], pa.duration("us"))}, "without a guess"),
    ]:
        with pytest.raises(NotInColumn, match=problem):
            given_columns(**columns)


def test_keys_have_an_encoding_of_their_own() -> None:
    assert encoded_column(pa.table({"key": [-0.0]}), "key", encode_key) == [encode_key(0.0)]
