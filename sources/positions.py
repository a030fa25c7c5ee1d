"""What a checkpoint holds of a source, for programs that show it."""

from __future__ import annotations

from typing import Any

from . import sequence
from .files import ledger
from .kafka import splits
from .source import Position


def positions(state: Any) -> list[Position] | None:
    """The positions in what the reader of one of Weir's sources returned from `snapshot`, in order of their splits;
    `None` if it is the state of another source."""
    for positions_in in (splits.positions_in, ledger.positions_in, sequence.positions_in):
        if (found := positions_in(state)) is not None:
            return found
    return None
