"""TestingSource and TestingSink against the contracts that the runtime relies on."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from checkpoint.codec import decode, encode
from pipeline.testing import AbortError, ManualClock, TestingSink, TestingSource
from sinks.sink import Committable, CommittableName, Committer, CommitterContext, Lineage, WriterContext
from sources.source import END, SourceBatch, SourceContext, SourceReader

ABORT, EOF, PAUSE = TestingSource.ABORT, TestingSource.EOF, TestingSource.PAUSE


class NoMetrics:
    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: float | str | None) -> None: ...


def reader(
    source: TestingSource, restored: Sequence[Any] | None = None, subtask: int = 0, parallelism: int = 1
) -> SourceReader:
    shipped: TestingSource = pickle.loads(pickle.dumps(source))
    return shipped.create_reader(SourceContext("job", "source", subtask, parallelism, NoMetrics(), restored))


def poll(of: SourceReader, most: int) -> Any:
    return of.poll(most, 0.0)


def batches(of: SourceReader) -> Iterator[list[Any]]:
    """Until the end, or a poll that finds nothing."""
    while isinstance(batch := of.poll(1000, 0.0), SourceBatch):
        yield batch.values


def everything(of: SourceReader) -> list[Any]:
    return [value for batch in batches(of) for value in batch]


# -- source ---------------------------------------------------------------------------------------------------


def test_values_come_in_order_then_the_end_for_good() -> None:
    r = reader(TestingSource([1, 2, 3]))
    assert everything(r) == [1, 2, 3]
    assert r.poll(10, 0.0) is END
    assert r.poll(10, 0.0) is END


def test_batches_tell_their_partition_and_the_reader_those_that_have_not_ended() -> None:
    source = TestingSource(partitions=[[1], [2, PAUSE(), 3]])
    r = reader(source)
    assert r.splits() == [0, 1]
    assert [poll(r, 10).splits for _ in range(2)] == [0, 1]
    assert r.splits() == [0, 1]
    assert poll(r, 10) is None
    assert r.splits() == [1]


def test_only_subtask_0_reads_a_single_list() -> None:
    source = TestingSource([1])
    assert everything(reader(source, subtask=0, parallelism=2)) == [1]
    assert reader(source, subtask=1, parallelism=2).poll(10, 0.0) is END


def test_partitions_are_spread_over_the_subtasks() -> None:
    source = TestingSource(partitions=[["a0", "a1"], ["b0"], ["c0"]])
    assert everything(reader(source, subtask=0, parallelism=2)) == ["a0", "a1", "c0"]
    assert everything(reader(source, subtask=1, parallelism=2)) == ["b0"]


def test_no_more_is_returned_than_asked_for() -> None:
    r = reader(TestingSource(range(5)))
    assert poll(r, 2).values == [0, 1]
    assert list(batches(reader(TestingSource(range(5), batch_size=2)))) == [[0, 1], [2, 3], [4]]


def test_the_position_counts_what_was_emitted_of_the_batch() -> None:
    source = TestingSource(range(5))
    r = reader(source)
    poll(r, 1000)
    position = decode(encode(r.snapshot(1, emitted=2)))
    assert everything(reader(source, [position])) == [2, 3, 4]


def test_a_position_before_the_first_poll_is_the_start() -> None:
    source = TestingSource([1])
    assert everything(reader(source, [reader(source).snapshot(1, 0)])) == [1]


def test_positions_survive_another_parallelism() -> None:
    source = TestingSource(partitions=[[10, 11, 12], [20, 21, 22], [30, 31, 32]], batch_size=1)
    positions = []
    for subtask in range(2):
        r = reader(source, subtask=subtask, parallelism=2)
        poll(r, 1)
        positions.append(r.snapshot(1, 1))
    left = [everything(reader(source, positions, subtask, 3)) for subtask in range(3)]
    assert left == [[11, 12], [21, 22], [30, 31, 32]]


def test_abort_fails_once_after_everything_before_it_was_emitted() -> None:
    source = TestingSource([1, 2, ABORT(), 3])
    r = reader(source)
    assert poll(r, 1000).values == [1, 2]
    position = r.snapshot(1, 2)
    with pytest.raises(AbortError):
        poll(r, 1000)
    assert everything(reader(source, [position])) == [3]
    assert everything(reader(source)) == [1, 2, 3]


def test_every_abort_fails_once() -> None:
    source = TestingSource([ABORT(), 1, ABORT(), 2])
    for expected in ([], [1]):
        r = reader(source)
        seen: list[int] = []
        with pytest.raises(AbortError):
            seen.extend(value for batch in batches(r) for value in batch)
        assert len(seen) == len(expected)
    assert everything(reader(source)) == [1, 2]


def test_eof_ends_this_execution_and_a_restore_of_its_end_goes_on_behind_it() -> None:
    source = TestingSource([1, EOF(), 2])
    r = reader(source)
    assert everything(r) == [1]
    before_the_end = r.snapshot(1, 0)
    assert r.poll(10, 0.0) is END
    assert everything(reader(source, [before_the_end])) == [2]
    r = reader(source)
    assert poll(r, 10).values == [1]
    not_there_yet = r.snapshot(1, 1)
    assert everything(reader(source, [not_there_yet])) == []


def test_a_pause_holds_until_it_is_released() -> None:
    source = TestingSource([1, PAUSE(), 2, PAUSE(), 3])
    r = reader(source)
    assert everything(r) == [1]
    assert r.poll(10, 0.0) is None
    source.wait_until_paused(0)
    source.release()
    assert everything(r) == [2]
    assert r.poll(10, 0.0) is None
    source.release()
    assert everything(r) == [3]
    assert r.poll(10, 0.0) is END


def test_a_released_pause_does_not_hold_after_a_restart() -> None:
    source = TestingSource([1, PAUSE(), 2])
    source.release()
    assert everything(reader(source)) == [1, 2]


def test_waiting_for_a_pause_that_nobody_reached_is_an_error() -> None:
    with pytest.raises(TimeoutError, match="PAUSE"):
        TestingSource([1, PAUSE()]).wait_until_paused(0.02)


def test_a_closed_gate_stops_the_source() -> None:
    r = reader(TestingSource([1]))
    r.pause()
    assert r.poll(10, 0.0) is None
    r.resume()
    assert poll(r, 10).values == [1]


def test_timestamps_come_from_a_function() -> None:
    r = reader(TestingSource([{"at": 5}, {"at": 7}], timestamp=_at))
    assert poll(r, 10).timestamps == [5, 7]


def test_contradicting_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="either values or partitions"):
        TestingSource([1], partitions=[[2]])
    with pytest.raises(ValueError, match="batch_size"):
        TestingSource([1], batch_size=0)


def _at(value: dict[str, int]) -> int:
    return value["at"]


# -- sink -----------------------------------------------------------------------------------------------------


class Record:
    def __init__(self, key: Any = None, timestamp: int | None = None) -> None:
        self.key, self.timestamp, self.watermark = key, timestamp, None


def committables(epoch: int, *values: Any, key: Any = None, timestamp: int | None = None) -> list[Committable]:
    writer = TestingSink().create_writer(WriterContext("job", "sink", 0, 1, None, NoMetrics()))  # type: ignore[arg-type]
    for value in values:
        writer.write(value, Record(key, timestamp))
    prepared = enumerate(writer.prepare_commit(epoch))
    return [Committable(CommittableName(epoch, i), decode(encode(payload))) for i, payload in prepared]


def committer(sink: TestingSink, writer: int = 0, lineage: str = "a", check_owner: Any = lambda: None) -> Committer:
    shipped: TestingSink = pickle.loads(pickle.dumps(sink))
    return shipped.create_committer(
        CommitterContext("job", "sink", writer, Lineage(lineage), 0, None, False, False, None, NoMetrics(), check_owner)  # type: ignore[arg-type]
    )


def test_nothing_is_visible_before_the_commit_and_all_of_it_after() -> None:
    sink = TestingSink()
    prepared = committables(1, "a", {"n": 1})
    assert sink.records == []
    committer(sink).commit(1, prepared)
    assert sink.records == ["a", {"n": 1}]


def test_an_epoch_is_cut_at_the_barrier() -> None:
    writer = TestingSink().create_writer(WriterContext("job", "sink", 0, 1, None, NoMetrics()))  # type: ignore[arg-type]
    writer.write(1, Record())
    assert len(writer.prepare_commit(1)) == 1
    assert writer.prepare_commit(2) == []


def test_a_repeated_commit_changes_nothing() -> None:
    sink = TestingSink()
    prepared = [*committables(1, 1, 2), *committables(2, 3)]
    committer(sink).commit(1, prepared[:1])
    committer(sink).commit(2, prepared)
    committer(sink).commit(2, prepared)
    assert sink.records == [1, 2, 3]


def test_writers_and_lineages_do_not_hide_each_other() -> None:
    sink = TestingSink()
    committer(sink, writer=0).commit(1, committables(1, "writer 0"))
    committer(sink, writer=1).commit(1, committables(1, "writer 1"))
    committer(sink, writer=1, lineage="b").commit(1, committables(1, "lineage b"))
    assert sink.records == ["writer 0", "writer 1", "lineage b"]


def test_records_come_in_the_order_of_commits() -> None:
    sink = TestingSink()
    for epoch in range(1, 13):
        committer(sink, writer=epoch % 2).commit(epoch, committables(epoch, epoch))
    assert sink.records == list(range(1, 13))


def test_what_is_known_of_a_record_is_kept() -> None:
    sink = TestingSink()
    committer(sink, writer=3).commit(7, committables(6, "v", key="k", timestamp=12))
    record = sink.committed[0]
    assert (record.value, record.key, record.timestamp, record.writer, record.checkpoint) == ("v", "k", 12, 3, 7)


def test_concurrent_commits_keep_everything() -> None:
    sink = TestingSink()
    threads = [
        threading.Thread(
            target=lambda o=writer: [committer(sink, o).commit(e, committables(e, (o, e))) for e in range(1, 6)]
        )
        for writer in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sink.records) == [(writer, epoch) for writer in range(4) for epoch in range(1, 6)]


def test_a_fenced_committer_commits_nothing() -> None:
    def fenced() -> None:
        raise RuntimeError("fenced")

    sink = TestingSink()
    with pytest.raises(RuntimeError, match="fenced"):
        committer(sink, check_owner=fenced).commit(1, committables(1, "x"))
    assert sink.records == []


def test_a_directory_outlives_the_sink(tmp_path: Path) -> None:
    committer(TestingSink(tmp_path)).commit(1, committables(1, "kept"))
    sink = TestingSink(tmp_path)
    assert sink.records == ["kept"]
    sink.clear()
    assert sink.records == []


# -- clock ----------------------------------------------------------------------------------------------------


def test_a_manual_clock_moves_only_when_told_and_never_back() -> None:
    clock = ManualClock(10.0)
    assert (clock(), clock.now) == (10.0, 10.0)
    assert clock.advance(0.5) == 10.5
    assert clock.advance_to(12) == 12.0
    assert clock.milliseconds == 12_000
    with pytest.raises(ValueError, match="can't go back"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="can't go back"):
        clock.advance_to(11)
