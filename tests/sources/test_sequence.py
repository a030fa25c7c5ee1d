"""SequenceSource: every id once, in order within its partition, whatever is restored at which parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stopped_clock import StoppedClock

from pipeline.testing import check_source_contract
from sources import END, SequenceSource, SourceBatch, SourceContext, SourceReader, sequence
from sources.rate_limit import RateLimit


class NoMetrics:
    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: float | str | None) -> None: ...


def context(subtask: int = 0, parallelism: int = 1, restored: Sequence[Any] | None = None) -> SourceContext:
    return SourceContext("p", "numbers", subtask, parallelism, NoMetrics(), restored)


def readers(source: SequenceSource, parallelism: int, restored: Sequence[Any] | None = None) -> list[SourceReader]:
    return [source.create_reader(context(i, parallelism, restored)) for i in range(parallelism)]


def read_all(reader: SourceReader, max_records: int = 100) -> list[dict[str, int]]:
    records: list[dict[str, int]] = []
    while (batch := reader.poll(max_records, 0)) is not END:
        assert isinstance(batch, SourceBatch)
        assert len(batch) <= max_records
        records += batch.values
    return records


def test_every_id_comes_once_and_in_order_within_its_partition() -> None:
    records = [r for reader in readers(SequenceSource(1000, partitions=5), 2) for r in read_all(reader, 7)]

    assert sorted(r["id"] for r in records) == list(range(1000))
    for k in range(5):
        ids = [r["id"] for r in records if r["partition"] == k]
        assert ids == sorted(ids)
        assert len(ids) == 200


def test_partitions_are_as_many_as_the_first_start_has_subtasks() -> None:
    records = [r for reader in readers(SequenceSource(90), 3) for r in read_all(reader)]

    assert {r["partition"] for r in records} == {0, 1, 2}


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 200),
    partitions=st.integers(1, 7),
    widths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    data=st.data(),
)
def test_restoring_at_any_parallelism_from_any_barrier_loses_and_doubles_nothing(
    n: int, partitions: int, widths: list[int], data: st.DataObject
) -> None:
    source = SequenceSource(n, partitions=partitions)
    emitted: list[dict[str, int]] = []
    restored: list[Any] | None = None
    for width in widths:
        states = []
        for reader in readers(source, width, restored):
            taken = 0
            for _ in range(data.draw(st.integers(0, 3), label="polls")):
                batch = reader.poll(data.draw(st.integers(1, 20), label="max_records"), 0)
                if not isinstance(batch, SourceBatch):
                    break
                taken = len(batch)
                emitted += batch.values
            else:
                if taken:  # the barrier falls in the middle of the batch last polled
                    cut = data.draw(st.integers(0, taken), label="emitted")
                    del emitted[len(emitted) - (taken - cut) :]
                    taken = cut
            states.append(reader.snapshot(1, taken))
        restored = states
    emitted += [r for reader in readers(source, 2, restored) for r in read_all(reader)]

    assert sorted(r["id"] for r in emitted) == list(range(n))
    for k in range(partitions):
        ids = [r["id"] for r in emitted if r["partition"] == k]
        assert ids == sorted(ids)


def test_a_subtask_without_partitions_ends_when_bounded_and_waits_when_not() -> None:
    assert readers(SequenceSource(10, partitions=1), 2)[1].poll(10, 0) is END

    idle = readers(SequenceSource(None, partitions=1), 2)[1]
    assert idle.poll(10, 0) is None
    assert idle.snapshot(1, 0)["splits"] == []


def test_end_is_repeated() -> None:
    reader = SequenceSource(0).create_reader(context())

    assert [reader.poll(10, 0) for _ in range(3)] == [END, END, END]


def test_a_paused_source_emits_nothing_and_goes_on_where_it_was() -> None:
    reader = SequenceSource(None).create_reader(context())
    first = reader.poll(5, 0)
    reader.pause()
    assert reader.poll(5, 0) is None
    reader.resume()
    second = reader.poll(5, 0)

    assert isinstance(first, SourceBatch)
    assert isinstance(second, SourceBatch)
    assert [r["id"] for r in first.values + second.values] == list(range(10))


def test_another_number_of_partitions_than_the_checkpoint_has_is_refused() -> None:
    states = [r.snapshot(1, 0) for r in readers(SequenceSource(10, partitions=4), 2)]

    with pytest.raises(ValueError, match="checkpoint was taken with 4"):
        SequenceSource(10, partitions=5).create_reader(context(restored=states))


def test_a_part_of_the_old_state_is_refused_since_ids_would_come_twice() -> None:
    states = [r.snapshot(1, 0) for r in readers(SequenceSource(10, partitions=4), 2)]

    with pytest.raises(RuntimeError, match="state of all old subtasks"):
        SequenceSource(10).create_reader(context(restored=states[:1]))


def test_state_of_another_source_is_refused() -> None:
    with pytest.raises(ValueError, match="another kind or version of source"):
        SequenceSource(10).create_reader(context(restored=[{"version": 99}]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n": -1}, "n must be"),
        ({"n": True}, "n must be"),
        ({"n": 1, "rate": 0}, "rate must be"),
        ({"n": 1, "partitions": 0}, "partitions must be"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SequenceSource(**options)


def test_it_keeps_the_source_contract() -> None:
    check_source_contract(lambda: SequenceSource(40, partitions=3))


def test_only_subtasks_with_partitions_have_a_share_of_the_rate() -> None:
    """At 2 records/s over two of three subtasks the first record of each is free, the second takes a second."""
    batches = [reader.poll(10, 0) for reader in readers(SequenceSource(None, rate=2, partitions=2), 3)]

    assert [len(b) if isinstance(b, SourceBatch) else b for b in batches] == [1, 1, None]


def test_each_poll_takes_from_the_share_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 records/s over two of three subtasks each has 150, and may save up 15."""
    clock = StoppedClock(monkeypatch, sequence)
    for subtask in (0, 1):
        reader = readers(SequenceSource(None, rate=300, partitions=2), 3)[subtask]
        assert [clock.records_after(seconds, reader) for seconds in (0, 0, 60, 0, 0.05)] == [1, 0, 15, 0, 7]


def test_no_more_records_than_the_rate_allows() -> None:
    limit = RateLimit(100.0, now=0.0)
    emitted = 0
    for step in range(1, 1001):
        allowed = limit.allowance(step * 0.01)
        limit.take(allowed)
        emitted += allowed

    assert emitted == pytest.approx(1000, abs=2)


def test_a_long_wait_saves_up_no_more_than_a_burst() -> None:
    assert RateLimit(100.0, now=0.0).allowance(3600.0) == 10


def test_a_slow_rate_says_how_long_to_wait() -> None:
    limit = RateLimit(2.0, now=0.0)
    limit.take(limit.allowance(0.0))

    assert limit.wait(0.1) == pytest.approx(0.4)
    assert limit.allowance(0.5) == 1


def test_every_batch_tells_its_partition_and_the_reader_those_that_have_not_ended() -> None:
    (reader,) = readers(SequenceSource(5, partitions=2), 1)
    assert reader.splits() == [0, 1]
    told = []
    while (batch := reader.poll(2, 0)) is not END:
        assert isinstance(batch, SourceBatch)
        assert {record["partition"] for record in batch.values} == {batch.splits}
        assert batch.splits in reader.splits()
        told.append(batch.splits)
    assert told == [0, 1, 0]
    assert reader.splits() == []


def test_a_subtask_without_partitions_has_no_splits() -> None:
    assert [reader.splits() for reader in readers(SequenceSource(5, partitions=1), 2)] == [[0], []]
