"""The writer of a file sink: records become parts, staged until their checkpoint is complete."""

from __future__ import annotations

import datetime
import gzip
import json
import re
import subprocess
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_sink_helpers import FileJob, cut, rows, visible, write
from kafka_sink_helpers import FolderStaging

from sinks import FileSink
from sinks.files import partitions
from sinks.files.errors import RecordRefused, TargetUnavailable
from sinks.files.partitions import folder_of
from sinks.files.staged import StagedPart
from tests.support.edge_values import Colour, Level, Name, Text, Whole

SCHEMA = pa.schema(
    [("user", pa.string()), pa.field("amount", pa.float64(), nullable=False), ("at", pa.timestamp("us"))]
)


@pytest.fixture
def job(tmp_path: Path) -> FileJob:
    (tmp_path / "staging").mkdir()
    return FileJob(tmp_path / "out", tmp_path / "staging")


def test_an_epoch_becomes_one_file_a_subtask_that_is_there_once_it_is_committed(job: FileJob) -> None:
    epoch = job.epoch(3, [{"id": 1}, {"id": 2}], subtask=1)
    committer = job.opened(writer=1)
    assert visible(job.target) == []
    committer.commit(3, epoch)
    (path,) = visible(job.target)
    assert re.fullmatch(r"part-00000003-0001-0000-[0-9a-f]{12}\.jsonl", path.name)
    assert path.read_text() == '{"id":1}\n{"id":2}\n'
    assert [one.payload["rows"] for one in epoch] == [2]


def test_an_epoch_without_records_makes_no_file_and_changes_nothing(job: FileJob) -> None:
    committer = job.opened()
    before = sorted(path.stat().st_mtime_ns for path in job.target.rglob("*"))
    committer.commit(1, job.epoch(1, []))
    assert sorted(path.stat().st_mtime_ns for path in job.target.rglob("*")) == before
    assert list(job.staging.iterdir()) == []


def test_parquet_files_have_the_schema_and_nulls_for_fields_that_a_record_lacks(job: FileJob) -> None:
    job.options = {"schema": SCHEMA}
    at = datetime.datetime(2026, 11, 28, 12, 30)
    job.opened().commit(1, job.epoch(1, [{"user": "a", "amount": 1, "at": at}, {"amount": 2.5}]))
    (path,) = visible(job.target)
    assert pq.read_schema(path).equals(SCHEMA)
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    assert rows(job.target) == [{"user": "a", "amount": 1.0, "at": at}, {"user": None, "amount": 2.5, "at": None}]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"user": "b", "amount": 1.0, "colour": "red"}, "no field 'colour'"),
        ({"user": "b", "amount": "much"}, "'amount' has the str 'much' where the schema says double"),
        ({"user": "b"}, "'amount' must not be null"),
        ({"user": "b", "amount": Decimal("1.5"), "at": "now"}, "now"),
        ("text", "it is no dict"),
        (None, "it is no dict"),
    ],
)
def test_a_record_that_does_not_fit_the_schema_is_refused_by_itself(job: FileJob, value: Any, why: str) -> None:
    job.options = {"schema": SCHEMA}
    writer = job.writer()
    good = {"user": "a", "amount": 1.0}
    with pytest.raises(RecordRefused, match=why):
        write(writer, [good, value, good])
    writer.close()


def test_a_record_that_is_no_json_is_refused_by_itself(job: FileJob) -> None:
    with pytest.raises(RecordRefused, match=r"value\['id'\] can't be written as JSON.*b'\\x00'"):
        write(job.writer(), [{"id": 1}, {"id": b"\x00"}])


@pytest.mark.parametrize(("compression", "suffix", "tool"), [("gzip", ".jsonl.gz", "gzip"), ("zstd", ".jsonl.zst", "")])
def test_compressed_lines_are_told_by_the_suffix(job: FileJob, compression: str, suffix: str, tool: str) -> None:
    job.options = {"format": "jsonl", "compression": compression}
    writer = job.writer()
    for i in range(5):
        write(writer, [{"id": i, "text": "x" * 1000}])
    job.opened().commit(1, cut(writer, 1))
    (path,) = visible(job.target)
    assert path.name.endswith(suffix)
    assert path.stat().st_size < 1000
    if tool:
        content = gzip.decompress(path.read_bytes())
        assert subprocess.run(["gzip", "-t", path]).returncode == 0
    else:
        content = pa.CompressedInputStream(pa.OSFile(str(path)), compression).read()
    assert [json.loads(line)["id"] for line in content.splitlines()] == [0, 1, 2, 3, 4]


