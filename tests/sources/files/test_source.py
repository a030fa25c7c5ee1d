"""The file source: which files are read, by whom, from where on, and what is an error."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import random
import re
import tempfile
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest
from deadlines import eventually
from edge_values import EVERYTHING, json_scalars
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint.codec import decode, encode
from formats.arrow_rows import rows
from formats.errors import BadRecord
from sinks import FileSink
from sinks.files.encoding import ParquetRows
from sinks.files.errors import RecordRefused, TargetUnavailable
from sources import END, FileSource, SourceBatch, SourceContext, SourceReader
from sources.files.errors import FileChanged, FileGone, FolderUnavailable
from sources.files.folder import FoundFile
from sources.files.ledger import Ledger
from sources.files.reader import ReaderOptions
from sources.files.split_content import FormatOptions
from sources.positions import positions
from sources.source import Position

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("price", pa.decimal256(60, 2)),
        ("hour", pa.time64("us")),
        ("took", pa.duration("us")),
        ("items", pa.list_(pa.int64())),
        ("id", pa.uuid()),
    ]
)

NAMED = re.compile(r"(\S+) in \S+ has changed since the job's first start")


@dataclass
class Metrics:
    counters: dict[str, float] = field(default_factory=dict)

    def count(self, name: str, n: float = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + n

    def gauge(self, name: str, value: float | str | None) -> None: ...


def reader(
    source: FileSource,
    restored: Sequence[Any] | None = None,
    subtask: int = 0,
    parallelism: int = 1,
    metrics: Metrics | None = None,
) -> SourceReader:
    if restored is not None:
        restored = [decode(encode(state)) for state in restored]
    return source.create_reader(SourceContext("p", "in", subtask, parallelism, metrics or Metrics(), restored))


def batches(reading: SourceReader, most: int = 10_000) -> Iterator[SourceBatch]:
    """Until the end."""
    while (polled := reading.poll(most, 0.0)) is not END:
        if polled is not None:
            assert isinstance(polled, SourceBatch)
            yield polled
    reading.close()


def values_of(batch: SourceBatch) -> list[Any]:
    """As the records reach an operator."""
    return batch.values if isinstance(batch.values, list) else rows(batch.values)


def read(
    source: FileSource, restored: Sequence[Any] | None = None, parallelism: int = 1, most: int = 10_000
) -> list[Any]:
    """By all subtasks, one after the other."""
    found: list[Any] = []
    for subtask in range(parallelism):
        for batch in batches(reader(source, restored, subtask, parallelism), most):
            found += values_of(batch)
    return found


def lines(folder: Path, name: str, values: Sequence[Any]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return path


def parquet(folder: Path, name: str, ids: Sequence[int], group: int = 10) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path, row_group_size=group)
    return path


def jsonl(folder: Path, **options: Any) -> FileSource:
    return FileSource(folder.as_uri(), format="jsonl", **options)


# -- which files ------------------------------------------------------------------------------------------------------


def test_files_of_a_folder_and_its_sub_folders_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    lines(tmp_path, "b.jsonl", [3, 4])
    lines(tmp_path, "a/x.jsonl", [1])
    lines(tmp_path, "a/y.jsonl", [2])
    assert read(jsonl(tmp_path)) == [1, 2, 3, 4]
    assert read(FileSource(str(tmp_path), format="jsonl")) == [1, 2, 3, 4]


def test_files_can_be_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    for n, name in enumerate(["c", "a", "b"]):
        os.utime(lines(tmp_path, name, [n]), ns=(0, (n + 1) * 10**9))
    assert read(jsonl(tmp_path, order="mtime")) == [0, 1, 2]


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    for name in ("a", "_SUCCESS", ".tmp-1", "_weir/marker", ".git/x", "b/_c/d"):
        lines(tmp_path, name, [name])
    assert read(jsonl(tmp_path)) == ["a"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("*.jsonl", ["a.jsonl", "d/a.jsonl"]), ("d/*", ["d/a.jsonl", "d/b.txt"]), ("[a-z]", []), ("d/a*", ["d/a.jsonl"])],
)
def test_a_pattern_is_of_names_or_with_a_slash_of_paths(tmp_path: Path, pattern: str, found: list[str]) -> None:
    for name in ("a.jsonl", "d/a.jsonl", "d/b.txt", "e.txt"):
        lines(tmp_path, name, [name])
    assert sorted(read(jsonl(tmp_path, pattern=pattern))) == found


def test_a_single_file_can_be_read(tmp_path: Path) -> None:
    path = lines(tmp_path, "a", [1, 2])
    lines(tmp_path, "b", [3])
    assert read(jsonl(path)) == [1, 2]


def test_each_subtask_reads_files_of_its_own_and_all_of_them_are_read(tmp_path: Path) -> None:
    for i in range(50):
        lines(tmp_path, f"{i:02d}", [i])
    source = jsonl(tmp_path)
    for parallelism in (1, 2, 3, 7):
        by_subtask = [
            [v for b in batches(reader(source, None, s, parallelism)) for v in b.values] for s in range(parallelism)
        ]
        assert sorted(value for values in by_subtask for value in values) == list(range(50))
        assert all(by_subtask)


def test_the_files_of_a_start_are_settled_before_it(tmp_path: Path) -> None:
    lines(tmp_path, "a", [1])
    resolved = jsonl(tmp_path).resolve()
    lines(tmp_path, "b", [2])
    assert isinstance(resolved, FileSource)
    assert read(resolved) == [1]


def test_an_empty_folder_has_no_records(tmp_path: Path) -> None:
    lines(tmp_path, "empty", [])
    source = jsonl(tmp_path)
    source.validate()
    assert read(source) == []


def test_a_folder_that_is_not_there_is_an_error_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"/nothing, which the file source is to read, doesn't exist"):
        jsonl(tmp_path / "nothing").validate()
    with pytest.raises(FolderUnavailable, match="nosuch"):
        FileSource("nosuch://x").validate()


# -- JSON lines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b'{"a":1}\n{"a":2}\n', b'{"a":1}\r\n\r\n  \n{"a":2}'], ids=["plain", "untidy"])
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".bz2"])
def test_lines_are_read_as_they_are_stored(tmp_path: Path, content: bytes, suffix: str) -> None:
    stored = {
        "": content,
        ".gz": gzip.compress(content[:5]) + gzip.compress(content[5:]),
        ".zst": bytes(pa.compress(content, "zstd")),
        ".bz2": bz2.compress(content),
    }
    (tmp_path / f"a.jsonl{suffix}").write_bytes(stored[suffix])
    source = jsonl(tmp_path)
    found = list(batches(reader(source)))
    assert [value for batch in found for value in batch.values] == [{"a": 1}, {"a": 2}]
    second = 1 if content.count(b"\n") == 2 else 3
    places = [(row.file, row.file_row) for batch in found for row in batch.context or ()]
    assert places == [(f"a.jsonl{suffix}", 0), (f"a.jsonl{suffix}", second)]
    for polls in (1, 2, 3):
        for emitted in (0, 1):
            reading = reader(source)
            for _ in range(polls):
                polled = reading.poll(1, 0.0)
            state = reading.snapshot(1, emitted if isinstance(polled, SourceBatch) else 0)
            reading.close()
            rest = read(source, [state])
            before = [{"a": 1}, {"a": 2}][: 2 - len(rest)]
            assert before + rest == [{"a": 1}, {"a": 2}]
            if polls == 1:
                assert len(before) == emitted


def test_a_bad_line_fails_the_source_in_front_of_it_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('1\n2\n{"x"\n3\n')
    reading = reader(jsonl(tmp_path))
    assert next(batches(reading, 2)).values == [1, 2]
    with pytest.raises(BadRecord, match=r'a: line 3 is not JSON .*b\'{"x"\'.*on_bad_record="skip"'):
        reading.poll(2, 0.0)
    reading.close()


def test_bad_lines_can_be_skipped_and_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("bad\n1\n\nworse\n2\nbad\n")
    metrics = Metrics()
    source = jsonl(tmp_path, on_bad_record="skip")
    reading = reader(source, metrics=metrics)
    states = []
    found = []
    for batch in batches(reading, 3):
        states.append(([*found, *batch.values], reading.snapshot(1, len(batch))))
        found += values_of(batch)
    assert found == [1, 2]
    assert metrics.counters == {"recordsSkipped": 3}
    for before, state in states:
        assert before + read(source, [state]) == [1, 2]


@dataclass
class Order:
    id: int
    price: Decimal = Decimal(0)
    tags: list[str] = field(default_factory=list)


class TypedOrder(pydantic.BaseModel):
    id: int


def test_lines_become_instances_of_a_class(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"id": 1, "price": 1.10, "more": true}\n\n{"id": 2, "tags": ["x"]}')
    found = read(jsonl(tmp_path, value_type=Order))
    assert found == [Order(1, Decimal("1.10")), Order(2, tags=["x"])]
    assert str(found[0].price) == "1.10"


def test_a_line_that_does_not_fit_the_class_is_a_bad_one_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"id": 1}\n{"id": 2, "tags": [1]}\n{"id": 3}\nnull\n{"id": 4}\n')
    reading = reader(jsonl(tmp_path, value_type=Order))
    assert next(batches(reading, 1)).values == [Order(1)]
    with pytest.raises(BadRecord, match=r"a: line 2 does not fit Order .*`\$\.tags\[0\]`.*correct value_type"):
        reading.poll(1, 0.0)
    reading.close()
    metrics = Metrics()
    source = jsonl(tmp_path, value_type=Order, on_bad_record="skip")
    assert values_of_all(reader(source, metrics=metrics)) == [Order(1), Order(3), Order(4)]
    assert metrics.counters == {"recordsSkipped": 2}


@pytest.mark.parametrize("line", ['{"id": 2, "id": 3}', '{"id": 2, "more": 1e400}', '{"id": 2, "more": NaN}'])
@pytest.mark.parametrize("kind", [Order, TypedOrder], ids=["dataclass", "model"])
def test_a_line_that_is_a_bad_one_without_a_class_is_one_with_it(tmp_path: Path, line: str, kind: Any) -> None:
    """Of a key that comes twice, msgspec and pydantic take the last one."""
    (tmp_path / "a").write_text(f'{{"id": 1}}\n{line}\n{{"id": 3}}\n')
    for typed in (None, kind):
        metrics = Metrics()
        found = values_of_all(reader(jsonl(tmp_path, value_type=typed, on_bad_record="skip"), metrics=metrics))
        assert [one["id"] if typed is None else one.id for one in found] == [1, 3]
        assert metrics.counters == {"recordsSkipped": 1}


def values_of_all(reading: SourceReader) -> list[Any]:
    return [value for batch in batches(reading, 2) for value in values_of(batch)]


def test_a_line_without_an_end_is_an_error_before_it_fills_the_memory(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 5_000_000)
    with pytest.raises(BadRecord, match=r"a: line 1 has more than 1,000,000 bytes"):
        read(jsonl(tmp_path, max_record_bytes=1_000_000))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_large_file_is_read_in_bounded_memory(tmp_path: Path, suffix: str) -> None:
    line = json.dumps({"text": "x" * 1000}).encode() + b"\n"
    content = line * 40_000
    (tmp_path / f"a{suffix}").write_bytes(gzip.compress(content, 1) if suffix else content)
    arrow = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        count = 0
        for batch in batches(reader(jsonl(tmp_path))):
            count += len(batch)
            assert pa.total_allocated_bytes() - arrow < 4_000_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 40_000
    assert peak < 12_000_000  # of 40 MB


# -- Parquet ----------------------------------------------------------------------------------------------------------


def test_a_large_parquet_file_is_read_in_parts_of_row_groups(tmp_path: Path) -> None:
    path = parquet(tmp_path, "a.parquet", range(1000))
    source = FileSource(tmp_path.as_uri(), split_bytes=path.stat().st_size // 10)
    shares = [[v["id"] for b in batches(reader(source, None, s, 3)) for v in values_of(b)] for s in range(3)]
    assert sorted(id for ids in shares for id in ids) == list(range(1000))
    assert all(len(ids) >= 100 for ids in shares)
    for batch in batches(reader(source, None, 1, 3)):
        assert batch.context is not None
        assert [row.file_row for row in batch.context] == [value["id"] for value in values_of(batch)]


def test_values_of_all_types_can_travel_between_steps(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 28, 12, 30, 0, 123456, UTC)
    columns = {
        "moment": pa.array([moment], pa.timestamp("ns", "UTC")),
        "abroad": pa.array([moment], pa.timestamp("ms", "Pacific/Auckland")),
        "local": pa.array([datetime(2026, 11, 28, 12, 30)], pa.timestamp("us")),
        "day": pa.array([date(2026, 11, 28)]),
        "hour": pa.array([time(12, 30)], pa.time64("us")),
        "price": pa.array([Decimal("12.50")], pa.decimal128(10, 2)),
        "took": pa.array([timedelta(seconds=2)], pa.duration("ms")),
        "word": pa.array(["x"]).dictionary_encode(),
        "days": pa.array([[date(2026, 11, 28), None]]),
        "point": pa.array([{"at": date(2026, 11, 28), "n": 1}]),
        "tags": pa.array([[("k", Decimal("1.5"))]], pa.map_(pa.string(), pa.decimal128(5, 1))),
        "raw": pa.array([b"\x00"]),
        "small": pa.array([1.5], pa.float16()),
        "nothing": pa.array([None], pa.null()),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    (value,) = read(FileSource(tmp_path.as_uri()))
    encode(value)
    assert value == {
        "moment": moment,
        "abroad": moment.replace(microsecond=123000),
        "local": datetime(2026, 11, 28, 12, 30),
        "day": date(2026, 11, 28),
        "hour": time(12, 30),
        "price": Decimal("12.50"),
        "took": timedelta(seconds=2),
        "word": "x",
        "days": [date(2026, 11, 28), None],
        "point": {"at": date(2026, 11, 28), "n": 1},
        "tags": [("k", Decimal("1.5"))],
        "raw": b"\x00",
        "small": 1.5,
        "nothing": None,
    }
    assert decode(encode(value)) == value


def test_nanoseconds_are_cut_off_only_if_asked_for(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([1_001], pa.timestamp("ns"))}), tmp_path / "a.parquet")
    with pytest.raises(FolderUnavailable, match=r"a.parquet.*would lose data: 1001.*allow_truncated_timestamps=True"):
        read(FileSource(tmp_path.as_uri()))
    cut = read(FileSource(tmp_path.as_uri(), allow_truncated_timestamps=True))
    assert cut == [{"at": datetime(1970, 1, 1, microsecond=1)}]
    with pytest.raises(ValueError, match="allow_truncated_timestamps must be"):
        FileSource(tmp_path.as_uri(), allow_truncated_timestamps=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([0.1]), pa.float32()),
        (pa.array([1e300]), pa.float32()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([2**40]), pa.int32()),
        (pa.array([2**63], pa.uint64()), pa.int64()),
        (pa.array([Decimal("0.12345678901234567890")]), pa.float64()),
        (pa.array([Decimal("1.505")]), pa.decimal128(10, 2)),
        (pa.array([datetime(2026, 1, 1, microsecond=1)]), pa.timestamp("ms")),
        (pa.array(["no number"]), pa.int64()),
        (pa.array(["3.4e39"]), pa.decimal128(38, 10)),
    ],
    ids=str,
)
def test_a_schema_changes_no_value(tmp_path: Path, column: Any, kind: Any) -> None:
    pq.write_table(pa.table({"v": column}), tmp_path / "a.parquet")
    with pytest.raises(FolderUnavailable, match=r"cannot read a\.parquet"):
        read(FileSource(tmp_path.as_uri(), schema=pa.schema([("v", kind)])))


@given(st.lists(st.dictionaries(st.sampled_from(SCHEMA.names), json_scalars | st.sampled_from(EVERYTHING)), min_size=1))
def test_what_a_file_sink_takes_a_file_source_gives(values: list[Any]) -> None:
    try:
        batch = ParquetRows(SCHEMA)(values)
    except RecordRefused:
        return
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.Table.from_batches([batch]), f"{folder}/a.parquet")
        found = read(FileSource(folder))
    expected = [{name: value.get(name) for name in SCHEMA.names} for value in values]
    for row, other in zip(found, expected, strict=True):
        for name in SCHEMA.names:
            assert row[name] == other[name] or row[name] != row[name]
            assert type(row[name]) in (type(other[name]), float if name == "f" else Decimal)


def test_columns_can_be_chosen_and_a_schema_makes_files_alike(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "old": ["x"]}), tmp_path / "a")
    pq.write_table(pa.table({"new": [2.5], "id": pa.array([2], pa.int64())}), tmp_path / "b")
    assert read(FileSource(tmp_path.as_uri(), columns=["id"])) == [{"id": 1}, {"id": 2}]
    schema = pa.schema([("id", pa.int64()), ("new", pa.float64())])
    assert read(FileSource(tmp_path.as_uri(), schema=schema)) == [{"id": 1, "new": None}, {"id": 2, "new": 2.5}]
    with pytest.raises(FolderUnavailable, match="b has no column old; it has new, id"):
        read(FileSource(tmp_path.as_uri(), columns=["id", "old"]))


def test_of_several_columns_of_one_name_none_is_taken(tmp_path: Path) -> None:
    """Of a dict the last one would be left."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["id", "a", "a"])
    pq.write_table(table, tmp_path / "x")
    for options in ({}, {"columns": ["a"]}, {"schema": pa.schema([("a", pa.int64())])}):
        with pytest.raises(FolderUnavailable, match="x has several columns called 'a'"):
            read(FileSource(tmp_path.as_uri(), **options))  # type: ignore[arg-type]
    assert read(FileSource(tmp_path.as_uri(), columns=["id"])) == [{"id": 1}]
    with pytest.raises(ValueError, match="several columns of one name: id, a, a"):
        rows(pa.RecordBatch.from_arrays(list(map(pa.array, ([1], [2], [3]))), names=table.column_names))


