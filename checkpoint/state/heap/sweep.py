"""Removes what is over, a piece at a time, so that nothing is held up: also of keys that never come again."""

from __future__ import annotations

from typing import Final

from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.heap.ttl_stores import HeapTtlStore

_ROUNDS: Final = 8
"""In its time to live an entry is looked at so often. What is over may stay for a share of one in so many longer."""
_LEAST: Final = 16
_MOST: Final = 512
"""Keys that are looked at in one step; to remove one takes one to four microseconds."""


class Sweep:
    """Goes round the keys of one state, paced by the clock that the state lives by."""

    def __init__(self, store: HeapTtlStore, groups: list[KeyGroupMap]) -> None:
        self._store = store
        self._groups = groups
        self._pace = max(1, store.life.span // _ROUNDS)
        """Milliseconds of one round."""
        self._began: int | None = None
        """When the last round did, or should have."""
        self._total = 0
        """Keys at its beginning."""
        self._done = 0
        """Work so far."""
        self._next = len(groups)
        """The group to be looked at next; behind the last one, no round is under way."""
        self._keys: list[bytes] = []
        """Those of the group in front of it that are not looked at yet."""
        self._removed = 0
        """In that group, in this round."""

    def step(self) -> int:
        """Do as much as is due. Returns how many entries were removed."""
        now = self._store.life.now
        if now is None or (not self._under_way and not self._begin(now)):
            return 0
        assert self._began is not None
        behind = self._total * (now - self._began) // self._pace - self._done
        left, removed = min(_MOST, max(_LEAST, behind)), 0
        while left > 0 and self._under_way:
            if not self._keys:
                self._enter_next_group()
                work = 1
            else:
                one, work = self._sweep_key()
                removed += one
            left -= work
            self._done += work
        return removed

    @property
    def _under_way(self) -> bool:
        return bool(self._keys) or self._next < len(self._groups)

    def _begin(self, now: int) -> bool:
        """Begin a round, if it is time."""
        due = self._store.life.began if self._began is None else self._began + self._pace
        if now < due:
            return False
        # A clock that has jumped may stand still now, so what is late is made up for.
        self._began, self._next, self._done = max(due, now - self._pace), 0, 0
        self._total = len(self._groups) + sum(len(group.data) for group in self._groups)
        return self._total > len(self._groups)

    def _enter_next_group(self) -> None:
        self._leave_group()
        self._keys = list(self._groups[self._next].data)
        self._next += 1

    def _leave_group(self) -> None:
        if self._removed:
            group = self._groups[self._next - 1]
            if self._removed > len(group.data):
                group.compact()
            self._removed = 0

    def _sweep_key(self) -> tuple[int, int]:
        """Entries removed, and work done."""
        group, key = self._groups[self._next - 1], self._keys[-1]
        if key not in group.data:
            self._keys.pop()
            return 0, 1
        removed, work, again = self._store.sweep(group, key)
        self._removed += removed
        if not again:
            self._keys.pop()
            if not self._keys and self._next == len(self._groups):
                self._leave_group()
        return removed, work