def test_a_file_that_has_the_size_is_ended_within_the_epoch(job: FileJob) -> None:
    job.options = {"format": "jsonl", "roll_bytes": 100_000}
    values = [{"id": i, "text": "x" * 90} for i in range(5000)]
    epoch = job.epoch(2, values)
    assert [one.payload["rows"] for one in epoch] == [1024, 1024, 1024, 1024, 904]
    job.opened().commit(2, epoch)
    assert len(visible(job.target)) == 5
    assert rows(job.target) == values


def test_parquet_files_roll_by_what_is_in_memory_too(job: FileJob) -> None:
    job.options = {"schema": pa.schema([("id", pa.int64())]), "roll_bytes": 16_384}
    values = [{"id": i} for i in range(6000)]
    epoch = job.epoch(1, values)
    assert [one.payload["rows"] for one in epoch] == [2048, 2048, 1904]
    job.opened().commit(1, epoch)
    assert rows(job.target) == values


def test_a_file_that_has_just_the_size_is_ended(job: FileJob) -> None:
    line = len(b'{"id":1}\n')
    job.options = {"format": "jsonl", "roll_bytes": line}
    writer = job.writer()
    for n in range(3):
        write(writer, [{"id": n}])
    assert [one.payload["bytes"] for one in cut(writer, 1)] == [line] * 3
    job.options["roll_bytes"] = 1024 * line
    assert [one.payload["rows"] for one in job.epoch(1, [{"id": 1}] * 2048)] == [1024, 1024]


def test_a_file_takes_records_however_small_it_is_to_be(job: FileJob) -> None:
    """A Parquet file has some bytes before its first record."""
    job.options = {"schema": SCHEMA, "roll_bytes": 1}
    assert [one.payload["rows"] for one in job.epoch(1, [{"amount": 1.0}] * 2)] == [2]


def test_an_epoch_has_only_what_was_written_since_the_barrier_before(job: FileJob) -> None:
    writer = job.writer()
    epochs = []
    for n in (1, 2):
        write(writer, [{"id": n}] * n)
        epochs.append(cut(writer, n))
    assert [[one.payload["rows"] for one in epoch] for epoch in epochs] == [[1], [2]]
    assert cut(writer, 3) == []
    assert not {one.payload["path"] for one in epochs[0]} & {one.payload["path"] for one in epochs[1]}


def test_a_file_that_is_old_is_ended_when_records_come(job: FileJob) -> None:
    job.options = {"format": "jsonl", "roll_seconds": 60}
    now = 0.0
    writer = job.writer(clock=lambda: now)
    write(writer, [{"id": 1}])
    now = 59.0
    write(writer, [{"id": 2}])
    now = 60.0
    write(writer, [{"id": 3}])
    now = 62.0
    write(writer, [{"id": 4}])
    assert [one.payload["rows"] for one in cut(writer, 1)] == [3, 1]


@pytest.mark.parametrize(
    ("partition_by", "folders"),
    [
        ("country", ["country=NZ", "country=a%2Fb", "country=__HIVE_DEFAULT_PARTITION__"]),
        (["country", "n"], ["country=NZ/n=1", "country=a%2Fb/n=2", "country=__HIVE_DEFAULT_PARTITION__/n=3"]),
        (lambda value: {"odd": value["n"] % 2 == 1}, ["odd=true", "odd=false"]),
    ],
)
def test_records_go_into_folders_by_their_content(job: FileJob, partition_by: Any, folders: list[str]) -> None:
    job.options = {"format": "jsonl", "partition_by": partition_by}
    values = [{"country": "NZ", "n": 1}, {"country": "a/b", "n": 2}, {"country": None, "n": 3}]
    job.opened().commit(1, job.epoch(1, values))
    assert sorted(path.parent.relative_to(job.target).as_posix() for path in visible(job.target)) == sorted(folders)
    assert sorted(rows(job.target), key=lambda value: value["n"]) == values


