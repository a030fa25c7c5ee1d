"""What differs between two checkpoints in the state of keys, timers, and operators' own state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from checkpoint.codec import decode_key
from checkpoint.codec import decode_opaquely as decode
from checkpoint.state.files import load_folded_state, load_footer
from checkpoint.state.timers import TIMER_STATES
from checkpoint.storage.handles import StateFile
from checkpoint.storage.restore import RestorePoint
from checkpoint.tables import small
from checkpoint.tables.json_form import to_json
from checkpoint.tables.keyed import time_of
from checkpoint.tables.point import NoSuchTable, Wanted, reading, snapshots

_ROWS: Final = 200_000
"""About so many rows of each of the two are compared at a time."""

SCHEMA: Final = pa.schema(
    [
        pa.field("step", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("key_json", pa.string()),
        pa.field("at", pa.int64()),
        pa.field("change", pa.string(), nullable=False),
        pa.field("before_json", pa.string()),
        pa.field("after_json", pa.string()),
    ]
)


class DiffKey(NamedTuple):
    """Where a value is; sorts as the difference is given."""

    step: str
    state: str
    key: bytes
    """Encoded; empty for what belongs to no key."""
    at: int | None
    """Of a timer, milliseconds since 1970."""
    where: str = ""
    """Of what belongs to no key: subtask, kind, and place or key."""


def diff(before: RestorePoint, after: RestorePoint, wanted: Wanted | None = None) -> Iterator[dict[str, Any]]:
    """A row of `SCHEMA` for each value that was added, removed or changed. Where state belongs to no key, its name is
    followed by where it is.

    Args:
        wanted: of which step and state only. For timers the state is `event timers` or `processing timers`.

    Raises:
        NoSuchTable: neither has the step.
        DamagedFile: a file of one of them is missing, truncated or altered.
        DeletedMeanwhile, StorageError: one can't be read.
    """
    with reading(before, after):
        yield from _diff(before, after, wanted or Wanted())


def _diff(before: RestorePoint, after: RestorePoint, wanted: Wanted) -> Iterator[dict[str, Any]]:
    steps = before.metadata.step_ids | after.metadata.step_ids
    if wanted.step is not None:
        if wanted.step not in steps:
            raise NoSuchTable(f"neither has step {wanted.step!r}; they have {', '.join(map(repr, sorted(steps)))}")
        steps = frozenset({wanted.step})
    for step in sorted(steps):
        of_step = Wanted(step, wanted.state)
        for groups in _chunks(before, after, step):
            yield from _compared(*(dict(_rows(point, of_step, groups)) for point in (before, after)))
        yield from _compared(*(dict(_own(point, of_step)) for point in (before, after)))


def _compared(before: dict[DiffKey, bytes], after: dict[DiffKey, bytes]) -> Iterator[dict[str, Any]]:
    changed = [place for place in before.keys() | after.keys() if before.get(place) != after.get(place)]
    for place in sorted(changed, key=lambda one: (one[:3], one.at or 0, one.where)):
        texts = [None if data is None else to_json(decode(data)) for data in (before.get(place), after.get(place))]
        if texts[0] == texts[1]:  # another version may have encoded it in another way
            continue
        yield {
            "step": place.step,
            "state": place.state + (f" ({place.where})" if place.where else ""),
            "key_json": None if place.where else to_json(decode_key(place.key)),
            "at": place.at,
            "change": "added" if texts[0] is None else "removed" if texts[1] is None else "changed",
            "before_json": texts[0],
            "after_json": texts[1],
        }


def _files(point: RestorePoint, step: str) -> list[tuple[StateFile, ...]]:
    """By subtask."""
    if step not in point.metadata.step_ids:
        return []
    return [snapshot.keyed_state for _, _, snapshot in snapshots(point.metadata, step)]


def _chunks(before: RestorePoint, after: RestorePoint, step: str) -> Iterator[range | None]:
    """Key groups that are compared together."""
    if before.metadata.max_parallelism != after.metadata.max_parallelism:
        yield None  # keys have other groups
        return
    rows = [0] * before.metadata.max_parallelism
    for point in (before, after):
        for listed in (listed for files in _files(point, step) for listed in files):
            for group, _, _, count, _ in load_footer(point.storage, listed.file).groups:
                rows[group] += count
    start = held = 0
    for group, count in enumerate(rows):
        if held and held + count > 2 * _ROWS:
            yield range(start, group)
            start, held = group, 0
        held += count
    if held:
        yield range(start, len(rows))


def _rows(point: RestorePoint, wanted: Wanted, groups: range | None) -> Iterator[tuple[DiffKey, bytes]]:
    assert wanted.step is not None
    for files in _files(point, wanted.step):
        for batch in load_folded_state(point.storage, files, groups):
            if wanted.state not in (None, batch.state):
                continue
            times = [None] * len(batch.keys) if batch.namespaces is None else map(time_of, batch.namespaces)
            for key, at, value in zip(batch.keys, times, batch.values, strict=True):
                yield DiffKey(wanted.step, batch.state, key, at), value


def _own(point: RestorePoint, wanted: Wanted) -> Iterator[tuple[DiffKey, bytes]]:
    if wanted.state in TIMER_STATES or wanted.step not in point.metadata.step_ids:
        return
    for part in small.snapshot_parts(point, wanted):
        for row in small.operator_rows(part, wanted):
            where = f"{row['kind']} state of subtask {row['subtask']}"
            item = row["key_json"] if row["place"] is None else row["place"]
            where += "" if item is None else f", {item}"
            yield DiffKey(part.step, row["state"], b"", None, where), row["value_bytes"]
