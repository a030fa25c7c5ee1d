"""The output system: a transactional log with a marker for each writer, and the committer in front of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from checkpoint.committables import Committable
from simulated.graph import Row
from sinks.kafka.errors import MarkerLost
from sinks.kafka.marker import Marker
from sinks.kafka.recovery import KafkaRecovery, recover
from sinks.sink import Lineage


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


class SimulatedCommitter:
    """Commits for one writer. A crash may come between any two steps of its generators."""

    def __init__(
        self,
        output: OutputSystem,
        read: Callable[[str], list[Row]],
        sink: str,
        writer: int,
        lineage: Lineage,
        checkpoint: int,
        recorded: Marker | None,
        rng: random.Random,
        faults: frozenset[str] = frozenset(),
    ) -> None:
        """
        Args:
            read: rows of a segment's file.
            checkpoint: id of the one restored, 0 for none.
            recorded: the marker in it.
        """
        self.marker: Marker | None = None
        self._output = output
        self._read = read
        self._sink = sink
        self._group = f"{sink}-{writer}"
        self._lineage = lineage
        self._checkpoint = checkpoint
        self._recorded = recorded
        self._rng = rng
        self._faults = faults
        self._producer = 0

    def open(self, restored: Sequence[Committable], rewind: bool = False) -> Iterator[None]:
        """Fence, read the marker, recover. Afterwards `left` is what must still be committed."""
        self._producer = self._output.init(self._group)
        yield
        found = self._output.markers.get(self._group)
        recovery = KafkaRecovery(
            group=self._group,
            lineage=self._lineage,
            checkpoint=self._checkpoint,
            recorded=self._recorded,
            found=found,
            restored=restored,
            rewind=rewind,
        )
        try:
            marker = recover(recovery)
        except MarkerLost:
            if "marker_lost_ignored" not in self._faults:
                raise
            marker = Marker(self._lineage, self._checkpoint, self._recorded.last if self._recorded else None)
        yield
        if marker != found:
            self._output.transact(self._sink, self._group, self._producer, (), marker)
        self.marker = marker
        self.left = list(restored) if "markers_ignored" in self._faults else _after(marker, restored)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> Iterator[None]:
        """Whole segments, in one or several transactions."""
        assert self.marker is not None
        todo = list(committables) if "markers_ignored" in self._faults else _after(self.marker, committables)
        checkpoint = max(checkpoint_id, self.marker.checkpoint)
        while True:
            size = self._rng.randint(1, 3)
            some, todo = todo[:size], todo[size:]
            last = some[-1].name if some else self.marker.last
            marker = Marker(self.marker.lineage, checkpoint, last)
            rows = [row for one in some for file in one.files for row in self._read(file.path)]
            yield
            self._output.transact(self._sink, self._group, self._producer, rows, marker)
            yield
            self.marker = marker
            if not todo:
                return


def _after(marker: Marker, committables: Sequence[Committable]) -> list[Committable]:
    return [one for one in committables if marker.last is None or one.name > marker.last]