def test_parquet_files_leave_out_what_is_in_the_folders_name(job: FileJob) -> None:
    schema = pa.schema([("id", pa.int64()), ("country", pa.string())])
    job.options = {"schema": schema, "partition_by": ["country", "day"]}
    values = [{"id": 1, "country": "NZ", "day": 3}, {"id": 2, "country": None, "day": 4}]
    job.opened().commit(1, job.epoch(1, values))
    assert [pq.ParquetFile(path).schema_arrow.names for path in visible(job.target)] == [["id"], ["id"]]
    found = pq.read_table(job.target).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == values
    with pytest.raises(RecordRefused, match="field 'country' is empty text"):
        write(job.writer(), [{"id": 1, "country": "", "day": 3}])
    job.options["partition_by"] = lambda value: {"country": "x"}
    with pytest.raises(RecordRefused, match="folders for country, which the schema has as a field"):
        write(job.writer(), [{"id": 1, "country": "NZ"}])
    job.options = {"schema": pa.schema([("a=b/c", pa.int64())]), "partition_by": lambda value: {"x": 1, "a=b/c": 2}}
    with pytest.raises(RecordRefused, match="folders for a=b/c, which the schema has as a field"):
        write(job.writer(), [{"a=b/c": 1}])


@pytest.mark.parametrize(
    ("partition_by", "why"),
    [
        ("country", "no field 'country'"),
        (lambda value: "NZ", "must return a dict"),
        (lambda value: {"x": [1]}, "no text, number or date"),
        (lambda value: {"x": "y" * 300}, "at most 200 bytes"),
        (lambda value: {"_x": "y"}, "beginning neither with _"),
        (lambda value: {"x": "__HIVE_DEFAULT_PARTITION__"}, "take for a missing value"),
    ],
)
def test_a_record_without_a_folder_is_refused(job: FileJob, partition_by: Any, why: str) -> None:
    job.options = {"format": "jsonl", "partition_by": partition_by}
    with pytest.raises(RecordRefused, match=why):
        write(job.writer(), [{"n": 1}])


def test_values_that_are_equal_and_not_the_same_have_folders_of_their_own() -> None:
    folder = folder_of("x")
    east = datetime.timezone(datetime.timedelta(hours=1))
    noon = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
    for value in (1, True, 1.0, 0.0, -0.0, 0, False, noon, noon.astimezone(east), noon.replace(tzinfo=None)):
        assert folder({"x": value}) == folder_of(lambda record: record)({"x": value}), value


@pytest.mark.parametrize(
    "value", [Text("a"), Whole(1), Name.A, Colour.RED, Level.HIGH, numpy.float64(1.5), b"a"], ids=repr
)
def test_a_field_of_a_type_that_its_folders_name_would_not_tell_is_refused(job: FileJob, value: Any) -> None:
    """Parquet files leave such fields out, so nothing else checks them."""
    job.options = {"schema": pa.schema([("id", pa.int64())]), "partition_by": "x"}
    with pytest.raises(RecordRefused, match=r"partition_by gives .* for 'x', which is no text, number or date"):
        write(job.writer(), [{"id": 1, "x": value}])


@pytest.mark.parametrize("partition_by", ["x", lambda value: {"x": value["x"]}])
def test_a_folders_name_is_valid_unicode(partition_by: Any) -> None:
    with pytest.raises(RecordRefused, match=r"partition_by gives .* lone surrogates"):
        folder_of(partition_by)({"id": 1, "x": "a\ud800"})


def test_of_very_many_folders_not_all_names_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_KNOWN", 100)
    folder = folder_of("n")
    tracemalloc.start()
    try:
        for n in range(10_000):
            assert folder({"n": n}) == f"n={n}"
        assert tracemalloc.get_traced_memory()[0] < 500_000  # all of them take more than 2 MB
    finally:
        tracemalloc.stop()


