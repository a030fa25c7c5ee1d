"""The open sessions of the current key. All times are in milliseconds.

In state they are a timeline of their begins; beside each are the time of its last record and its accumulators.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple, cast

from checkpoint.state.handles import ValueHandle
from checkpoint.state.stores import MISSING, ValueStore
from pipeline.paged.timeline import TIMES, Columns, Timeline


class OpenSession(NamedTuple):
    """A session that is open."""

    begin: int
    last: int
    """The time of its last record. (The session ends `gap` behind it.)"""
    accumulators: Any


class SessionSet:
    """No two of them touch each other."""

    def __init__(self, handle: ValueHandle[Any], gap: int) -> None:
        self._sessions = Timeline(handle, _columns)
        self._peek = cast(ValueStore, handle.store).peek
        self._gap = gap

    def __len__(self) -> int:
        return len(self._sessions)

    def around(self, at: int) -> list[OpenSession]:
        """The sessions that a record of that time belongs to: no further away than `gap`. At most two, in order."""
        gap = self._gap
        value = self._peek()
        if value is not MISSING and type(value[TIMES]) is list:  # as it mostly is, and each record asks
            begins, lasts, accumulators = value
            i = bisect_right(begins, at + gap) - 1
            if i < 0 or lasts[i] + gap < at:
                return []
            found = [OpenSession(begins[i], lasts[i], accumulators[i])]
            if i and lasts[i - 1] + gap >= at:
                found.insert(0, OpenSession(begins[i - 1], lasts[i - 1], accumulators[i - 1]))
            return found
        return [OpenSession(*one) for one in self._sessions.last_until(at + gap, 2) if one[1] + gap >= at]

    def holding(self, at: int) -> OpenSession | None:
        """The session that a time lies in."""
        for one in self._sessions.last_until(at, 1):
            if at < one[1] + self._gap:
                return OpenSession(*one)
        return None

    def all(self) -> list[OpenSession]:
        """In order."""
        return [OpenSession(*one) for one in self._sessions.all()]

    def put(self, begin: int, last: int, accumulators: Any, instead_of: list[OpenSession]) -> None:
        """Set what has become of the sessions around a record, which a checkpoint can hold."""
        if instead_of and instead_of[0].begin == begin:
            self._sessions.replace(begin, last, accumulators)
        else:
            self._sessions.insert(begin, last, accumulators)
        for one in instead_of:
            if one.begin != begin:
                self._sessions.remove(one.begin)

    def remove(self, begin: int) -> None:
        """A session is no more."""
        self._sessions.remove(begin)


def _columns(state: list[Any]) -> Columns:
    """Of what was written before there were pages: `[head, begins, sessions]`, where `begins` counts from `head` on,
    and `sessions` has by its begin the time of each one's last record and its accumulators."""
    head, begins, sessions = state
    return [begins[head:], *([sessions[begin][i] for begin in begins[head:]] for i in range(2))]
