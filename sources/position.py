"""How far a source has read, in terms that its user knows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """In one of a source's splits."""

    split: str
    """Of Kafka `topic[partition]`."""
    next: int
    """Of Kafka the next offset to read; of a sequence the next id."""
    end: int | None = None
    """The first one not to read; `None` = unbounded, or not part of the snapshot."""
    ended: bool = False
    """Nothing is left to read."""
