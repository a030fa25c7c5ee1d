"""Where the partitions of a subtask start and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from sources.kafka.options import KafkaOptions, PartitionKey
from sources.kafka.splits import Split, to_state
from sources.kafka.start import SplitAssignment, open_splits

LOW, HIGH = 5, 100


class Topic:
    name, id, partitions = "t", "id", 2


class Log:
    """What a cluster says of a topic's partitions."""

    def earliest(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        return dict.fromkeys(keys, LOW)

    def latest(self, keys: Iterable[PartitionKey], committed: bool = False) -> dict[PartitionKey, int]:
        return dict.fromkeys(keys, HIGH)

    def at(self, keys: Iterable[PartitionKey], timestamp: int) -> dict[PartitionKey, int]:
        return dict.fromkeys(keys, timestamp)


def opened(
    restored: list[Any] | None = None, committed: Mapping[PartitionKey, int | None] | None = None, **options: Any
) -> dict[int, Split]:
    """By partition."""
    splits = open_splits(
        KafkaOptions("nowhere:1", topics=("t",), **options),
        SplitAssignment("in", restored=restored or ()),
        Log(),  # type: ignore[arg-type]
        {"t": Topic()},  # type: ignore[dict-item]
        lambda keys: committed or {},
    )
    return {split.partition: split for split in splits}


def starts(**options: Any) -> list[int]:
    splits = opened(**options)
    return [splits[number].position for number in sorted(splits)]


def state(*splits: Split) -> list[Any]:
    return [to_state(splits, 0, 1)]


def at(position: int, end: int | None = None, ended: bool = False, partition: int = 0) -> Split:
    return Split("t", partition, "id", position, end, ended)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [LOW, LOW]),
        ("latest", [HIGH, HIGH]),
        ({"timestamp": 50}, [50, 50]),
        ({("t", 1): 70}, [LOW, 70]),
        ({"t": 60, ("t", 1): 70}, [60, 70]),
    ],
)
def test_a_first_start_is_where_the_options_say(start: Any, expected: list[int]) -> None:
    assert starts(start=start) == expected


def test_a_group_without_a_committed_offset_begins_at_the_beginning() -> None:
    committed = {("t", 0): 33, ("t", 1): None}
    assert starts(start="group", group_id="g", committed=committed) == [33, LOW]


def test_a_partition_that_came_after_the_checkpoint_is_read_from_its_beginning() -> None:
    """Wherever the options have a first start begin."""
    assert starts(start="latest", restored=state(at(42))) == [42, LOW]


def test_an_end_that_was_settled_stays_and_one_that_is_reached_ends_the_split() -> None:
    splits = opened(end="latest", restored=state(at(42, end=50), at(60, end=60, partition=1)))
    assert [(one.position, one.end, one.ended) for one in splits.values()] == [(42, 50, False), (60, 60, True)]


def test_an_explicit_end_is_what_the_options_say_now() -> None:
    ended = state(at(50, end=50, ended=True), at(50, end=50, ended=True, partition=1))
    splits = opened(end={"t": 80, ("t", 1): 50}, restored=ended)
    assert [(one.end, one.ended) for one in splits.values()] == [(80, False), (50, True)]
    assert [(one.end, one.ended) for one in opened(restored=ended).values()] == [(None, False), (None, False)]


def test_a_partition_that_came_after_the_end_was_settled_is_not_read() -> None:
    splits = opened(end="latest", restored=state(at(42, end=50)))
    assert [(one.position, one.end, one.ended) for one in splits.values()] == [(42, 50, False), (LOW, LOW, True)]