def test_folders_called_name_and_value_are_columns_where_the_file_has_none(tmp_path: Path) -> None:
    parquet(tmp_path, "day=2026-11-28/id=7/a", [1])
    parquet(tmp_path, "day=__HIVE_DEFAULT_PARTITION__/b", [2])
    assert read(FileSource(tmp_path.as_uri())) == [{"id": 1, "day": "2026-11-28"}, {"id": 2, "day": None}]
    schema = pa.schema([("day", pa.date32()), ("id", pa.int64())])
    assert read(FileSource(tmp_path.as_uri(), schema=schema)) == [
        {"id": 1, "day": date(2026, 11, 28)},
        {"id": 2, "day": None},
    ]
    assert read(FileSource(tmp_path.as_uri(), columns=["day"]))[0] == {"day": "2026-11-28"}
    parquet(tmp_path, "day=3400000000000000000000000000000000000000/c", [3])
    with pytest.raises(FolderUnavailable, match="is no decimal128"):
        read(FileSource(tmp_path.as_uri(), schema=pa.schema([("day", pa.decimal128(38, 10))]), pattern="c"))


def test_a_file_that_is_no_parquet_file_is_named(tmp_path: Path) -> None:
    lines(tmp_path, "a.parquet", [1])
    with pytest.raises(FolderUnavailable, match=r"cannot read a\.parquet: .*Is it whole"):
        read(FileSource(tmp_path.as_uri()))


