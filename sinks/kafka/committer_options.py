"""What the committer of a Kafka sink needs to know of the sink's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sinks.recovery import OnMarkerLost


@dataclass(frozen=True)
class CommitterOptions:
    servers: str
    config: Mapping[str, Any] = field(repr=False)
    name: str
    """The writer's: its transactional id and the group of its marker are called so."""
    topic: str | None
    """What it writes to, unless a function says so."""
    marker_topic: str
    """The marker is at partition 0 of this topic."""
    max_transaction_bytes: int
    on_marker_lost: OnMarkerLost
    outage_timeout: float | None = None
    """Seconds; `None` = for ever."""
