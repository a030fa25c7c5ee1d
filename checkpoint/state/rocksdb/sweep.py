"""Removes what is over from RocksDB, a piece at a time: also of keys that never come again."""

from __future__ import annotations

from itertools import islice
from typing import Final

from checkpoint.state.heap.ttl_stores import HeapTtlStore
from checkpoint.state.rocksdb.database import Database, end_of
from checkpoint.state.rocksdb.groups import CachedGroup

_ROUNDS: Final = 8
"""In its time to live an entry is looked at so often."""
_LEAST: Final = 16
_MOST: Final = 512
"""Rows that are looked at in one step; to remove one takes some microseconds."""
_PER_LOOK: Final = 1024
"""Entries of a list or map of which one call of the store looks at a part."""


class RocksSweep:
    """Goes round the rows of one state, paced by the clock that the state lives by.

    What is in no row yet is looked at once it is.
    """

    def __init__(self, database: Database, store: HeapTtlStore, groups: list[CachedGroup]) -> None:
        self._database = database
        self._store = store
        self._groups = groups
        self._pace = max(1, store.life.span // _ROUNDS)
        """Milliseconds of one round."""
        self._began: int | None = None
        """When this round did, or should have."""
        self._rows = 0
        """In the last round."""
        self._done = 0
        """In this one."""
        self._next = len(groups)
        """The group that is looked at; behind the last one, no round is under way."""
        self._from = b""
        """Where in it."""

    def step(self) -> int:
        """Do as much as is due. Returns how many entries were removed."""
        now = self._store.life.now
        if now is None or not self._database.is_open or (self._next == len(self._groups) and not self._begins(now)):
            return 0
        assert self._began is not None
        behind = self._rows * (now - self._began) // self._pace - self._done
        left, removed = min(_MOST, max(_LEAST, behind)), 0
        while left > 0 and self._next < len(self._groups):
            group = self._groups[self._next]
            found = list(islice(self._database.scan(group.prefix + self._from, end_of(group.prefix)), left))
            for key, row in found:
                if self._store.life.over(group.rows.oldest(row)):
                    removed += self._sweep(group, key[4:])
            left -= len(found) + 1
            self._done += len(found)
            if found:
                self._from = found[-1][0][4:] + b"\0"
            if left >= 0:
                self._next += 1
                self._from = b""
        return removed

    def _begins(self, now: int) -> bool:
        due = self._store.life.began if self._began is None else self._began + self._pace
        if now < due:
            return False
        # A clock that has jumped may stand still now, so what is late is made up for.
        self._began, self._rows, self._done = max(due, now - self._pace), self._done, 0
        self._next, self._from = 0, b""
        return True

    def _sweep(self, group: CachedGroup, key: bytes) -> int:
        """What lies ready may be newer than the row."""
        removed = 0
        while key in group.data:
            one, work, again = self._store.sweep(group, key)
            removed += one
            if not again or not work:
                break
        return removed
