"""The output system: a transactional log with a marker for each writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.graph import Row
from sinks.kafka.marker import Marker


class FencedProducer(Exception):
    """A newer producer has the same transactional id."""


@dataclass
class OutputSystem:
    """What is committed, in order."""

    log: dict[str, list[Row]] = field(default_factory=dict)
    """By sink."""
    markers: dict[str, Marker] = field(default_factory=dict)
    """By group."""
    _producers: dict[str, int] = field(default_factory=dict)

    def init(self, group: str) -> int:
        """Fence older producers of the group; returns the new one's epoch."""
        self._producers[group] = self._producers.get(group, 0) + 1
        return self._producers[group]

    def transact(self, sink: str, group: str, epoch: int, rows: Sequence[Row], marker: Marker) -> None:
        """One transaction, all or nothing.

        Raises:
            FencedProducer: a newer one was initialised.
        """
        if self._producers[group] != epoch:
            raise FencedProducer(f"{group}: producer {epoch} is fenced")
        self.log.setdefault(sink, []).extend(rows)
        self.markers[group] = marker
