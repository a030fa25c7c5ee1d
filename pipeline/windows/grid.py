"""Windows and panes that follow each other at equal distances (pure). All times are in milliseconds."""

from __future__ import annotations

from math import gcd


class Grid:
    """Windows of one size, one behind the other."""

    def __init__(self, size: int, offset: int = 0) -> None:
        self._size = size
        self._offset = offset

    def knows(self, at: int) -> bool:
        """Whether there is a window for that time."""
        return True

    def bounds(self, at: int) -> tuple[int, int]:
        """Begin and end of the window that a time lies in."""
        start = at - (at - self._offset) % self._size
        return start, start + self._size


class Panes:
    """Overlapping windows, cut into panes: the largest pieces of time that no window divides."""

    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        self.size = size
        self.slide = slide
        self.width = gcd(size, slide)
        """Of a pane."""
        self._offset = offset % slide

    def pane(self, at: int) -> int:
        """Begin of the pane that a time lies in."""
        return at - (at - self._offset) % self.width

    def is_end(self, at: int) -> bool:
        """Whether a window ends there."""
        return (at - self._offset - self.size) % self.slide == 0

    def end_from(self, at: int) -> int:
        """The end of a window that is the first at or behind that time."""
        return at + (self._offset + self.size - at) % self.slide

    def first_end(self, pane: int) -> int:
        """Where the first window with that pane ends."""
        return self.end_from(pane + self.width)

    def last_end(self, pane: int) -> int:
        """Where the last window with that pane ends."""
        return pane + self.size - (pane - self._offset) % self.slide

    def panes_of(self, end: int) -> range:
        """The panes of the window that ends there."""
        return range(end - self.size, end, self.width)

    def ending_with(self, end: int) -> range:
        """Those of its panes that no later window has."""
        return range(end - self.size, end - self.size + self.slide, self.width)

    def ends(self, pane: int, least: int, most: int) -> range:
        """The ends of windows with that pane, from `least` to `most`."""
        first = max(self.first_end(pane), self.end_from(least))
        return range(first, min(self.last_end(pane), most) + 1, self.slide)