def test_a_large_row_group_is_read_in_bounded_memory(tmp_path: Path) -> None:
    rng = random.Random(1)
    table = pa.table({"text": [rng.randbytes(5000).hex() for _ in range(8000)]})
    pq.write_table(table, tmp_path / "a", compression="none", use_dictionary=False)
    assert pq.ParquetFile(tmp_path / "a").num_row_groups == 1
    del table
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for batch in batches(reader(FileSource(tmp_path.as_uri()))):
        count += len(batch)
        most = max(most, pa.total_allocated_bytes() - before)
    assert count == 8000
    assert most < 20_000_000  # of 80 MB


# -- checkpoints ------------------------------------------------------------------------------------------------------


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), format=st.sampled_from(["jsonl", "parquet"]))
def test_every_record_comes_once_over_restores_at_any_row_and_parallelism(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    format: str,  # noqa: A002
) -> None:
    folder = tmp_path_factory.mktemp("files")
    sizes = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=5), label="sizes")
    first = 0
    for n, size in enumerate(sizes):
        ids = range(first, first + size)
        first += size
        if format == "parquet":
            parquet(folder, f"{n}", ids, group=data.draw(st.integers(1, 25), label="group"))
        else:
            path = lines(folder, f"{n}", [{"id": id} for id in ids])
            if data.draw(st.booleans(), label="compressed"):
                path.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes()))
                path.unlink()
    source = FileSource(
        folder.as_uri(), format=format, split_bytes=data.draw(st.sampled_from([300, 2**20]), label="split")
    )
    states: list[Any] | None = None
    emitted: list[int] = []
    for _ in range(data.draw(st.integers(0, 4), label="restores")):
        parallelism = data.draw(st.integers(1, 3), label="parallelism")
        taken = []
        for subtask in range(parallelism):
            reading = reader(source, states, subtask, parallelism)
            rows, polled = 0, None
            for _ in range(data.draw(st.integers(0, 4), label="polls")):
                polled = reading.poll(data.draw(st.integers(1, 30), label="most"), 0.0)
                if isinstance(polled, SourceBatch):
                    emitted += [value["id"] for value in values_of(polled)]
            if isinstance(polled, SourceBatch):
                rows = data.draw(st.integers(0, len(polled)), label="emitted")
                if rows < len(polled):
                    del emitted[rows - len(polled) :]
            taken.append(reading.snapshot(1, rows))
            reading.close()
        states = taken
    emitted += [value["id"] for value in read(source, states, data.draw(st.integers(1, 3), label="parallelism"))]
    assert sorted(emitted) == list(range(first))


