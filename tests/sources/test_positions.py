"""What a checkpoint holds of a source is read back as positions."""

from __future__ import annotations

import pytest

from sources import SequenceSource, SourceContext
from sources.kafka.splits import Split, to_state
from sources.positions import positions
from sources.source import Position


class NoMetrics:
    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: float | str | None) -> None: ...


def test_offsets_of_a_kafka_source_by_topic_and_partition() -> None:
    splits = [Split("t", 10, "id", 7, 7, ended=True), Split("t", 2, "id", 5), Split("a", 0, "id", 0, 3)]
    assert positions(to_state(splits, 1, 2)) == [
        Position("a[0]", 0, 3),
        Position("t[2]", 5),
        Position("t[10]", 7, 7, ended=True),
    ]


def test_next_ids_of_a_sequence_by_partition() -> None:
    reader = SequenceSource(100, partitions=3).create_reader(SourceContext("p", "numbers", 0, 1, NoMetrics()))
    reader.poll(4, 0)
    assert positions(reader.snapshot(1, emitted=2)) == [Position("0", 6), Position("1", 1), Position("2", 2)]


@pytest.mark.parametrize("state", [None, 5, [[0, 3]], {"version": 2, "partitions": 1, "splits": []}, {"version": 1}])
def test_the_state_of_another_source_is_not_taken_for_one(state: object) -> None:
    assert positions(state) is None
