"""One subtask of a file source: its share of the rate, files that go or change while it runs, and what it leaves."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stopped_clock import StoppedClock

from checkpoint.codec import decode, encode
from formats.arrow_rows import rows
from formats.errors import BadRecord
from sources import END, FileSource, SourceBatch, SourceContext, SourceReader
from sources.files import reader
from sources.files.errors import FileChanged, FileGone
from sources.positions import positions
from sources.source import Position


class NoMetrics:
    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: float | str | None) -> None: ...


def open_reader(source: FileSource, restored: Sequence[Any] | None = None, parallelism: int = 1) -> SourceReader:
    if restored is not None:
        restored = [decode(encode(state)) for state in restored]
    return source.create_reader(SourceContext("p", "in", 0, parallelism, NoMetrics(), restored))


def read(reading: SourceReader) -> list[Any]:
    """Until the end."""
    return [value for batch in batches(reading) for value in batch]


def batches(reading: SourceReader) -> Iterator[list[Any]]:
    while (polled := reading.poll(10_000, 0.0)) is not END:
        if isinstance(polled, SourceBatch):
            yield polled.values if isinstance(polled.values, list) else rows(polled.values)


def parquet(path: Path, count: int) -> None:
    pq.write_table(pa.table({"id": pa.array(range(count), pa.int64())}), path, row_group_size=10)


def test_each_poll_takes_from_the_subtasks_share_of_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 records/s each of two subtasks has 150, and may save up 15."""
    for name in "abcdefgh":  # whoever they belong to
        (tmp_path / name).write_text("1\n" * 100)
    clock = StoppedClock(monkeypatch, reader)
    reading = open_reader(FileSource(tmp_path, format="jsonl", rate_limit=300), parallelism=2)
    assert [clock.records_after(seconds, reading) for seconds in (0, 0, 60, 0, 0.05)] == [1, 0, 15, 0, 7]
    reading.close()


