"""Which messages of a partition are done, as a consumer group's committed offset says it. Pure.

The offset is that of the first one that is not done. What is done behind it, since a replay had filters, is in the
offset's metadata as ranges, so that any filters in any order send no letter twice.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, Self

from checkpoint.counted import counted

MOST: Final = 4000
"""Characters of metadata; brokers take 4096 bytes by default (`offset.metadata.max.bytes`)."""
_BEGINS: Final = "done:"


class MarkTrouble(ValueError):
    """What is committed is none of Weir's, or there is too much to say."""


@dataclass(frozen=True)
class ReplayMark:
    offset: int
    """All in front of it is done."""
    ranges: tuple[tuple[int, int], ...] = ()
    """What is done behind it: the first one, and the one behind the last. Ascending."""

    def done(self, offset: int) -> bool:
        if offset < self.offset:
            return True
        place = bisect_right(self.ranges, (offset, 2**63)) - 1
        return place >= 0 and offset < self.ranges[place][1]

    @property
    def metadata(self) -> str:
        """
        Raises:
            MarkTrouble: there are too many ranges.
        """
        if not self.ranges:
            return ""
        text, before = _BEGINS, self.offset
        parts = []
        for low, high in self.ranges:
            parts.append(f"{low - before}+{high - low}")
            before = high
        text += ",".join(parts)
        if len(text) > MOST:
            raise MarkTrouble(
                f"the filters leave {counted(len(self.ranges), 'gap')}, which are too many to be remembered: replay "
                "with fewer filters, or up to an earlier offset (--limit)"
            )
        return text

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> Self:
        """
        Raises:
            MarkTrouble: somebody else has committed it.
        """
        if not metadata:
            return cls(offset)
        ranges = []
        try:
            begins, _, told = metadata.partition(_BEGINS)
            if begins:
                raise ValueError(metadata)
            before = offset
            for part in told.split(","):
                gap, length = map(int, part.split("+"))
                ranges.append((before + gap, before + gap + length))
                before += gap + length
        except ValueError as error:
            raise MarkTrouble(
                f"the group's offset {offset} has metadata that Weir doesn't write: {metadata!r}"
            ) from error
        return cls(offset, tuple(ranges))


class ReplayProgress:
    """Goes through a partition from a mark on."""

    def __init__(self, mark: ReplayMark) -> None:
        self._before = mark
        self._offset = self._end = mark.offset
        self._ranges: list[tuple[int, int]] = []
        self._undone = False
        """There is something undone, the first of it at `_offset`."""
        self._last_done = False

    def saw(self, offset: int, now: bool) -> None:
        """The next message: whether it is done now. What was done before stays so."""
        done = now or self._before.done(offset)
        self._end = offset + 1
        if not self._undone:
            self._offset = self._end if done else offset
            self._undone = not done
        elif done and self._last_done:
            self._ranges[-1] = (self._ranges[-1][0], self._end)
        elif done:
            self._ranges.append((offset, self._end))
        self._last_done = done and self._undone

    @property
    def mark(self) -> ReplayMark:
        behind = [(max(low, self._end), high) for low, high in self._before.ranges if high > self._end]
        return ReplayMark(self._offset, (*self._ranges, *behind))