def test_a_later_start_reads_only_what_is_new(tmp_path: Path) -> None:
    lines(tmp_path, "a", [1])
    reading = reader(jsonl(tmp_path))
    assert [b.values for b in batches(reading)] == [[1]]
    state = reading.snapshot(1, 0)
    # Late, and with an older time than what was read.
    os.utime(lines(tmp_path, "0", [0]), ns=(0, 0))
    (tmp_path / "a").unlink()
    assert read(jsonl(tmp_path), [state]) == [0]


def test_a_file_that_was_read_may_go_but_not_change(tmp_path: Path) -> None:
    path = lines(tmp_path, "a", [1])
    reading = reader(jsonl(tmp_path))
    list(batches(reading))
    state = reading.snapshot(1, 0)
    with path.open("a") as file:
        file.write("2\n")
    with pytest.raises(FileChanged, match="a was read, and has changed since"):
        reader(jsonl(tmp_path), [state])


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = lines(tmp_path, "a", [1, 2])
    reading = reader(jsonl(tmp_path))
    reading.poll(1, 0.0)
    state = reading.snapshot(1, 1)
    os.utime(path, ns=(5, 5))
    with pytest.raises(FileChanged, match=r"a in .* has changed while it was being read"):
        list(batches(reading))
    with pytest.raises(FileChanged, match=r"a in .* has changed while it was being read"):
        reader(jsonl(tmp_path), [state])


