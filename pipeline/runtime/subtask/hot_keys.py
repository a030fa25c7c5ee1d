"""Which keys have most of a subtask's records, by a sample: one record of a batch at most (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from math import sqrt
from operator import itemgetter
from random import Random
from typing import Final

from checkpoint.codec import decode_key
from checkpoint.shown import shown

_KEPT: Final = 32
"""Keys that are counted for sure. What is told falls short by at most the records over this number."""
_LOOKS: Final = 100.0
"""A second, about, however many batches come."""
_HALF_LIFE: Final = 30.0
"""Seconds after which a record counts half."""
_LEAST_LOOKS: Final = 20.0
"""Fewer say nothing."""
_LEAST_SHARE: Final = 0.05
"""A key that is not certain to have so much is not told of."""
_TOLD: Final = 3
_LONGEST: Final = 60
"""Characters of a key."""

HotKey = tuple[str | None, float]
"""A key as Python writes it, `None` = keys are not to be named; and its share of the subtask's records."""


class HotKeys:
    """Of one subtask. Counts are those of Misra and Gries (1982), which forget keys that are rare."""

    def __init__(self, named: bool, now: float) -> None:
        """
        Args:
            named: whether keys may be told.
            now: in seconds of a monotonic clock.
        """
        self._named = named
        self._counts: dict[bytes, float] = {}
        self._records = 0.0
        self._squares = 0.0
        """Of the records that each look stands for: a few large batches say less than many small ones."""
        self._passed = 0
        """Records since the last look."""
        self._enough = 1
        """After so many comes the next one."""
        self._every = 0.0
        """What that is on an average."""
        self._seen = 0
        """Records since keys were told of last."""
        self._aged_at = now
        self._random = Random(0).random

    def look(self, keys: Sequence[bytes]) -> None:
        """A batch has come, whose records have these encoded keys."""
        self._passed += len(keys)
        if self._passed < self._enough:
            return
        # By chance, since keys may come in turn.
        records, self._passed = self._passed, 0
        self._enough = 1 + int(self._random() * 2 * self._every)
        self._seen += records
        key = keys[int(self._random() * len(keys))]
        counts = self._counts
        counts[key] = counts.get(key, 0.0) + records
        self._records += records
        self._squares += records * records
        if len(counts) > 2 * _KEPT:
            least = sorted(counts.values())[-_KEPT - 1]
            self._counts = {key: count - least for key, count in counts.items() if count > least}

    def told(self, now: float) -> list[HotKey]:
        """The keys that have most of the latest records, at most three, hottest first."""
        self._age(now)
        if not self._records or (looks := self._records**2 / self._squares) < _LEAST_LOOKS:
            return []
        found: list[HotKey] = []
        for key, count in nlargest(_TOLD, self._counts.items(), key=itemgetter(1)):
            share = min(1.0, count / self._records)
            if share - 2 * sqrt(share * (1 - share) / looks) >= _LEAST_SHARE:
                found.append((shown(decode_key(key), _LONGEST) if self._named else None, share))
        return found

    def _age(self, now: float) -> None:
        since = now - self._aged_at
        if since > 0:
            self._every, self._seen, self._aged_at = self._seen / since / _LOOKS, 0, now
        left = 0.5 ** (since / _HALF_LIFE)
        self._records *= left
        self._squares *= left * left
        if self._records < 0.5:  # none for a long time
            self._counts, self._records, self._squares = {}, 0.0, 0.0
        for key in self._counts:
            self._counts[key] *= left
