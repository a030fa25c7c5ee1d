"""Point queries: what is asked about one key of a running job, and what is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PointQuery:
    """Which state of which key."""

    step: str
    key: bytes
    """Encoded (`codec.encode_key`)."""
    group: int
    """Key group of the key."""
    state: str | None = None
    """`None`: all states, and timers."""
    map_key: bytes | None = None
    """Encoded. Of a map only this entry; `None` = all of them."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a key has. Nothing else has changed it since it was read: it is a copy."""

    states: Mapping[str, bytes] = field(default_factory=dict)
    """Encoded values by name; states in which the key has nothing are left out."""
    timers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By clock, in milliseconds since the epoch; empty where one state was asked for."""
    refused: str | None = None
    """Why there is no answer, if there is none."""
