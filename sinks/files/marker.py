"""The marker: how far a writer's output is visible, kept in a small file beside it.

Parts and marker can't change in one step, so the marker is written twice for an epoch: before its first part appears
(`checkpoint` moves), and when all are there (`last` moves). In between, parts are put again under the names they have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from sinks.recovery import OutputMarker
from sinks.sink import CommittableName, Lineage

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Marker(OutputMarker):
    path: str = ""
    """The last part's name; no two parts have the same."""
    term: int = 0
    """How many committers this writer has had. A marker of an older one that is written late doesn't count."""

    def to_wire(self) -> list[Any]:
        parent = self.lineage.parent
        last = self.last.to_wire() if self.last else None
        return [self.lineage.id, list(parent) if parent else None, self.checkpoint, last, self.path, self.term]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> Marker:
        id, parent, checkpoint, last, path, term = wire
        lineage = Lineage(id, (parent[0], parent[1]) if parent else None)
        return cls(lineage, checkpoint, CommittableName.from_wire(last) if last else None, path, term)

    def to_bytes(self) -> bytes:
        return orjson.dumps({"weir": _FORMAT, "marker": self.to_wire()})

    @classmethod
    def from_bytes(cls, name: str, data: bytes) -> Marker:
        """
        Raises:
            ValueError: it is no marker of this version; names the file.
        """
        try:
            content = orjson.loads(data)
            if content["weir"] == _FORMAT:
                return cls.from_wire(content["marker"])
        except (ValueError, TypeError, KeyError):
            pass  # said below, for all content that is no marker
        raise ValueError(f"{name} is not a marker that this version of Weir has written: {data[:100]!r}")

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint} of lineage {self.lineage.id}"


def newest(markers: Iterable[Marker]) -> Marker | None:
    """The one that counts of those found for a writer."""
    return max(markers, key=lambda marker: (marker.term, marker.progress), default=None)
