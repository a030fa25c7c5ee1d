"""What a checkpoint remembers of the job graph's edges, so that in-flight data find their way when it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from checkpoint.edge_format import EdgeFormat
from checkpoint.elements import EdgeName
from checkpoint.row_format import row_format


@dataclass(frozen=True, slots=True)
class EdgeShape:
    """How records of an edge are spread. As long as it stays the same, old channels stay with their subtasks."""

    distribution: str
    """`forward`, `keyed`, `rebalance`, `rescale`, `custom` or `broadcast`."""
    fingerprint: str
    """Changes with the partitioner, its key selector or its function."""
    carries_keys: bool
    """Frames have key and key group."""
    upstreams: int
    """Parallelism of the upstream end."""
    downstreams: int

    @property
    def format(self) -> EdgeFormat:
        """How its records are encoded."""
        return row_format(self.carries_keys)

    def to_wire(self) -> list[Any]:
        return [self.distribution, self.fingerprint, self.carries_keys, self.upstreams, self.downstreams]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> EdgeShape:
        return cls(*wire)


@dataclass(frozen=True, slots=True)
class SnapshotEdge:
    """An edge in a checkpoint, one between two chained steps included: restored data may wait in front of its step."""

    shape: EdgeShape
    upstream_vertex: str
    """Id of the vertex in the same checkpoint whose subtasks captured its output queues."""
    downstream_vertex: str
    """Whose subtasks captured its input, and what was restored."""

    def to_wire(self) -> list[Any]:
        return [self.shape.to_wire(), self.upstream_vertex, self.downstream_vertex]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> SnapshotEdge:
        shape, upstream, downstream = wire
        return cls(EdgeShape.from_wire(shape), upstream, downstream)


def rows_to_wire(rows: Mapping[EdgeName, int]) -> list[Any]:
    """Rows by edge as a msgpack- and JSON-able value."""
    return [[*edge, count] for edge, count in rows.items()]


def rows_from_wire(wire: list[Any]) -> dict[EdgeName, int]:
    return {EdgeName(upstream, downstream, port): count for upstream, downstream, port, count in wire}