def test_a_file_that_is_emptied_and_removed_while_it_is_read_is_not_taken_as_read(tmp_path: Path) -> None:
    """To who has it open it seems to end there."""
    path = lines(tmp_path, "a", ["x" * 1000] * 3000)  # more than is read at once
    reading = reader(jsonl(tmp_path))
    reading.poll(1, 0.0)
    path.write_bytes(b"")
    path.unlink()
    with pytest.raises(FileGone, match=r"a is gone from .*part of it was read"):
        list(batches(reading))


def test_a_file_that_is_removed_while_it_is_read_is_read_to_its_end_if_it_is_whole(tmp_path: Path) -> None:
    path = lines(tmp_path, "a", [1, 2, 3])
    reading = reader(jsonl(tmp_path))
    reading.poll(1, 0.0)
    path.unlink()
    assert [value for batch in batches(reading) for value in values_of(batch)] == [2, 3]


def test_half_a_line_where_a_file_was_cut_off_is_no_bad_record(tmp_path: Path) -> None:
    path = lines(tmp_path, "a", ["x" * 1000] * 3000)
    reading = reader(jsonl(tmp_path))
    reading.poll(1, 0.0)
    with path.open("r+b") as file:
        file.truncate(2_000_000)
    with pytest.raises(FileChanged, match="has changed while it was being read"):
        list(batches(reading))


