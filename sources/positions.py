"""What a checkpoint holds of a source, for programs that show it."""

from __future__ import annotations

from typing import Any

from sources import sequence
from sources.files import ledger
from sources.kafka import splits
from sources.source import Position


def positions(state: Any) -> list[Position] | None:
    """The positions in what the reader of one of Weir's sources returned from `snapshot`, in order of their splits;
    `None` if it is the state of another source."""
    for positions_in in (splits.positions_in, ledger.positions_in, sequence.positions_in):
        if (found := positions_in(state)) is not None:
            return found
    return None
