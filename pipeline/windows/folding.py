"""What the panes of a sliding window come to, with a few merges for each window (pure).

The panes are cut into blocks, each as long as a window and at the same place for all keys. A window is the end of one
block and the begin of the next one (van Herk's and Gil's way to a running maximum): the ends of a block are folded
once, from its last pane on, and the begin grows from window to window. What is folded is remembered in memory only, and
used as long as the panes are the very same objects. The order of merging is the same with and without it, so that no
restart changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from operator import is_
from typing import Any, Final

from pipeline.windows.grid import Panes

_MOST: Final = 500_000
"""Panes of all keys that are remembered, some 100 bytes each."""
_FEW: Final = 4
"""So many panes are merged sooner than looked up."""
_SMALL: Final = frozenset({type(None), bool, int, float, str, Decimal})
_SHORT: Final = 8
"""Items of a tuple that is small."""


@dataclass(slots=True)
class _Remembered:
    """Of one key."""

    end_block: int = 0
    """The block of which `ends` are."""
    end_panes: list[Any] = field(default_factory=list)
    """Its last panes; `None` where there is no record."""
    ends: list[Any] = field(default_factory=list)
    """For each of them what it and those behind it come to."""
    begin_block: int = 0
    begin_panes: list[Any] = field(default_factory=list)
    """The first panes of the next block."""
    begins: list[Any] = field(default_factory=list)
    """For each of them what it and those in front of it come to."""


class Folding:
    """Merges panes, for as many keys as there are."""

    def __init__(self, panes: Panes, merge: Callable[[Any, Any], Any]) -> None:
        self._panes = panes
        self._merge = merge
        self._number = panes.size // panes.width
        """Of the panes of a window."""
        self._keys: dict[bytes, _Remembered] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Folding, (self._panes, self._merge)

    def forget(self, key: bytes) -> None:
        """The key has no panes any more."""
        self._keys.pop(key, None)

    def merged(self, end: int, panes: Mapping[int, Any], key: bytes) -> Any:
        """What the window that ends there comes to; `None` if it has no records.

        Args:
            panes: accumulators by begin.
            key: encoded.
        """
        of_window = self._panes.panes_of(end)
        first = of_window.start // self._panes.width
        block = first // self._number
        cut = (block + 1) * self._number - first
        if len(panes) <= _FEW:
            begins = sorted(pane for pane in panes if pane in of_window)
            where = of_window.start + cut * self._panes.width
            left = [panes[pane] for pane in begins if pane < where]
            right = [panes[pane] for pane in begins if pane >= where]
            return self._both(self._ends(left)[0] if left else None, self._begins(right)[-1] if right else None)
        found = list(map(panes.get, of_window))
        left, right = found[:cut], found[cut:]
        known = self._keys.get(key)
        if known is None:
            if not self._worth_it(found):
                return self._both(self._ends(left)[0], self._begins(right)[-1] if right else None)
            known = self._keys[key] = _Remembered()
        skipped = len(known.end_panes) - len(left)
        if known.end_block != block or skipped < 0 or not all(map(is_, left, known.end_panes[skipped:])):
            known.end_block, known.end_panes, known.ends, skipped = block, left, self._ends(left), 0
        if known.begin_block != block or not all(map(is_, right, known.begin_panes)):
            known.begin_block, known.begin_panes, known.begins = block, [], []
        if len(right) > len(known.begins):
            more = right[len(known.begins) :]
            known.begins += self._begins(more, known.begins[-1] if known.begins else None)
            known.begin_panes = right
        return self._both(known.ends[skipped], known.begins[len(right) - 1] if right else None)

    def _worth_it(self, found: Sequence[Any]) -> bool:
        if (len(self._keys) + 1) * self._number > _MOST:
            return False
        return all(map(_is_small, next(one for one in found if one is not None))) if any(found) else False

    def _ends(self, panes: Sequence[Any]) -> list[Any]:
        ends = []
        folded: Any = None
        for one in reversed(panes):
            folded = self._both(one, folded)
            ends.append(folded)
        ends.reverse()
        return ends

    def _begins(self, panes: Sequence[Any], before: Any = None) -> list[Any]:
        begins = []
        for one in panes:
            before = self._both(before, one)
            begins.append(before)
        return begins

    def _both(self, earlier: Any, later: Any) -> Any:
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return self._merge(earlier, later)


def _is_small(accumulator: Any) -> bool:
    """Whether a copy for each pane takes little: not a list of records, nor a sketch."""
    return type(accumulator) in _SMALL or (type(accumulator) is tuple and len(accumulator) <= _SHORT)
