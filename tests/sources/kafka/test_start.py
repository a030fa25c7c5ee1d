"""Where the partitions of a subtask start and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from sources.kafka.errors import DataLoss
from sources.kafka.options import KafkaOptions, PartitionKey
from sources.kafka.splits import Split, to_state
from sources.kafka.start import SplitAssignment, open_splits

LOW, HIGH = 5, 100


class Topic:
    def __init__(self, name: str = "t", id: str = "id") -> None:
        self.name, self.id, self.partitions = name, id, 2


class Log:
    """What a cluster says of topics' partitions."""

    def earliest(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        return dict.fromkeys(keys, LOW)

    def latest(self, keys: Iterable[PartitionKey], committed: bool = False) -> dict[PartitionKey, int]:
        return dict.fromkeys(keys, HIGH)

    def at(self, keys: Iterable[PartitionKey], timestamp: int) -> dict[PartitionKey, int]:
        return dict.fromkeys(keys, timestamp)


def opened(
    restored: list[Any] | None = None,
    committed: Mapping[PartitionKey, int | None] | None = None,
    id: str = "id",
    others: Iterable[str] = (),
    **options: Any,
) -> dict[int, Split]:
    """By partition.

    Args:
        others: topics that there are beside "t".
    """
    topics: Any = {"t": Topic(id=id), **{name: Topic(name) for name in others}}
    splits = open_splits(
        KafkaOptions("nowhere:1", **({"topics": ("t",)} if "pattern" not in options else {}), **options),
        SplitAssignment("in", restored=restored or ()),
        Log(),  # type: ignore[arg-type]
        topics,
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


@pytest.mark.parametrize(
    ("options", "others", "ends"),
    [
        ({"pattern": ".*"}, ["u"], [LOW, LOW]),
        ({"topics": ("t", "u")}, ["u"], [HIGH, HIGH]),  # named by the user since, it is read as at a first start
    ],
)
def test_a_topic_that_came_after_the_end_was_settled_is_read_if_it_is_named(
    options: dict[str, Any], others: list[str], ends: list[int]
) -> None:
    there: Any = {"t": Topic(), **{name: Topic(name) for name in others}}
    assignment = SplitAssignment("in", restored=state(at(42, end=50), at(42, end=50, partition=1)))
    log: Any = Log()
    splits = open_splits(KafkaOptions("b:1", end="latest", **options), assignment, log, there, lambda keys: {})
    assert [split.end for split in splits if split.topic == "u"] == ends


def test_without_any_end_settled_a_partition_that_came_later_has_that_of_the_start() -> None:
    splits = opened(end="latest", restored=state(at(42)))
    assert [(one.position, one.end) for one in splits.values()] == [(42, HIGH), (LOW, HIGH)]


def test_each_subtask_has_its_own_partitions() -> None:
    topics: Any = {"t": Topic()}
    log: Any = Log()
    found = [
        [split.partition for split in open_splits(OPTIONS, SplitAssignment("in", i, 2), log, topics, lambda keys: {})]
        for i in (0, 1)
    ]
    assert sorted(found) == [[0], [1]]


OPTIONS = KafkaOptions("b:1", topics=("t",))
BOTH = [at(42, partition=0), at(43, partition=1)]


def test_a_topic_that_was_created_again_is_a_loss_unless_that_may_be() -> None:
    with pytest.raises(DataLoss, match=r"t\[0\] was deleted and created again since the checkpoint, .* at offset 42"):
        opened(id="new", restored=state(*BOTH))
    splits = opened(id="new", restored=state(*BOTH), on_data_loss="earliest")
    assert [(one.topic_id, one.position) for one in splits.values()] == [("new", LOW), ("new", LOW)]


def test_a_topic_that_is_gone_is_a_loss_unless_nobody_reads_it(caplog: pytest.LogCaptureFixture) -> None:
    gone = Split("gone", 0, "id", 9)
    with pytest.raises(DataLoss, match=r"gone\[0\] is gone: its topic was deleted since the checkpoint"):
        opened(restored=state(*BOTH, gone), pattern=".*")
    splits = opened(restored=state(*BOTH, gone))
    assert [one.position for one in splits.values()] == [42, 43]
    assert "gone[0] is in the checkpoint at offset 9, but not read any more" in caplog.text


def test_nothing_is_lost_with_a_topic_that_was_read_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    ended = state(at(50, end=50, ended=True), at(50, end=50, ended=True, partition=1))
    splits = opened(id="new", restored=ended, end="latest")
    assert [(one.topic_id, one.position, one.ended) for one in splits.values()] == [("id", 50, True)] * 2
    assert "had been read to its end: nothing is lost" in caplog.text
    with pytest.raises(DataLoss, match="it had been read to its end"):
        opened(id="new", restored=ended)  # without an end there is more to be read, and some of it is gone


@pytest.mark.parametrize(("end", "told"), [(HIGH - 1, True), (HIGH, False)])
def test_what_came_behind_the_ends_of_a_source_that_has_ended_is_told(
    caplog: pytest.LogCaptureFixture, end: int, told: bool
) -> None:
    ended = [at(end, end=end, ended=True, partition=number) for number in (0, 1)]
    opened(restored=state(*ended), end="latest")
    assert (f"t[0] had ended at offset {end} by the checkpoint" in caplog.text) is told
    caplog.clear()
    opened(restored=state(ended[0], at(10, end=end, partition=1)), end="latest")
    assert "had ended" not in caplog.text  # as long as something is left to be read, nobody wonders


def test_a_position_that_retention_has_passed_is_a_loss_but_at_the_beginning() -> None:
    with pytest.raises(DataLoss, match="the checkpointed offset is 3"):
        opened(restored=state(at(3), at(3, partition=1)))
    with pytest.raises(DataLoss, match="the offset to start from is 3"):
        opened(start={"t": 3})
    assert [one.position for one in opened(restored=state(at(LOW), at(LOW, partition=1))).values()] == [LOW, LOW]
