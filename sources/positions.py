"""What a checkpoint holds of a source, for programs that show it."""

from __future__ import annotations

from typing import Any

from . import sequence
from .kafka import splits
from .position import Position


def positions(state: Any) -> list[Position] | None:
    """The positions in what the reader of one of Weir's sources returned from `snapshot`, in order of their splits;
    `None` if it is the state of another source."""
    found = splits.positions_in(state)
    return found if found is not None else sequence.positions_in(state)
