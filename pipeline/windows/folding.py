"""What the panes of a sliding window come to, with a few merges for each window (pure).

The panes are cut into blocks, each as long as a window and at the same place for all keys. A window is the end of one
block and the begin of the next one (van Herk's and Gil's way to a running maximum): the ends of a block are folded
once, from its last pane on, and the begin grows from window to window. What is folded is remembered in memory only, as
long as it is small, until one of its panes changes. The order of merging is the same with and without it, so that no
restart changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from pipeline.windows.grid import Panes

_MOST: Final = 500_000
"""Panes of all keys that are remembered, some hundred bytes each."""
_FEW: Final = 4
"""So many panes are merged sooner than looked up."""
_SMALL: Final = frozenset({type(None), bool, int, float, str, Decimal})
_SHORT: Final = 32
"""Values, at any depth, of a tuple that is small."""


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
            if key is not None and (key in self._keys or (len(self._keys) + 1) * self._number <= _MOST):
                self._keys[key] = known
        had, has = len(known.begins), (end - cut) // width
        if has > had:
            more = list(map(panes.get, range(cut + had * width, end, width)))
            known.begins += self._begins(more, known.begins[-1] if had else None)
        if key is not None and end > self.until:
            self.until = end
        merged = self._both(known.ends[first - known.first], known.begins[has - 1] if has else None)
        if key is not None and merged is not None and not _are_small(merged):
            self._keys.pop(key, None)
        return merged

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


def _are_small(accumulators: Iterable[Any]) -> bool:
    """Whether a copy for each pane takes little: none is a list of records, or a sketch."""
    for one in accumulators:
        if type(one) not in _SMALL and not (type(one) is tuple and _size(one) <= _SHORT):
            return False
    return True


def _size(value: Any) -> int:
    """How many values a tuple has in it. A record is one that isn't copied."""
    kind = type(value)
    if kind is tuple and len(value) <= _SHORT:
        return sum(map(_size, value))
    return 1 if kind in _SMALL or kind is dict else _SHORT + 1