def test_a_file_that_nothing_was_read_of_may_still_grow(tmp_path: Path) -> None:
    path = lines(tmp_path, "a", [1])
    state = reader(jsonl(tmp_path)).snapshot(1, 0)
    with path.open("a") as file:
        file.write("2\n")
    assert read(jsonl(tmp_path), [state]) == [1, 2]


def test_a_file_that_is_gone_before_it_was_read_is_an_error_unless_that_is_accepted(tmp_path: Path) -> None:
    lines(tmp_path, "a", [1])
    lines(tmp_path, "b", [2])
    state = reader(jsonl(tmp_path)).snapshot(1, 0)
    (tmp_path / "a").unlink()
    with pytest.raises(FileGone, match=r'a is gone from .*nothing of it was read.*on_data_loss="skip"'):
        reader(jsonl(tmp_path), [state])
    assert read(jsonl(tmp_path, on_data_loss="skip"), [state]) == [2]


def test_the_state_of_every_old_subtask_is_needed(tmp_path: Path) -> None:
    for i in range(4):
        lines(tmp_path, f"{i}", [i])
    states = [reader(jsonl(tmp_path), None, s, 2).snapshot(1, 0) for s in range(2)]
    with pytest.raises(RuntimeError, match=r"the restored state has subtasks \[1\] of 2"):
        reader(jsonl(tmp_path), states[1:])
    with pytest.raises(RuntimeError, match="is in the restored state of two subtasks"):
        reader(jsonl(tmp_path), [states[0], {**states[0], "subtask": 1}])
    with pytest.raises(ValueError, match="the state of another kind or version of source"):
        reader(jsonl(tmp_path), [{"version": 1, "partitions": 1, "splits": []}])