def test_of_many_folders_only_so_many_files_are_open(job: FileJob) -> None:
    job.options = {"format": "jsonl", "partition_by": "n", "max_open_parts": 3}
    writer = job.writer()
    for n in (0, 1, 2, 0, 3, 0):
        write(writer, [{"n": n}])
    epoch = cut(writer, 1)
    # The file of folder 1 was the one not written to for longest.
    assert [one.payload["path"].split("/")[0] for one in epoch] == ["n=1", "n=2", "n=3", "n=0"]
    assert [one.payload["rows"] for one in epoch] == [1, 1, 1, 3]


def test_of_many_open_files_the_one_with_the_most_in_memory_is_written_out_first(
    job: FileJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.files.writer._BUFFER_BYTES", 2_000)
    job.options = {"schema": pa.schema([("n", pa.int64()), ("id", pa.int64())]), "partition_by": "n"}
    writer = job.writer()
    for number in range(3):
        write(writer, [{"n": 0, "id": number}])
        write(writer, [{"n": 1, "id": id} for id in range(200)])
    job.opened().commit(1, cut(writer, 1))
    groups = {path.parent.name: pq.ParquetFile(path).num_row_groups for path in visible(job.target)}
    assert groups["n=0"] == 1
    assert groups["n=1"] > 1
    assert len(rows(job.target)) == 603


def test_a_parquet_file_has_row_groups_that_fit_into_memory(job: FileJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.files.encoding._ROW_GROUP_BYTES", 10_000)
    job.options = {"schema": pa.schema([("id", pa.int64())])}
    job.opened().commit(1, job.epoch(1, [{"id": id} for id in range(5_000)]))
    (path,) = visible(job.target)
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [2048, 2048, 904]


def test_a_folders_name_may_have_200_bytes(job: FileJob) -> None:
    folder = folder_of("x")
    assert len(folder({"x": "y" * 198})) == 200
    with pytest.raises(RecordRefused, match="at most 200 bytes"):
        folder({"x": "y" * 199})


def test_parts_are_staged_in_pieces_that_fit_into_memory(job: FileJob) -> None:
    part = StagedPart(FolderStaging(job.staging), "p", piece_bytes=1000)
    content = bytes(range(256)) * 20
    part.write(content[:1500])
    part.write(content[1500:])
    pieces = part.seal()
    assert (part.size, part.tell()) == (5120, 5120)
    assert [piece.size for piece in pieces] == [1000, 1500, 1000, 1000, 620]
    assert b"".join(FolderStaging(job.staging).read(piece) for piece in pieces) == content


def test_what_is_not_covered_by_a_barrier_is_dropped_at_the_close(job: FileJob) -> None:
    job.options = {"schema": SCHEMA}
    writer = job.writer()
    write(writer, [{"amount": 1.0}])
    writer.close()
    del writer
    assert list(job.staging.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"format": "csv"}, 'format must be "parquet" or "jsonl"'),
        ({}, "need schema="),
        ({"format": "jsonl", "schema": SCHEMA}, "have no schema"),
        ({"format": "jsonl", "compression": "snappy"}, "must be one of none, gzip, zstd"),
        ({"format": "jsonl", "roll_bytes": 0}, "roll_bytes must be"),
        ({"format": "jsonl", "roll_seconds": -1}, "roll_seconds must be at least"),
        ({"format": "jsonl", "max_open_parts": True}, "max_open_parts must be"),
        ({"format": "jsonl", "partition_by": []}, "partition_by must be"),
        ({"format": "jsonl", "partition_by": 3}, "partition_by must be"),
        ({"schema": SCHEMA, "partition_by": ["at", "user", "amount"]}, "leaves no field of the schema"),
        ({"schema": pa.schema([])}, "has no fields"),
        ({"format": "jsonl", "uri": " "}, "uri must be a folder"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FileSink(**{"uri": tmp_path.as_uri(), **options})


def test_a_folder_may_be_a_path(tmp_path: Path) -> None:
    assert vars(FileSink(tmp_path, format="jsonl")) == vars(FileSink(str(tmp_path), format="jsonl"))


def test_a_folder_that_cannot_be_written_to_is_an_error_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TargetUnavailable, match=r"cannot write the file sink's folder .*/file"):
        FileJob(tmp_path / "file", tmp_path).sink().validate()
    FileJob(tmp_path / "new" / "folder", tmp_path).sink().validate()
    assert visible(tmp_path / "new") == []
