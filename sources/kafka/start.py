"""Where the partitions of one subtask start and end, at a first start and at a restore."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sources.kafka.cluster import Cluster, Topic
from sources.kafka.errors import DataLoss
from sources.kafka.options import KafkaOptions, PartitionKey, timestamp_of
from sources.kafka.splits import (
    Split,
    check_ends,
    check_named,
    check_position,
    from_states,
    lost_with_topic,
    named_offset,
    owner,
)

log = logging.getLogger(f"weir.{__name__}")

Committed = Callable[[Sequence[PartitionKey]], Mapping[PartitionKey, int | None]]
"""Looks up what the group has committed; `None` for a partition without."""


@dataclass(frozen=True, slots=True)
class SplitAssignment:
    """Which splits a reader gets: those of one subtask, and the state that they begin with."""

    source_id: str
    subtask: int = 0
    parallelism: int = 1
    restored: Sequence[Any] = ()
    """States of a checkpoint."""
    fixed: Sequence[Any] = ()
    """States to begin with where there is no checkpoint: the start positions that the driver has settled
    (`KafkaSource.resolve`)."""


def open_splits(
    options: KafkaOptions,
    assignment: SplitAssignment,
    cluster: Cluster,
    topics: Mapping[str, Topic],
    committed: Committed,
) -> list[Split]:
    """The splits of this subtask, each with an offset that is in the log.

    Raises:
        DataLoss: a checkpointed or explicit offset is not in the log (`on_data_loss`).
        ValueError: the options name partitions that don't exist, or `end` leaves one out.
        RuntimeError: the restored state isn't whole.
        KafkaUnavailable: the cluster doesn't answer.
    """
    existing = {(topic.name, number): topic.id for topic in topics.values() for number in range(topic.partitions)}
    own = sorted(key for key in existing if owner(key, assignment.parallelism) == assignment.subtask)
    states = assignment.restored or assignment.fixed
    since = "checkpoint" if assignment.restored else "start"
    origin = "the checkpointed offset" if assignment.restored else "the offset to start from"
    old = from_states(states, assignment.source_id)
    kept = {
        split.key: split
        for split in old.values()
        if owner(split.key, assignment.parallelism) == assignment.subtask
        and _still_there(split, existing, options, since)
    }
    new = [key for key in own if key not in kept]
    low = cluster.earliest(own)
    first = _starts(options, cluster, new, low, existing, committed) if not states else {k: low[k] for k in new}
    high = cluster.latest(own)  # after the starts, which must not lie beyond it
    splits = [kept.get(key) or Split(*key, existing[key], first[key]) for key in own]
    for split in splits:
        if _came_later(split, old, options):
            split.end = split.position
    _set_ends(options, cluster, splits, high, existing)
    had_ended = [split for split in splits if split.ended]
    # Retention goes on between the look at the beginning and the first fetch: that is no loss to fail for.
    at_beginning = options.start == "earliest" and not assignment.restored
    on_loss = ("earliest", 'start="earliest"') if at_beginning else (options.on_data_loss, "on_data_loss")
    for split in splits:
        if not split.ended:
            warning = check_position(split, low[split.key], high[split.key], origin, *on_loss)
            if warning is not None:
                log.warning("source %s: %s", assignment.source_id, warning)
        split.ended = split.ended or (split.end is not None and split.position >= split.end)
    beyond = [split for split in had_ended if high[split.key] > (split.end or 0)]
    if assignment.restored and beyond and all(split.ended for split in splits):
        log.warning(
            "source %s: %s had ended at offset %s by the checkpoint, which keeps its ends: what has come since is not "
            "read. Name new offsets as end to go on, or leave end out and stop the job",
            assignment.source_id,
            beyond[0],
            beyond[0].end,
        )
    return splits


def _came_later(split: Split, old: Mapping[PartitionKey, Split], options: KafkaOptions) -> bool:
    """Whether a partition lies beyond the end "latest", which is that of the first start."""
    if options.end != "latest" or split.key in old or all(other.end is None for other in old.values()):
        return False
    return options.pattern is not None or any(other.topic == split.topic for other in old.values())


def _still_there(split: Split, existing: Mapping[PartitionKey, str], options: KafkaOptions, since: str) -> bool:
    """Whether a partition is still what it was at the checkpoint (or start); if not, that is an error, a warning or
    intended."""
    if existing.get(split.key) == split.topic_id:
        return True
    if not options.reads(split.topic):
        log.warning("%s is in the %s at offset %d, but not read any more", split, since, split.position)
        return False
    happened = "was deleted and created again" if split.key in existing else "is gone: its topic was deleted"
    lost = lost_with_topic(split)
    if lost is None and _end_stays(split, options) and options.on_data_loss == "fail":
        log.warning("%s %s since the %s, by which it had been read to its end: nothing is lost", split, happened, since)
        return split.key in existing  # what is there now lies beyond that end
    lost = lost or "it had been read to its end"
    if options.on_data_loss == "fail":
        raise DataLoss(
            f"{split} {happened} since the {since}, which stands at offset {split.position}: "
            f'{lost}. KafkaSource(on_data_loss="earliest") goes on with what is there now; restore="none" begins from '
            "nothing, without the checkpoint"
        )
    log.warning("%s %s since the %s at offset %d: %s", split, happened, since, split.position, lost)
    return False


def _end_stays(split: Split, options: KafkaOptions) -> bool:
    """Whether the options still say the end that the split has."""
    end = options.end
    if isinstance(end, Mapping) and timestamp_of(end) is None:
        return named_offset(end, split.key) == split.end
    return end is not None


def _starts(
    options: KafkaOptions,
    cluster: Cluster,
    new: Sequence[PartitionKey],
    low: Mapping[PartitionKey, int],
    existing: Mapping[PartitionKey, str],
    committed: Committed,
) -> Mapping[PartitionKey, int]:
    """Where partitions begin at a first start."""
    start = options.start
    if start == "latest":
        return cluster.latest(new, committed=options.config.get("isolation.level") != "read_uncommitted")
    timestamp = timestamp_of(start)
    if timestamp is not None:
        return cluster.at(new, timestamp)
    found: Mapping[PartitionKey, int | None] = {}
    if start == "group":
        found = committed(new)
    elif isinstance(start, Mapping):
        check_named("start", start, existing)
        found = {key: named_offset(start, key) for key in new}
    return {key: low[key] if (offset := found.get(key)) is None else offset for key in new}


def _set_ends(
    options: KafkaOptions,
    cluster: Cluster,
    splits: Sequence[Split],
    high: Mapping[PartitionKey, int],
    existing: Mapping[PartitionKey, str],
) -> None:
    """Give every split its end. One found at the first start stays; an explicit one is what the options say now."""
    end = options.end
    timestamp = timestamp_of(end)
    if end is None or (isinstance(end, Mapping) and timestamp is None):
        if end is not None:
            check_ends(end, existing)
        for split in splits:
            new_end = named_offset(end, split.key) if isinstance(end, Mapping) else None
            split.ended = split.ended and split.end == new_end
            split.end = new_end
        return
    open_ended = [split.key for split in splits if split.end is None]
    ends = high if timestamp is None else cluster.at(open_ended, timestamp)
    for split in splits:
        if split.end is None:
            split.end = ends[split.key]
