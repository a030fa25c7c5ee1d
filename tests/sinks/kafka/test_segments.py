"""Staged segments: how an epoch's rows are cut into files, and come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_sink_helpers import FolderStaging

from sinks.kafka.rows import KafkaRows, headers_size
from sinks.kafka.segments import SegmentStager, read_segment

ROW_BYTES = 32
"""What each row counts beside its content."""


@st.composite
def some_rows(draw: st.DrawFn) -> KafkaRows:
    count = draw(st.integers(1, 8))

    def column(cell: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | st.lists(cell, min_size=count, max_size=count))

    content = st.none() | st.binary(max_size=5)
    header = st.tuples(st.text("aä", max_size=3), st.none() | st.binary(max_size=3))
    return KafkaRows(
        topic="t",
        topics=None,
        values=draw(st.lists(content, min_size=count, max_size=count)),
        keys=column(content),
        partitions=column(st.integers(-1, 3)),
        timestamps=column(st.none() | st.integers(1, 9)),
        headers=column(st.none() | st.lists(header, max_size=2)),
        message_limit=draw(st.integers(1, 100)),
    )


def plain(*values: bytes, **columns: Any) -> KafkaRows:
    return KafkaRows("t", None, list(values), **columns)


def sizes(staged: list[Any]) -> list[int]:
    return [payload["bytes"] for payload, _ in staged]


@pytest.fixture
def staging(tmp_path: Path) -> FolderStaging:
    return FolderStaging(tmp_path)


def content(staging: FolderStaging, staged: list[Any]) -> list[list[bytes | None]]:
    """Values by segment."""
    return [[v for f in files for piece in read_segment(staging.read(f)) for v in piece.values] for _, files in staged]


# -- rows -------------------------------------------------------------------------------------------------------------


def test_keys_values_headers_and_a_little_for_each_row_count() -> None:
    assert plain(b"12", b"").size == 2 + 2 * ROW_BYTES
    assert plain(b"12", b"", keys=[b"123", None]).sizes() == [5 + ROW_BYTES, ROW_BYTES]
    assert plain(b"12", headers=[[("ä", b"1"), ("b", None)]]).sizes() == [2 + 4 + ROW_BYTES]
    assert headers_size(None) == 0


@given(rows=some_rows())
def test_the_sizes_of_rows_add_up(rows: KafkaRows) -> None:
    assert sum(rows.sizes()) == rows.size


@given(rows=some_rows(), room=st.integers(0, 400))
def test_as_many_rows_fit_as_there_is_room_for(rows: KafkaRows, room: int) -> None:
    count = rows.fitting(room)
    assert rows.slice(0, count).size <= room
    assert count == len(rows) or rows.slice(0, count + 1).size > room


@given(rows=some_rows(), cut=st.integers(0, 8))
def test_a_slice_keeps_every_column_and_the_limit(rows: KafkaRows, cut: int) -> None:
    front, back = rows.slice(0, cut), rows.slice(cut)
    for column in ("values", "keys", "partitions", "timestamps", "headers"):
        whole = getattr(rows, column)
        if whole is None:
            assert getattr(front, column) is getattr(back, column) is None
        else:
            assert [*getattr(front, column), *getattr(back, column)] == whole
    assert front.message_limit == back.message_limit == rows.message_limit


# -- segments ---------------------------------------------------------------------------------------------------------


def test_a_segment_has_at_most_the_limit_and_not_less_than_fits(staging: FolderStaging) -> None:
    stager = SegmentStager(staging, "s", 100, 0)
    row = 50 - ROW_BYTES
    stager.append(plain(*[b"x" * row] * 5))
    staged = stager.finish()
    assert sizes(staged) == [100, 100, 50]
    assert [payload["rows"] for payload, _ in staged] == [2, 2, 1]


def test_a_segment_goes_on_over_calls_until_it_is_full(staging: FolderStaging) -> None:
    stager = SegmentStager(staging, "s", 100, 0)
    for n in range(5):
        stager.append(plain(b"%d" % n + b"x" * (49 - ROW_BYTES)))
    staged = stager.finish()
    assert sizes(staged) == [100, 100, 50]
    assert [payload["rows"] for payload, _ in staged] == [2, 2, 1]
    first_letters = [[(value or b"")[:1] for value in values] for values in content(staging, staged)]
    assert first_letters == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


def test_a_record_above_the_limit_has_a_segment_of_its_own(staging: FolderStaging) -> None:
    stager = SegmentStager(staging, "s", 100, 0)
    stager.append(plain(b"a", b"x" * 500, b"y" * 500, b"b"))
    assert content(staging, stager.finish()) == [[b"a"], [b"x" * 500], [b"y" * 500], [b"b"]]


def test_each_epoch_begins_a_segment_and_an_empty_one_has_none(staging: FolderStaging) -> None:
    stager = SegmentStager(staging, "s", 1_000, 0)
    stager.append(plain(b"a"))
    assert content(staging, stager.finish()) == [[b"a"]]
    assert stager.finish() == []
    stager.append(plain(b"b"))
    assert content(staging, stager.finish()) == [[b"b"]]


def test_a_segment_knows_the_smallest_limit_of_its_topics(staging: FolderStaging) -> None:
    stager = SegmentStager(staging, "s", 1_000, 0)
    for limit in (500, 300, 400):
        stager.append(plain(b"a", message_limit=limit))
    ((payload, _),) = stager.finish()
    assert payload["message_limit"] == 300


def test_what_is_not_in_a_whole_segment_is_dropped_at_the_close(staging: FolderStaging, tmp_path: Path) -> None:
    stager = SegmentStager(staging, "s", 60, 0)
    stager.append(plain(b"x" * 20))
    stager.append(plain(b"y" * 20))
    stager.close()
    stager.close()
    (left,) = tmp_path.iterdir()
    assert [piece.values for piece in read_segment(left.read_bytes())] == [[b"x" * 20]]


@given(pieces=st.lists(some_rows(), min_size=1, max_size=4), limit=st.integers(1, 400))
def test_rows_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[KafkaRows], limit: int
) -> None:
    columns = ("keys", "partitions", "timestamps", "headers")
    first = pieces[0]
    alike = [one for one in pieces if all((getattr(one, c) is None) == (getattr(first, c) is None) for c in columns)]
    staging = FolderStaging(tmp_path_factory.mktemp("staging"))
    stager = SegmentStager(staging, "s", limit, 0)
    for one in alike:
        stager.append(one)
    read = [piece for _, files in stager.finish() for file in files for piece in read_segment(staging.read(file))]
    for column in ("values", *columns):
        if getattr(first, column) is None:
            assert all(getattr(piece, column) is None for piece in read)
        else:
            assert [x for piece in read for x in getattr(piece, column)] == [
                x for p in alike for x in getattr(p, column)
            ]


def test_something_else_is_no_segment() -> None:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("value", pa.binary())])):
        pass
    with pytest.raises(ValueError, match="not a segment"):
        list(read_segment(sink.getvalue().to_pybytes()))
