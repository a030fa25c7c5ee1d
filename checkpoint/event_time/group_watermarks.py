"""How far event time had come for each key group in earlier attempts (pure).

After rescaling, a subtask that goes on for several others takes the lowest of their watermarks. For a key group that
comes from one that was further, time goes back by that: a record would be on time again in a window that has closed,
whose state is gone. So what is late for a key is told by the highest watermark that its group has ever reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class GroupRange(NamedTuple):
    """Neighbouring key groups that have come equally far."""

    first: int
    stop: int
    """The group behind the last."""
    watermark: int
    """Milliseconds since the epoch."""


class GroupWatermarks:
    """The key groups of a subtask that were ahead of it in an earlier attempt."""

    def __init__(self, groups: range) -> None:
        """`groups`: those that the subtask owns."""
        self._groups = groups
        self._ahead: list[GroupRange] = []
        """Disjoint, in order."""

    def restore(self, states: Iterable[Sequence[Sequence[int]]], reached: int | None) -> None:
        """Take over what `snapshot` gave.

        Args:
            states: of all old subtasks.
            reached: the watermark that this subtask begins with.
        """
        found = []
        for state in states:
            for first, stop, watermark in state:
                first, stop = max(first, self._groups.start), min(stop, self._groups.stop)
                if first < stop:
                    found.append(GroupRange(first, stop, watermark))
        self._ahead = sorted(found)
        self.passed(reached)

    def snapshot(self, reached: int | None) -> list[list[int]]:
        """State that `restore` takes: of every group that has reached something, how far.

        Args:
            reached: the watermark up to which timers may have fired.
        """
        if reached is None:
            return [list(one) for one in self._ahead]
        state = []
        at = self._groups.start
        for first, stop, watermark in self._ahead:
            if watermark > reached:
                if at < first:
                    state.append([at, first, reached])
                state.append([first, stop, watermark])
                at = stop
        if at < self._groups.stop:
            state.append([at, self._groups.stop, reached])
        return state

    def passed(self, watermark: int | None) -> bool:
        """The subtask's watermark has come to there. Whether a group is still ahead of it."""
        if watermark is not None:
            self._ahead = [one for one in self._ahead if one.watermark > watermark]
        return bool(self._ahead)

    def of(self, group: int, watermark: int | None) -> int | None:
        """How far a group has come.

        Args:
            watermark: the subtask's.
        """
        for first, stop, ahead in self._ahead:
            if first <= group < stop:
                return ahead if watermark is None else max(ahead, watermark)
        return watermark
