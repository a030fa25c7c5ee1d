"""The open sessions of a key (pure). All times are in milliseconds.

They are kept in a value as state can hold it, `[head, begins, sessions]`, which is changed in place:

- `sessions` has by its begin the time of each session's last record and its accumulators, as a tuple;
- `begins` has their begins in order, from the index `head` on: sessions mostly close first to last, and to delete the
  first item of a list costs as much as the list is long.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, Final, NamedTuple

_SLACK: Final = 16


class Found(NamedTuple):
    """A session that is open."""

    begin: int
    last: int
    """The time of its last record. (The session ends `gap` behind it.)"""
    accumulators: Any


class SessionSet:
    """Looks at the sessions of one key. No two touch each other."""

    def __init__(self, state: list[Any], gap: int) -> None:
        self._state = state
        self._begins: list[int] = state[1]
        self._sessions: dict[int, tuple[int, Any]] = state[2]
        self._gap = gap

    @staticmethod
    def new() -> list[Any]:
        """The state of none."""
        return [0, [], {}]

    def __len__(self) -> int:
        return len(self._sessions)

    def around(self, at: int) -> list[Found]:
        """The sessions that a record of that time belongs to: no further away than `gap`. At most two, in order."""
        begins, gap = self._begins, self._gap
        i = bisect_right(begins, at + gap, self._state[0])
        found = []
        while i > self._state[0]:
            i -= 1
            one = self._at(i)
            if one.last + gap < at:
                break
            found.append(one)
        found.reverse()
        return found

    def holding(self, at: int) -> Found | None:
        """The session that a time lies in."""
        i = bisect_right(self._begins, at, self._state[0])
        if i == self._state[0]:
            return None
        one = self._at(i - 1)
        return one if at < one.last + self._gap else None

    def all(self) -> list[Found]:
        """In order."""
        return [self._at(i) for i in range(self._state[0], len(self._begins))]

    def put(self, begin: int, last: int, accumulators: Any, instead_of: list[Found]) -> None:
        """Set what has become of the sessions around a record."""
        if not (instead_of and instead_of[0].begin == begin):
            self._insert(begin)
        for one in instead_of:
            if one.begin != begin:
                self.remove(one.begin)
        self._sessions[begin] = (last, accumulators)

    def remove(self, begin: int) -> None:
        """A session is no more."""
        state, begins = self._state, self._begins
        del self._sessions[begin]
        i = bisect_left(begins, begin, state[0])
        if i > state[0]:
            del begins[i]
            return
        state[0] += 1
        if state[0] > _SLACK and 2 * state[0] > len(begins):
            del begins[: state[0]]
            state[0] = 0

    def _insert(self, begin: int) -> None:
        begins, head = self._begins, self._state[0]
        i = bisect_left(begins, begin, head)
        if i == head and head:
            self._state[0] -= 1
            begins[head - 1] = begin
        else:
            begins.insert(i, begin)

    def _at(self, i: int) -> Found:
        begin = self._begins[i]
        return Found(begin, *self._sessions[begin])
