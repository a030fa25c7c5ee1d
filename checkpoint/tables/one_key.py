"""All that one key has in one step of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.restore import RestorePoint
from checkpoint.tables.keyed import CLOCK_OF, keyed_parts, time_of
from checkpoint.tables.point import Wanted, reading


@dataclass(frozen=True)
class KeyRows:
    """What a key has."""

    states: dict[str, bytes] = field(default_factory=dict)
    """Encoded values by name; states in which the key has nothing are left out."""
    timers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By clock, in milliseconds since the epoch, the first one first."""


def rows_of_key(point: RestorePoint, step: str, key: bytes) -> KeyRows:
    """
    Args:
        key: encoded (`codec.encode_key`).

    Raises:
        NoSuchTable: the step has nothing in the checkpoint; lists the steps that have.
        DamagedFile: a file is missing, truncated or altered; names it.
        DeletedMeanwhile, StorageError: a file can't be read.
    """
    with reading(point):
        return _rows_of_key(point, step, key)


def _rows_of_key(point: RestorePoint, step: str, key: bytes) -> KeyRows:
    wanted = Wanted(step, None, key)
    states = {
        batch.state: value
        for part in keyed_parts(point, wanted, timers=False)
        for batch in part.rows(timers=False)
        for value in batch.values
    }
    timers: dict[str, list[int]] = {clock: [] for clock in CLOCK_OF.values()}
    for part in keyed_parts(point, wanted, timers=True):
        for batch in part.rows(timers=True):
            for namespace in batch.namespaces or [None] * len(batch.keys):
                at = time_of(namespace)
                if at is None:
                    raise DamagedFile(f"{part.name()} is damaged: a timer of step {step!r} has no time")
                timers[CLOCK_OF[batch.state]].append(at)
    return KeyRows(states, {clock: tuple(sorted(times)) for clock, times in timers.items()})
