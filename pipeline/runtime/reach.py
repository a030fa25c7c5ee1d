"""Which subtasks have channels to which, and so which ones a source reaches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.partitioners import Distribution, rescale_targets
from pipeline.plan import Plan, PlannedEdge


def downstream_subtasks(edge: PlannedEdge, upstream: int, upstreams: int, downstreams: int) -> Sequence[int]:
    """Which subtasks of the downstream vertex (counted from 0) subtask `upstream` has a channel to."""
    match edge.partitioner.distribution:
        case Distribution.FORWARD:
            return (upstream,)
        case Distribution.RESCALE:
            return rescale_targets(upstream, upstreams, downstreams)
        case _:
            return range(downstreams)


def reached_from_sources(plan: Plan) -> dict[int, frozenset[int]]:
    """For each source subtask those that its records may come to, by their global numbers; itself if there are none.

    A source's own snapshot is behind it when any other has got its barrier, so without itself sources that reach the
    same are alike.
    """
    targets = {subtask: frozenset(_targets(plan, subtask)) for subtask in range(plan.subtasks)}
    sources = [subtask for vertex in plan.vertices if vertex.is_source for subtask in vertex.subtasks]
    return {source: _closure(targets, targets[source]) or frozenset({source}) for source in sources}


def _targets(plan: Plan, subtask: int) -> Iterable[int]:
    vertex = plan.vertex_of(subtask)
    for edge in plan.outputs_of(vertex.index):
        downstream = plan.vertices[edge.downstream]
        index = subtask - vertex.first_subtask
        for target in downstream_subtasks(edge, index, vertex.parallelism, downstream.parallelism):
            yield downstream.first_subtask + target


def _closure(targets: dict[int, frozenset[int]], first: frozenset[int]) -> frozenset[int]:
    found, new = set(first), set(first)
    while new:
        new = {target for subtask in new for target in targets[subtask]} - found
        found |= new
    return frozenset(found)
