"""What the panes of a sliding window come to, with a few merges for each window (pure).

The panes are cut into blocks, each as long as a window and at the same place for all keys. A window is the end of one
block and the begin of the next one (van Herk's and Gil's way to a running maximum): the ends of a block are folded
once, from its last pane on, and the begin grows from window to window. What is folded is remembered in memory only,
until one of its panes changes. The order of merging is the same with and without it, so that no restart changes a
result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
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
    """Of one key and block."""

    block: int
    first: int
    """The first pane of `ends`. Panes are numbered."""
    ends: list[Any]
    """For each of the last panes of the block what it and those behind it come to."""
    begins: list[Any] = field(default_factory=list)
    """For each of the first panes of the next block what it and those in front of it come to."""


class Folding:
    """Merges panes, for as many keys as there are."""

    def __init__(self, panes: Panes, merge: Callable[[Any, Any], Any]) -> None:
        self._panes = panes
        self._merge = merge
        self._number = panes.size // panes.width
        """Of the panes of a window."""
        self._keys: dict[bytes, _Remembered] = {}
        self.until = -(2**64)
        """What is remembered, of any key, is of panes that begin before this."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Folding, (self._panes, self._merge)

    def forget(self, key: bytes) -> None:
        """The key has no panes any more, or one that begins before `until` has changed."""
        self._keys.pop(key, None)

    def merged(self, end: int, panes: Mapping[int, Any], key: bytes | None) -> Any:
        """What the window that ends there comes to; `None` if it has no records.

        Args:
            panes: accumulators by begin.
            key: encoded; `None` = nothing is remembered, since the panes go on changing.
        """
        start, width, number = end - self._panes.size, self._panes.width, self._number
        first = start // width
        block = first // number
        cut = start + ((block + 1) * number - first) * width
        if len(panes) <= _FEW:
            begins = sorted(pane for pane in panes if start <= pane < end)
            ends = self._ends([panes[pane] for pane in begins if pane < cut])
            grown = self._begins([panes[pane] for pane in begins if pane >= cut])
            return self._both(ends[0] if ends else None, grown[-1] if grown else None)
        known = None if key is None else self._keys.get(key)
        if known is None or known.block != block or first < known.first:
            known = _Remembered(block, first, self._ends(list(map(panes.get, range(start, cut, width)))))
            if key is not None and self._worth_it(key, panes):
                self._keys[key] = known
        had, has = len(known.begins), (end - cut) // width
        if has > had:
            more = list(map(panes.get, range(cut + had * width, end, width)))
            known.begins += self._begins(more, known.begins[-1] if had else None)
        if key is not None and end > self.until:
            self.until = end
        return self._both(known.ends[first - known.first], known.begins[has - 1] if has else None)

    def _worth_it(self, key: bytes, panes: Mapping[int, Any]) -> bool:
        return (key in self._keys or (len(self._keys) + 1) * self._number <= _MOST) and all(
            map(_is_small, next(iter(panes.values())))
        )

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