def test_a_checkpoint_keeps_28_bytes_of_a_file_that_was_read() -> None:
    ledger = Ledger(0, 1, None)
    ledger.add(ledger.unknown([FoundFile(f"some/long/folder/file-{i}", i, i) for i in range(1000)]))
    while (split := ledger.next()) is not None:
        ledger.finish(split)
    assert len(encode(ledger.snapshot(None))) < 1000 * 28 + 200


def test_positions_say_how_many_files_are_read_and_where_the_others_stand(tmp_path: Path) -> None:
    for name in "abc":
        lines(tmp_path, name, [1, 2, 3])
    reading = reader(jsonl(tmp_path))
    for _ in range(3):  # a, its end, and two lines of b
        reading.poll(10, 0.0)
    assert positions(reading.snapshot(1, 2)) == [Position("files read", 1, 3), Position("b", 2)]
    list(batches(reading))
    assert positions(reading.snapshot(1, 0)) == [Position("files read", 3, 3, ended=True)]


# -- watching ---------------------------------------------------------------------------------------------------------


def test_a_watched_folder_gives_each_new_file_once_however_late_it_comes(tmp_path: Path) -> None:
    lines(tmp_path, "b", [1])
    source = jsonl(tmp_path, discovery_interval=0.01)
    assert not source.bounded
    readers = [reader(source, None, s, 2) for s in range(2)]
    found: list[int] = []

    def look(wanted: int) -> bool:
        for reading in readers:
            polled = reading.poll(10, 0.0)
            assert polled is not END
            if isinstance(polled, SourceBatch):
                found.extend(polled.values)
        return len(found) >= wanted

    try:
        eventually(lambda: look(1))
        (tmp_path / ".c").write_text("2\n")
        (tmp_path / ".c").rename(tmp_path / "c")
        eventually(lambda: look(2))
        os.utime(lines(tmp_path, ".a", [3]), ns=(0, 0))
        (tmp_path / ".a").rename(tmp_path / "sub-a")
        eventually(lambda: look(3))
        states = [reading.snapshot(1, 1) for reading in readers]
    finally:
        for reading in readers:
            reading.close()
    assert found == [1, 2, 3]
    lines(tmp_path, "d", [4])
    assert read(jsonl(tmp_path), states) == [4]


