"""The rows that a commit reads: which segments make a transaction, which rows are left out."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st
from kafka_sink_helpers import FolderStaging, name

from sinks import Committable, CommittableName
from sinks.kafka.errors import CommitRefused, RecordRefused, RefusedRecord
from sinks.kafka.refused_record import culprit, explained
from sinks.kafka.rows import KafkaRows
from sinks.kafka.segments import SegmentStager
from sinks.kafka.staged_rows import read_rows, rows_to_commit, smallest_limit, transactions, without

FAR_PAST, FAR_FUTURE = 1_000, 4_000_000_000_000


def sized(*sizes: int) -> list[Committable]:
    return [Committable(CommittableName(1, i), {"bytes": size, "message_limit": size}) for i, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([5], [[5]]),
        ([50], [[50]]),
        ([4, 6], [[4, 6]]),
        ([4, 7], [[4], [7]]),
        ([4, 6, 1, 2, 8], [[4, 6], [1, 2], [8]]),
        ([50, 1, 1], [[50], [1, 1]]),
        ([9, 2, 8, 1], [[9], [2, 8], [1]]),
    ],
)
def test_a_transaction_has_whole_segments_in_order_up_to_the_limit(sizes: list[int], groups: list[list[int]]) -> None:
    assert [[one.payload["bytes"] for one in group] for group in transactions(sized(*sizes), 10)] == groups


def test_batches_suit_the_topic_with_the_smallest_limit() -> None:
    assert smallest_limit(sized(7, 3, 9), 1_000) == 3
    assert smallest_limit([], 1_000) == 1_000


@given(st.lists(st.integers(0, 4), max_size=6), st.sets(st.integers(0, 30)))
def test_what_is_left_of_a_segment_is_all_but_the_rows_left_out(sizes: list[int], numbers: set[int]) -> None:
    values = [str(i).encode() for i in range(sum(sizes))]
    ends = list(accumulate(sizes))
    pieces = (KafkaRows("t", None, list(values[end - size : end])) for size, end in zip(sizes, ends, strict=True))
    left = list(without(pieces, numbers))
    assert all(len(rows) for rows in left)
    assert [v for rows in left for v in rows.values] == [v for i, v in enumerate(values) if i not in numbers]


# -- a record that Kafka refused --------------------------------------------------------------------------------------


def rows(values: list[bytes | None], **columns: Any) -> KafkaRows:
    return KafkaRows("t", None, values, **columns)


@pytest.fixture
def staging(tmp_path: Path) -> FolderStaging:
    return FolderStaging(tmp_path)


def epoch(staging: FolderStaging, number: int, *pieces: KafkaRows, limit: int = 1_000_000) -> list[Committable]:
    stager = SegmentStager(staging, "s", limit, 0)
    for piece in pieces:
        stager.append(piece)
    return name(number, stager.finish())


def refused(value: bytes | None, code: int = KafkaError.INVALID_RECORD, **where: Any) -> RecordRefused:
    said = {"topic": "t", "partition": 0, "key": None, "value": value, **where}
    record = RefusedRecord(KafkaError(code, "no"), **said)
    return RecordRefused("a batch was refused", record)


def command(segments: list[Committable], error: RecordRefused, staging: FolderStaging, **options: Any) -> str:
    found = explained(error, "out", 2, segments, staging, options.get("left_out", {}))
    return str(found).partition("weir sink skip ")[2].partition(" --save")[0]


def test_rows_are_read_in_order_but_for_those_left_out(staging: FolderStaging) -> None:
    segments = [*epoch(staging, 1, rows([b"a", b"b"])), *epoch(staging, 2, rows([b"c", b"d"]), rows([b"e"]))]
    left_out = {CommittableName(2, 0): {0, 2}}
    for out, left in (({}, [b"a", b"b", b"c", b"d", b"e"]), (left_out, [b"a", b"b", b"d"])):
        assert [v for piece in rows_to_commit(segments, staging, out) for v in piece.values] == left


def test_a_refused_record_is_named_by_writer_segment_and_row(staging: FolderStaging) -> None:
    segments = [*epoch(staging, 1, rows([b"a"])), *epoch(staging, 2, rows([b"b", b"c"]))]
    error = explained(refused(b"c"), "out", 2, segments, staging, {})
    assert isinstance(error, CommitRefused)
    assert "Kafka refused the record in segment 2/0 of writer 2, row 1 (topic 't'" in str(error)
    assert "weir sink skip SCRIPT out --writer 2 --segment 2/0 --row 1 --save FILE --yes" in str(error)


@pytest.mark.parametrize("where", [{"topic": "other"}, {"key": b"k"}, {"value": b"x"}])
def test_a_record_that_is_not_staged_is_told_as_it_is(staging: FolderStaging, where: dict[str, Any]) -> None:
    error = refused(**{"value": b"a", **where})
    assert explained(error, "out", 2, epoch(staging, 1, rows([b"a"])), staging, {}) is error


def test_one_that_was_not_sent_is_told_as_it_is(staging: FolderStaging) -> None:
    error = RecordRefused("before it was sent")
    assert explained(error, "out", 2, epoch(staging, 1, rows([b"a"])), staging, {}) is error


def test_rows_are_numbered_over_the_pieces_of_a_segment(staging: FolderStaging) -> None:
    large = [letter * 170_000 for letter in (b"a", b"b", b"c", b"d")]
    segments = epoch(staging, 1, *[rows([value]) for value in [*large, b"z"]], limit=10_000_000)
    assert len(segments) == 1
    assert [len(piece) for piece in read_rows(segments[0], staging)] == [2, 2, 1]
    assert command(segments, refused(b"z"), staging) == "SCRIPT out --writer 2 --segment 1/0 --row 4"


def test_all_rows_that_are_the_same_are_named_and_those_left_out_before(staging: FolderStaging) -> None:
    segments = epoch(staging, 1, rows([b"a", b"b", b"a", b"a"]))
    left_out = {CommittableName(1, 0): {1, 2}}
    assert command(segments, refused(b"a"), staging) == "SCRIPT out --writer 2 --segment 1/0 --row 0 --row 2 --row 3"
    assert command(segments, refused(b"a"), staging, left_out=left_out) == (
        "SCRIPT out --writer 2 --segment 1/0 --row 0 --row 1 --row 2 --row 3"
    )
    left_out = {CommittableName(1, 0): {0}}
    assert "of writer 2, row 2 (topic" in str(explained(refused(b"a"), "out", 2, segments, staging, left_out))


def test_of_rows_that_differ_in_headers_the_largest_is_to_blame_if_it_is_too_large(staging: FolderStaging) -> None:
    segments = epoch(staging, 1, rows([b"a"] * 3, headers=[None, [("h", b"x" * 50)], [("h", b"x")]]))
    too_large = refused(b"a", KafkaError.MSG_SIZE_TOO_LARGE)
    assert command(segments, too_large, staging) == "SCRIPT out --writer 2 --segment 1/0 --row 1"


@pytest.mark.parametrize(("other", "row"), [(FAR_FUTURE, 2), (FAR_PAST, 2), (None, 1)])
def test_of_rows_that_differ_in_time_the_most_distant_is_to_blame_for_a_timestamp(
    staging: FolderStaging, other: int | None, row: int
) -> None:
    segments = epoch(staging, 1, rows([b"a"] * 3, timestamps=[None, 2_000_000_000_000, other]))
    late = refused(b"a", KafkaError.INVALID_TIMESTAMP)
    assert command(segments, late, staging) == f"SCRIPT out --writer 2 --segment 1/0 --row {row}"


def test_neither_headers_nor_time_matter_for_other_refusals(staging: FolderStaging) -> None:
    unlike: dict[str, Any] = {"headers": [None, [("h", b"x")]], "timestamps": [None, FAR_FUTURE]}
    segments = epoch(staging, 1, rows([b"a"] * 2, **unlike))
    assert command(segments, refused(b"a"), staging) == "SCRIPT out --writer 2 --segment 1/0 --row 0 --row 1"


def test_a_row_with_a_partition_of_its_own_is_found_at_that_one(staging: FolderStaging) -> None:
    segments = epoch(staging, 1, rows([b"a", b"a"], partitions=[1, 0]))
    assert command(segments, refused(b"a"), staging) == "SCRIPT out --writer 2 --segment 1/0 --row 1"


def test_a_topic_that_takes_nothing_is_no_records_fault_and_another_start_may_succeed(staging: FolderStaging) -> None:
    segments = epoch(staging, 1, rows([b"a"]))
    error = refused(b"a", KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert type(explained(error, "out", 2, segments, staging, {})) is RecordRefused

    def no_producer() -> Any:
        raise AssertionError("records were sent one by one")

    assert culprit(error, segments, staging, {}, no_producer) is error
    assert culprit(refused(b"elsewhere"), segments, staging, {}, no_producer) is not None
