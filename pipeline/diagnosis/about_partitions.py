"""Partitions that nobody reads, and subtasks that have none to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from checkpoint.counted import counted
from pipeline.diagnosis.sentence import Sentence, note, some, trouble


def sentences(status: Mapping[str, Any]) -> Iterator[Sentence]:
    for vertex in status["graph"]["vertices"]:
        rows = {name: status["subtasks"][name] for name in vertex["subtasks"] if name in status["subtasks"]}
        yield from _unread(rows)
        yield from _without(rows)


def _unread(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Sentence]:
    found: dict[str, float] = {}
    for values in rows.values():
        found |= values.get("recordsUnreadByPartition") or {}
    if found:
        names = sorted(found)
        yield trouble(
            "partitions",
            f"Nobody reads {some(names)}, with {counted(sum(found.values()), 'record')} so far: the source has "
            "discovery_interval=None, and they came while the job ran. Stop the job and start it again, which reads "
            "them from their beginning, or give discovery_interval= seconds.",
        )


def _without(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Sentence]:
    told = {name: values.get("partitionsAssigned") for name, values in rows.items()}
    assigned = {name: number for name, number in told.items() if number is not None}
    without = [name for name, number in assigned.items() if number == 0]
    if not without:
        return
    total = sum(assigned.values())
    why = (
        f"the source has {total:,.0f} in all, for {counted(len(assigned), 'subtask')}. Lower the parallelism of the "
        f"source to {max(1, total):.0f}, or give its topics more partitions"
        if total < len(assigned)
        else f"those of each topic go to subtasks in turn, and {total:,.0f} don't reach all {len(assigned)}. Another "
        "parallelism of the source may spread them better"
    )
    yield note("partitions", f"{some(without)} {'has' if len(without) == 1 else 'have'} no partition to read: {why}.")
