"""A snapshot of the heap backend: the dicts as they were at a barrier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from checkpoint.state.contents import Declared
from checkpoint.state.heap.maps import SnapshotReading
from checkpoint.state.keyed_snapshot import WholeSnapshot
from checkpoint.state.snapshot_writer import FrozenGroup, TtlRows

_FREED_AT_ONCE: Final = 64
"""Values; some microseconds each."""


class HeapSnapshot(WholeSnapshot):
    """Groups of dicts that nobody changes any more. Each is freed once it is written."""

    def __init__(
        self,
        operator: str,
        max_parallelism: int,
        groups: list[tuple[FrozenGroup, SnapshotReading]],
        ttl: Mapping[str, TtlRows],
        declared: Mapping[str, Declared],
    ) -> None:
        """
        Args:
            groups: what is read of each key group, and until when.
        """
        super().__init__(operator, max_parallelism, ttl, declared)
        self._frozen = [group for group, _ in groups]
        self._readings = [reading for _, reading in groups]

    def _groups(self) -> Iterator[FrozenGroup]:
        """The groups. When the next one is asked for, the backend may change what the one before has, which is freed
        unless the caller still holds it. Nobody else may know values that were changed since the barrier, and to free
        them at once would hold the interpreter for as long as that takes, so that is done piece by piece."""
        groups, readings = self._frozen, self._readings
        groups.reverse()
        readings.reverse()
        while groups:
            kept = [list(data.values()) for _, data in groups[-1][1]]
            yield groups.pop()
            readings.pop().over = True
            for values in kept:
                while values:
                    del values[-_FREED_AT_ONCE:]

    def _free(self) -> None:
        for reading in self._readings:  # of the group, too, at which it was given up
            reading.over = True
        for _ in self._groups():
            pass
