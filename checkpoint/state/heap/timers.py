"""Timers of the heap backend: dicts as of any other state, and an index by time beside them."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.heap.stores import check_number
from checkpoint.state.stores import TimerStore
from checkpoint.state.timers import group_of, is_entry_of

_SLACK: Final = 10_000
"""Entries of the index that may be void before it is made anew."""


class HeapTimers(TimerStore):
    """The index is a heap that no snapshot sees. What is removed stays in it for a while, so its entries count only
    while the dicts have them. Both share the entries."""

    __slots__ = ("_count", "_first", "_groups", "_index", "_sorted")

    def __init__(self, groups: list[KeyGroupMap], first_group: int) -> None:
        self._groups = groups
        self._first = first_group
        self._index: list[bytes] = []
        self._count = 0
        self._sorted = True

    def has(self, index: int, entry: bytes) -> bool:
        return entry in self._groups[index].data

    def add(self, index: int, entry: bytes) -> bool:
        group = self._groups[index]
        if entry in group.data:
            return False
        group.put(entry, None)
        self._count += 1
        if self._sorted:
            heappush(self._index, entry)
        else:
            self._index.append(entry)
        return True

    def remove(self, index: int, entry: bytes) -> bool:
        group = self._groups[index]
        if entry not in group.data:
            return False
        group.remove(entry)
        self._count -= 1
        if len(self._index) > 2 * self._count + _SLACK:
            self._index = [entry for group in self._groups for entry in group.data]
            self._sorted = False
        return True

    def entries_of(self, index: int, key: bytes, most: int) -> list[bytes]:
        data = self._groups[index].data
        check_number(len(data), most)
        return [entry for entry in data if is_entry_of(entry, key)]

    def restore(self, index: int, entries: list[bytes]) -> bytes | None:
        self._sorted = False
        return next((entry for entry in entries if not self.add(index, entry)), None)

    def first(self, bound: bytes | None) -> bytes | None:
        if not self._sorted:
            heapify(self._index)
            self._sorted = True
        index, groups, first = self._index, self._groups, self._first
        while index and (bound is None or index[0] < bound):
            entry = index[0]
            if entry in groups[group_of(entry) - first].data:
                return entry
            heappop(index)
        return None

    def __len__(self) -> int:
        return self._count