def test_a_file_that_is_gone_when_its_turn_comes_is_left_out_for_good_if_that_is_accepted(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(f'"{name}"\n')
    reading = open_reader(FileSource(tmp_path, format="jsonl", on_data_loss="skip"))
    (tmp_path / "b").unlink()
    assert read(reading) == ["a", "c"]
    assert positions(reading.snapshot(1, 0)) == [Position("files read", 2, 2, ended=True)]
    reading = open_reader(FileSource(tmp_path, format="jsonl"))
    (tmp_path / "a").unlink()
    with pytest.raises(FileGone, match=r"a is gone from .*nothing of it was read"):
        read(reading)


@pytest.mark.parametrize(("before", "after"), [(30, 300), (300, 30)])
def test_a_file_that_is_read_in_parts_may_not_change_though_nothing_of_it_was_read(
    tmp_path: Path, before: int, after: int
) -> None:
    """Who reads its other parts may have begun."""
    parquet(tmp_path / "a", before)
    size = (tmp_path / "a").stat().st_size
    parquet(tmp_path / "other", after)
    source = FileSource(tmp_path, split_bytes=(size + (tmp_path / "other").stat().st_size) // 2, pattern="a")
    reading = open_reader(source)
    (tmp_path / "other").rename(tmp_path / "a")
    with pytest.raises(FileChanged, match=r"a in .* has changed while it was being read"):
        read(reading)
    parquet(tmp_path / "a", before)
    state = open_reader(source).snapshot(1, 0)
    parquet(tmp_path / "a", after)
    with pytest.raises(FileChanged, match=r"a in .* has changed while it was being read"):
        open_reader(source, [state])


def test_restores_within_a_large_row_group_go_on_at_the_row_behind(tmp_path: Path) -> None:
    """One after the other, further in than what is read at once."""
    pq.write_table(pa.table({"id": pa.array(range(30_000), pa.int64())}), tmp_path / "a", row_group_size=25_000)
    source, states, seen = FileSource(tmp_path), None, 0
    for most in (10_000, 11_000, 20_000):
        reading, polled = open_reader(source, states), None
        while seen < most:
            polled = reading.poll(1000, 0.0)
            if isinstance(polled, SourceBatch):
                assert polled.context is not None
                assert [polled.context[0].file_row, *rows(polled.values)[:1]] == [seen, {"id": seen}]
                seen += len(polled)
        states = [reading.snapshot(1, 0)]
        assert isinstance(polled, SourceBatch)
        seen -= len(polled)
        reading.close()
    assert [row["id"] for row in read(open_reader(source, states))] == list(range(seen, 30_000))


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_restore_goes_on_at_the_line_behind_whatever_the_last_one_ends_with(tmp_path: Path, end: str) -> None:
    (tmp_path / "a").write_text(f"10\n11\n\n13{end}")
    source = FileSource(tmp_path, format="jsonl")
    places = [(10, 0), (11, 1), (13, 3)]
    reading, seen = open_reader(source), 0
    while (polled := reading.poll(10, 0.0)) is not END:
        size = len(polled) if isinstance(polled, SourceBatch) else 0
        for emitted in range(size + 1):
            restored = open_reader(source, [reading.snapshot(1, emitted)])
            assert list(places_of(restored)) == places[seen + emitted :]
            restored.close()
        seen += size
    assert seen == len(places)
    reading.close()


def test_contexts_of_some_records_of_a_batch_are_theirs(tmp_path: Path) -> None:
    parquet(tmp_path / "a", 9)
    reading = open_reader(FileSource(tmp_path))
    polled = reading.poll(10, 0.0)
    assert isinstance(polled, SourceBatch)
    assert polled.context is not None
    assert [(one.file, one.file_row) for one in polled.context[2:5]] == [("a", 2), ("a", 3), ("a", 4)]
    reading.close()


def places_of(reading: SourceReader) -> Iterator[tuple[Any, int]]:
    """Each record, and its line."""
    while (polled := reading.poll(10, 0.0)) is not END:
        if isinstance(polled, SourceBatch):
            assert polled.context is not None
            yield from ((value, row.file_row) for value, row in zip(polled.values, polled.context, strict=True))


def test_half_a_line_at_the_end_of_a_file_that_was_cut_off_and_removed_is_no_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text(f'"{"x" * 1000}"\n' * 3000)  # more than is read at once
    reading = open_reader(FileSource(tmp_path, format="jsonl"))
    reading.poll(1, 0.0)
    with path.open("r+b") as file:
        file.truncate(2_000_000)
    path.unlink()
    with pytest.raises(FileGone, match=r"a is gone from .*part of it was read"):
        read(reading)


def test_a_compressed_file_that_is_removed_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """Its size doesn't say where its content ends."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"1\n" * 1000))
    reading = open_reader(FileSource(tmp_path, format="jsonl"))
    reading.poll(1, 0.0)
    path.unlink()
    with pytest.raises(FileGone, match=r"a.gz is gone from .*part of it was read"):
        read(reading)


def test_the_line_that_is_too_long_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n" + "x" * 2000)
    with pytest.raises(BadRecord, match=r"a: line 3 has more than 1,000 bytes"):
        read(open_reader(FileSource(tmp_path, format="jsonl", max_record_bytes=1000)))
    (tmp_path / "a").write_text('"' + "x" * 998 + '"')
    assert read(open_reader(FileSource(tmp_path, format="jsonl", max_record_bytes=1000))) == ["x" * 998]


def test_a_reader_that_is_closed_has_nothing_open_and_looks_for_no_more_files(tmp_path: Path) -> None:
    parquet(tmp_path / "a", 30)
    (tmp_path / "b").write_text("1\n2\n")
    for source in (
        FileSource(tmp_path, pattern="a", discovery_interval=0.01),
        FileSource(tmp_path, format="jsonl", pattern="b", discovery_interval=0.01),
    ):
        before = set(threading.enumerate())
        reading = open_reader(source)
        looking = {one for one in threading.enumerate() if one.name == "weir-file-discovery"} - before
        assert isinstance(reading.poll(1, 0.0), SourceBatch)
        assert opened_below(tmp_path)
        reading.close()
        assert opened_below(tmp_path) == []
        assert [one.is_alive() for one in looking] == [False]
        reading.close()


def opened_below(folder: Path) -> list[str]:
    """What this process has open there."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # another thread's, closed since
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(f"{folder}/")]
