"""How fast a counter has grown lately."""

from __future__ import annotations

from collections import deque

WINDOW = 10.0
"""Seconds."""


class RecentRate:
    """The rate of a counter that is looked at now and then. Not thread-safe."""

    def __init__(self, now: float, window: float = WINDOW):
        self._window = window
        self._looks: deque[tuple[float, float]] = deque([(now, 0.0)])
        """The newest one that is as old as the window, or the very first, and those after it."""

    def at(self, now: float, count: float) -> float:
        """Per second, over the window or since the beginning if that is shorter.

        Args:
            count: the counter's value now, which began at 0.
        """
        looks = self._looks
        looks.append((now, count))
        while len(looks) > 2 and looks[1][0] <= now - self._window:
            looks.popleft()
        began, before = looks[0]
        return (count - before) / max(now - began, 1e-6)
