"""A snapshot of the heap backend: the dicts as they were at a barrier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Final

from checkpoint.state.contents import ContentNotes, Declared
from checkpoint.state.keyed_snapshot import WholeSnapshot
from checkpoint.state.snapshot_format import Compression, SnapshotFooter
from checkpoint.state.snapshot_writer import FrozenGroup, SnapshotAbandoned, TtlRows, write_snapshot

_FREED_AT_ONCE: Final = 64
"""Values; some microseconds each."""


class HeapSnapshot(WholeSnapshot):
    """Groups of dicts that nobody changes any more. Each is freed once it is written."""

    def __init__(
        self,
        operator: str,
        max_parallelism: int,
        groups: list[FrozenGroup],
        ttl: Mapping[str, TtlRows],
        declared: Mapping[str, Declared],
    ) -> None:
        self._operator = operator
        self._max_parallelism = max_parallelism
        self._groups = groups
        self._ttl = ttl
        self._declared = declared
        self._lock = Lock()
        self._writing = False
        self._abandoned = False
        self.released = False
        """Whether the backend may change what this snapshot saw. Only ever turns true."""

    def write(self, sink: Callable[[memoryview], object], compression: Compression = "lz4") -> SnapshotFooter:
        with self._lock:
            if self.released or self._writing:
                raise SnapshotAbandoned(f"this snapshot of {self._operator} was written or released before")
            self._writing = True
        try:
            return write_snapshot(
                self._given_up_one_by_one(),
                sink,
                compression,
                operator=self._operator,
                max_parallelism=self._max_parallelism,
                abandoned=lambda: self._abandoned,
                ttl=self._ttl,
                notes=ContentNotes(self._declared),
            )
        finally:
            self._finish()

    def release(self) -> None:
        with self._lock:
            self._abandoned = True
            if not self._writing:
                self._finish()

    def _given_up_one_by_one(self) -> Iterator[FrozenGroup]:
        """The groups; each is freed when the next one is asked for, unless the caller still holds it. Nobody else may
        know values that were changed since the barrier, and to free them at once would hold the interpreter for as long
        as that takes, so that is done piece by piece."""
        groups = self._groups
        groups.reverse()
        while groups:
            kept = [list(data.values()) for _, data in groups[-1][1]]
            yield groups.pop()
            for values in kept:
                while values:
                    del values[-_FREED_AT_ONCE:]

    def _finish(self) -> None:
        for _ in self._given_up_one_by_one():
            pass
        self.released = True
