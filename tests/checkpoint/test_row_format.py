from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.codec import DecodingError, encode, encode_key
from checkpoint.key_groups import key_group
from checkpoint.row_format import row_format

PLAIN, KEYED = row_format(carries_keys=False), row_format(carries_keys=True)
RECORDS = st.lists(
    st.tuples(
        st.dictionaries(
            st.text(max_size=5), st.integers(0, 9) | st.lists(st.floats(allow_nan=False), max_size=2), max_size=3
        ),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.text(max_size=5) | st.integers(-5, 5),
    ),
    max_size=20,
)


def build(records: list[Any], keyed: bool) -> Any:
    builder = row_format(keyed).builder()
    for value, timestamp, key in records:
        if keyed:
            encoded = encode_key(key)
            builder.append_keyed(encode(value), timestamp, encoded, key_group(encoded, 128))
        else:
            builder.append(encode(value), timestamp)
    return builder.seal()


@settings(deadline=None)
@given(RECORDS, st.booleans(), st.data())
def test_records_come_out_of_a_frame_as_they_went_in_also_from_the_rest_of_a_batch(
    records: list[Any], keyed: bool, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(records)))
    edge_format = row_format(keyed)
    batch = edge_format.rest(
        edge_format.from_frame(edge_format.to_frame(edge_format.rest(build(records, keyed), start))), 0
    )
    expected = records[start:]
    out = edge_format.rows(batch)
    assert batch.schema.names == ["value", "timestamp", "key_group", "key"][: 4 if keyed else 2]
    assert out.values == [value for value, _, _ in expected]
    timestamps = [timestamp for _, timestamp, _ in expected]
    assert out.timestamps == (timestamps if any(t is not None for t in timestamps) else None)
    if keyed:
        assert out.keys == [encode_key(key) for _, _, key in expected]
        assert out.key_groups == [key_group(encode_key(key), 128) for _, _, key in expected]
    else:
        assert out.keys is None
        assert out.key_groups is None


def test_the_rest_of_a_batch_decodes_without_a_frame_in_between() -> None:
    batch = build([({"i": i}, i, i) for i in range(10)], keyed=True)
    out = KEYED.rows(KEYED.rest(KEYED.rest(batch, 3), 4))
    assert out.values == [{"i": 7}, {"i": 8}, {"i": 9}]
    assert out.timestamps == [7, 8, 9]
    assert out.keys == [encode_key(i) for i in (7, 8, 9)]


def test_a_frame_of_the_rest_holds_only_the_rest() -> None:
    batch = build([("x" * 1000, 1, i) for i in range(100)], keyed=True)
    assert KEYED.to_frame(KEYED.rest(batch, 99)).size < 2000
    assert KEYED.rest(batch, 50).column(0).buffers()[2].address == batch.column(0).buffers()[2].address


def test_seal_empties_the_builder_and_size_counts_the_bytes() -> None:
    builder = PLAIN.builder()
    assert (builder.rows, builder.size) == (0, 0)
    builder.append(b"x" * 100, None)
    builder.append(b"x" * 50, 3)
    assert builder.rows == 2
    assert 150 <= builder.size <= 200
    assert builder.size == pytest.approx(builder.seal().nbytes, abs=16)
    assert (builder.rows, builder.size, builder.seal().num_rows) == (0, 0, 0)


def test_rows_without_a_key_on_a_keyed_edge_are_refused() -> None:
    builder = KEYED.builder()
    builder.append(encode(1), None)
    with pytest.raises(ValueError, match="0 of 1 row have a key"):
        builder.seal()


def test_every_single_value_may_nest_as_deep_as_the_codec_allows() -> None:
    deep: Any = 1
    for _ in range(255):
        deep = [deep]
    assert PLAIN.rows(build([(deep, None, 1)], keyed=False)).values == [deep]


def test_a_frame_that_is_cut_off_or_of_a_plain_edge_is_an_error() -> None:
    frame = PLAIN.to_frame(build([(i, None, i) for i in range(10)], keyed=False))
    for cut in (0, 1, 8, 100, frame.size - 8):
        with pytest.raises(ValueError, match="no frame of a plain edge"):
            PLAIN.from_frame(frame.slice(0, cut))
    with pytest.raises(ValueError, match="no frame of a keyed edge"):
        KEYED.from_frame(frame)


def test_a_damaged_value_is_named_by_its_row() -> None:
    columns = [pa.array([encode(1), b"\xc1", encode(2)], pa.binary()), pa.nulls(3, pa.int64())]
    with pytest.raises(DecodingError, match="row 1 of a batch of 3"):
        PLAIN.rows(pa.RecordBatch.from_arrays(columns, names=["value", "timestamp"]))
