"""Which partitions a subtask reads, and from where to where. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from checkpoint.counted import counted
from sources.kafka.errors import DataLoss
from sources.kafka.letters import Letter
from sources.kafka.options import PartitionKey
from sources.source import Position

_STATE_VERSION: Final = 1
_SHOWN: Final = 5
"""Partitions in a message."""


@dataclass(slots=True)
class Split:
    """One partition as a source reads it."""

    topic: str
    partition: int
    topic_id: str
    position: int
    """The next offset to read, as known when the partition was assigned to the consumer or ended."""
    end: int | None = None
    """The first offset not to read, fixed at the first start; `None` = unbounded."""
    ended: bool = False

    @property
    def key(self) -> PartitionKey:
        return (self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


def owner(partition: PartitionKey, parallelism: int) -> int:
    """The subtask that reads a partition.

    Depends on nothing but the name, so that partitions found later leave the others where they are: one read by
    two subtasks for a moment would be doubled. The partitions of one topic are spread evenly.
    """
    topic, number = partition
    return (xxhash.xxh32_intdigest(topic.encode()) + number) % parallelism


def to_state(splits: Iterable[Split], subtask: int, parallelism: int, letters: Sequence[Letter] = ()) -> dict[str, Any]:
    """What a checkpoint keeps of one subtask; `letters` are the dead letters that are not out."""
    return {
        "version": _STATE_VERSION,
        "subtask": subtask,
        "parallelism": parallelism,
        "splits": [[s.topic, s.partition, s.topic_id, s.position, s.end, s.ended] for s in splits],
        "dead_letters": [letter.to_wire() for letter in letters],
    }


def from_states(states: Sequence[Any], source_id: str) -> dict[PartitionKey, Split]:
    """The union of what all old subtasks kept.

    Raises:
        ValueError: it is not the state of a Kafka source.
        RuntimeError: the state of an old subtask is missing, or a partition is in two of them.
    """
    splits: dict[PartitionKey, Split] = {}
    present: set[int] = set()
    for state in states:
        if not isinstance(state, Mapping) or state.get("version") != _STATE_VERSION or "parallelism" not in state:
            raise ValueError(
                f"source {source_id}: the checkpoint holds the state of another kind or version of source "
                f"({state!r:.200}). Give the source the id it had, or start without restoring"
            )
        present.add(state["subtask"])
        for row in state["splits"]:
            split = Split(*row)
            if split.key in splits:
                raise RuntimeError(f"source {source_id}: {split} is in the restored state of two subtasks")
            splits[split.key] = split
    if states and present != set(range(states[0]["parallelism"])):
        raise RuntimeError(
            f"source {source_id}: the restored state has subtasks {sorted(present)} of {states[0]['parallelism']}. "
            "A subtask needs the state of all old ones, or it would read partitions again from their beginning"
        )
    return splits


def positions_in(state: Any) -> list[Position] | None:
    """What one subtask's state says, by topic and partition; `None` if it is not the state of a Kafka source."""
    match state:
        case {"version": version, "subtask": int(), "splits": list(rows)} if version == _STATE_VERSION:
            splits = sorted((Split(*row) for row in rows), key=lambda split: split.key)
            return [Position(str(split), split.position, split.end, split.ended) for split in splits]
    return None


def named_offset(offsets: Mapping[Any, int], partition: PartitionKey) -> int | None:
    """What an explicit mapping says of a partition; the partition's own entry goes before its topic's."""
    return offsets.get(partition, offsets.get(partition[0]))


def check_named(name: str, offsets: Mapping[Any, int], existing: Iterable[PartitionKey]) -> None:
    """Raises:
    ValueError: an explicit mapping names a partition that doesn't exist.
    """
    existing = set(existing)
    topics = {topic for topic, _ in existing}
    for key in offsets:
        if key not in (existing if isinstance(key, tuple) else topics):
            raise ValueError(f"{name} names {key!r}, which doesn't exist or is not read by this source")


def check_ends(end: Mapping[Any, int], existing: Iterable[PartitionKey]) -> None:
    """Raises:
    ValueError: an explicit mapping names a partition that doesn't exist, or leaves one out.
    """
    existing = sorted(existing)
    check_named("end", end, existing)
    missing = [f"{topic}[{number}]" for topic, number in existing if named_offset(end, (topic, number)) is None]
    if missing:
        more = f" and {counted(len(missing) - _SHOWN, 'more partition')}" if len(missing) > _SHOWN else ""
        raise ValueError(
            f"end names no offset for {', '.join(missing[:_SHOWN])}{more}, which would never end. Name each partition, "
            'or its topic for all that are not named; an offset of 0 reads nothing of it. Or use end="latest"'
        )


def lost_range(position: int, low: int, end: int | None) -> range:
    """The offsets that were to be read and are in front of the log's beginning.

    Args:
        position: the next one to read.
        low: the log's beginning.
        end: the first one that was not to be read; `None` = no end.
    """
    return range(position, low if end is None else min(low, end))


def check_position(
    split: Split, low: int, high: int, origin: str, on_data_loss: str, says_so: str = "on_data_loss"
) -> str | None:
    """Check that a split's position lies in its log, `low` to `high`. One that has nothing left to read is fine.

    Args:
        says_so: the option that has the value of `on_data_loss`.

    Returns:
        A warning for the log, after moving the position to `low`, or to the split's end if that comes first, as
        `on_data_loss="earliest"` wants; else `None`.

    Raises:
        DataLoss: the position is gone, or not there yet.
    """
    position, end = split.position, split.end
    if end is not None and position >= end:
        return None
    if position > high:
        raise DataLoss(
            f"{split}: {origin} is {position}, but the topic ends at {high}. It was deleted and created again, "
            "or lost records when a replica without them took over. Restore an older checkpoint that the topic still "
            'covers, or start without restoring (restore="none") and an explicit start'
        )
    lost = lost_range(position, low, end)
    if not lost:
        return None
    gone = f"offsets {lost.start} to {lost.stop - 1} ({counted(len(lost), 'offset')})"
    to_its_end = end is not None and lost.stop == end
    if on_data_loss == "fail":
        rest = f", which is all that was to be read up to its end, {end}" if to_its_end else ""
        how = "ends it" if to_its_end else "goes on at the beginning"
        raise DataLoss(
            f"{split}: {origin} is {position}, but the topic begins at {low}: {gone} are gone{rest}, as a rule through "
            f'its retention. KafkaSource(on_data_loss="earliest") {how} without them'
        )
    split.position = lost.stop
    on = f"nothing is left to be read up to its end, {end}" if to_its_end else f"going on at {low}"
    return f"{split}: {origin} is {position}, but {gone} are gone; {on}, as {says_so} says"


def lost_with_topic(split: Split) -> str | None:
    """What of a split was to be read and is lost when its topic is deleted; `None`: nothing, it was read to its end."""
    if split.end is None:
        return f"what was not read by then, from offset {split.position} on, is lost"
    left = split.end - split.position
    if split.ended or left <= 0:
        return None
    return f"offsets {split.position} to {split.end - 1} ({counted(left, 'offset')}) are lost"
