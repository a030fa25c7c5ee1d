"""How many records user code is handed at once, so that a barrier never waits for long."""

from __future__ import annotations

from typing import Final

_SECONDS: Final = 0.01
"""How long one call should take."""
_MOST_ROWS: Final = 4096


class SliceSize:
    """Learns from each call how many rows the next should have; it begins with one row and at most doubles."""

    def __init__(self) -> None:
        self.rows = 1

    def took(self, rows: int, seconds: float) -> None:
        """A call with `rows` rows has taken `seconds`."""
        fitting = int(rows * _SECONDS / seconds) if seconds > 0 else _MOST_ROWS
        self.rows = max(1, min(_MOST_ROWS, fitting, 2 * self.rows))