def test_a_watched_folder_that_goes_away_for_a_while_is_looked_for_again(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    lines(folder, "a", [1])
    reading = reader(jsonl(folder, discovery_interval=0.01))
    found: list[Any] = []

    def look() -> bool:
        polled = reading.poll(10, 0.0)
        if isinstance(polled, SourceBatch):
            found.extend(polled.values)
        return len(found) == 2

    look()
    folder.rename(tmp_path / "away")
    for _ in range(5):
        assert not look()
    lines(tmp_path / "away", "b", [2])
    (tmp_path / "away").rename(folder)
    eventually(look)
    reading.close()
    assert found == [1, 2]


def test_a_watched_file_that_changes_after_it_was_read_fails_the_source(tmp_path: Path) -> None:
    path = lines(tmp_path, "a", [1])
    reading = reader(jsonl(tmp_path, discovery_interval=0.01))
    for _ in range(3):
        reading.poll(10, 0.0)
    with path.open("a") as file:
        file.write("2\n")

    def failed() -> bool:
        try:
            reading.poll(10, 0.0)
        except FileChanged:
            return True
        return False

    eventually(failed)
    reading.close()


def test_a_closed_gate_reads_nothing(tmp_path: Path) -> None:
    lines(tmp_path, "a", [1])
    reading = reader(jsonl(tmp_path))
    reading.pause()
    assert reading.poll(10, 0.0) is None
    reading.resume()
    assert [batch.values for batch in batches(reading)] == [[1]]


def test_credentials_in_the_uri_are_refused_and_not_repeated() -> None:
    for uri in ("s3://key:very-secret@bucket/orders?region=r", "abfs://container:very-secret@account.example/orders"):
        source, sink = FileSource(uri), FileSink(uri, format="jsonl")
        with pytest.raises(FolderUnavailable, match="credentials don't belong into a URI") as read:
            source.validate()
        with pytest.raises(TargetUnavailable, match="credentials don't belong into a URI") as written:
            sink.validate()
        for told in (read.value, written.value, source, sink):
            assert "very-secret" not in f"{told!s} {told!r}"


def test_options_that_are_not_given_have_the_values_that_help_tells() -> None:
    source = FileSource("/data")
    assert source.options == ReaderOptions(
        uri="/data",
        pattern=None,
        format=FormatOptions("parquet", None, None, "fail", 16 * 1024 * 1024, False, None),
        order="name",
        discovery_interval=None,
        split_bytes=128 * 1024 * 1024,
        rate_limit=None,
        on_data_loss="fail",
    )
    assert (source.active_backpressure, source.span_window, source.bounded) == (True, True, True)
    assert (source.max_span_records, source.max_span_bytes) == (None, None)


def test_records_of_json_lines_are_nobody_elses_and_rows_of_parquet_may_be() -> None:
    assert FileSource("/data", format="jsonl").fresh_records
    assert not FileSource("/data").fresh_records


def test_a_folder_may_be_a_path() -> None:
    assert FileSource(Path("/data/orders")).options.uri == FileSource("/data/orders").options.uri == "/data/orders"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"format": "csv"}, "format must be one of 'parquet', 'jsonl'"),
        ({"uri": ""}, "uri must be a folder"),
        ({"pattern": ""}, "pattern must be a glob"),
        ({"format": "jsonl", "columns": ["a"]}, "schema and columns are for Parquet files"),
        ({"schema": {"a": "int"}}, "schema must be a pyarrow.Schema"),
        ({"columns": "a"}, "columns must be a list of names"),
        ({"columns": ["a"], "schema": pa.schema([])}, "without schema"),
        ({"order": "size"}, "order must be one of"),
        ({"discovery_interval": 0}, "discovery_interval must be at least"),
        ({"split_bytes": 0}, "split_bytes must be a whole number"),
        ({"on_bad_record": "ignore"}, "on_bad_record must be one of"),
        ({"value_type": dict[str, int]}, "value_type is for JSON lines"),
        ({"value_type": 5, "format": "jsonl"}, "value_type must be a dataclass"),
        ({"on_data_loss": "earliest"}, "on_data_loss must be one of"),
        ({"max_record_bytes": True}, "max_record_bytes must be a whole number"),
        ({"rate_limit": 0}, "rate_limit must be a number"),
        ({"max_span_records": 0}, "max_span_records must be a whole number"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FileSource(**{"uri": tmp_path.as_uri(), **options})


def test_a_file_that_has_changed_since_the_first_start_is_read_as_it_is_now_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("same", "changed"):
        (tmp_path / f"{name}.jsonl").write_text("1\n")
    source = FileSource(tmp_path)
    kept = source.resolution(source.resolve())
    (tmp_path / "changed.jsonl").write_text("1\n2\n")
    (tmp_path / "new.jsonl").write_text("3\n")
    resolved = source.with_resolution(kept)
    assert [Path(path).name for path in NAMED.findall(caplog.text)] == ["changed.jsonl"]
    sizes = {Path(path).name: size for path, size, _ in source.resolution(resolved)}
    assert sizes == {"same.jsonl": 2, "changed.jsonl": 4, "new.jsonl": 2}
