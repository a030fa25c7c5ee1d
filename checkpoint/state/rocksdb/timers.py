"""Timers in RocksDB: those that are due next are in memory, too, the others are not."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from typing import Final

from checkpoint.counted import counted
from checkpoint.state.errors import TooManyEntries
from checkpoint.state.rocksdb.changes import ChangeNotes
from checkpoint.state.rocksdb.database import Database, end_of
from checkpoint.state.stores import TimerStore
from checkpoint.state.timers import group_of, is_entry_of, split_entry, timer_entry

NEAR: Final = 2_048
"""So many are fetched at once; up to twice as many lie in memory."""
_MOST_CHANGED: Final = 4_096
"""Entries; to write them takes about three microseconds each, and at a barrier all are written."""
_PIECE: Final = 512
"""So many are written when there are more."""
_SLACK: Final = 10_000
"""Entries of the index that may be void before it is made anew."""
_PRESENT: Final = b""


class RocksTimers(TimerStore):
    """Timers of one clock.

    Those in front of the horizon are in memory, all of them; of those behind it nothing is, but for what is not written
    yet.
    """

    __slots__ = (
        "_changed",
        "_count",
        "_database",
        "_far",
        "_first",
        "_horizon",
        "_index",
        "_near",
        "_prefixes",
        "notes",
    )

    def __init__(self, database: Database, key_groups: range, number: bytes) -> None:
        """`number`: that of the state."""
        self._database = database
        self.notes: ChangeNotes | None = None
        """Of what is written, if that is noted."""
        self._first = key_groups.start
        self._prefixes = [group.to_bytes(2, "big") + number for group in key_groups]
        self._near: set[bytes] = set()
        self._index: list[bytes] = []
        """A heap of what is near, and of some that are gone."""
        self._horizon: bytes | None = None
        """`None` = all are near."""
        self._far = [0] * len(key_groups)
        """How many lie behind the horizon, by the position of their key group."""
        self._changed: dict[bytes, bool] = {}
        """Entries that are to be written, or to be deleted from where they are written."""
        self._count = 0

    def has(self, index: int, entry: bytes) -> bool:
        if self._horizon is None or entry < self._horizon:
            return entry in self._near
        changed = self._changed.get(entry)
        return self._database.has(self._row(index, entry)) if changed is None else changed

    def add(self, index: int, entry: bytes) -> bool:
        if self.has(index, entry):
            return False
        if self._changed.pop(entry, None) is None:
            self._changed[entry] = True
        self._count += 1
        if self._horizon is None or entry < self._horizon:
            self._near.add(entry)
            heappush(self._index, entry)
            if len(self._near) > 2 * NEAR:
                self._keep_the_nearest()
        else:
            self._far[index] += 1
        if len(self._changed) > _MOST_CHANGED:
            self.write(_PIECE)
        return True

    def remove(self, index: int, entry: bytes) -> bool:
        if not self.has(index, entry):
            return False
        if self._changed.pop(entry, None) is None:
            self._changed[entry] = False
        self._count -= 1
        if self._horizon is None or entry < self._horizon:
            self._near.discard(entry)
        else:
            self._far[index] -= 1
        if len(self._index) > 2 * len(self._near) + _SLACK:
            self._index = list(self._near)
            heapify(self._index)
        if len(self._changed) > _MOST_CHANGED:
            self.write(_PIECE)
        return True

    def entries_of(self, index: int, key: bytes, most: int) -> list[bytes]:
        self.write()
        prefix = self._prefixes[index]
        entries = list(islice(self._rows(prefix, prefix), most + 1))
        if len(entries) > most:
            raise TooManyEntries(
                f"no more than {counted(most, 'entry is', 'entries are')} looked at, and there are more"
            )
        return [entry for entry in entries if is_entry_of(entry, key)]

    def restore(self, index: int, entries: list[bytes]) -> bytes | None:
        return next((entry for entry in entries if not self.add(index, entry)), None)

    def first(self, bound: bytes | None) -> bytes | None:
        while True:
            index = self._index
            while index and (bound is None or index[0] < bound):
                if index[0] in self._near:
                    return index[0]
                heappop(index)
            if index or self._horizon is None or (bound is not None and self._horizon >= bound):
                return None
            self._fetch()

    def __len__(self) -> int:
        return self._count

    def write(self, most: int | None = None) -> None:
        """Write what has changed, or as many entries of that as are given, those that changed first."""
        if most is None or most >= len(self._changed):
            changed, self._changed = self._changed, {}
        else:
            changed = dict(islice(self._changed.items(), most))
            for entry in changed:
                del self._changed[entry]
        if self.notes is not None:
            for entry, present in changed.items():
                self.notes.note(self._row(group_of(entry) - self._first, entry), not present)
            self.notes.limit()
        self._database.write(
            (self._row(group_of(entry) - self._first, entry), _PRESENT if present else None)
            for entry, present in changed.items()
        )

    def _row(self, index: int, entry: bytes) -> bytes:
        key, time = split_entry(entry)
        return self._prefixes[index] + time + key

    def _keep_the_nearest(self) -> None:
        entries = sorted(self._near)
        self._horizon = entries[NEAR]
        self._index = entries[:NEAR]
        self._near = set(self._index)
        for entry in entries[NEAR:]:
            self._far[group_of(entry) - self._first] += 1

    def _fetch(self) -> None:
        """The next ones behind the horizon, in front of which nothing is left."""
        self.write()
        groups = (self._behind_horizon(index) for index, far in enumerate(self._far) if far)
        entries = list(islice(merge(*groups), NEAR + 1))
        self._horizon = entries.pop() if len(entries) > NEAR else None
        self._index, self._near = entries, set(entries)
        for entry in entries:
            self._far[group_of(entry) - self._first] -= 1

    def _behind_horizon(self, index: int) -> Iterator[bytes]:
        """Those of one key group. No row is asked for that isn't there: RocksDB goes through all that have fired, in
        front of the first and behind the last one, to find the next that is."""
        horizon = self._horizon
        assert horizon is not None
        _, time = split_entry(horizon)
        group, of_horizon = self._first + index, group_of(horizon)
        if group == of_horizon:
            first = self._row(index, horizon)
        else:  # of its time, groups in front of its own have none behind it
            at = int.from_bytes(time, "big") + (group < of_horizon)
            first = self._prefixes[index] + at.to_bytes(len(time), "big")
        return islice(self._rows(self._prefixes[index], first), self._far[index])

    def _rows(self, prefix: bytes, first: bytes) -> Iterator[bytes]:
        group = int.from_bytes(prefix[:2], "big")
        for row, _ in self._database.scan(first, end_of(prefix)):
            yield timer_entry(row[4:12], group, row[12:])
