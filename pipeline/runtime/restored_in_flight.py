"""How in-flight data of a restored checkpoint gets to the subtasks: which files, which new subtask, what each loads."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from checkpoint.elements import ChannelName, EdgeName, InFlight, Watermark
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.in_flight import channel_state
from checkpoint.in_flight.edges import EdgeShape, SnapshotEdge
from checkpoint.in_flight.redistribute import EdgeRedistribution, Rule, assign, redistribute, rule
from checkpoint.in_flight.runs import Origin
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.storage import CheckpointStorage
from pipeline.plan import Plan, PlannedEdge, Vertex
from pipeline.runtime.deployment import RestoredInFlight
from pipeline.runtime.reach import downstream_subtasks
from pipeline.runtime.topology_changes import edge_shapes


def edges_into(vertex: Vertex, plan: Plan) -> list[EdgeName]:
    """The edges at which restored data can enter the vertex, the steps furthest down the chain first."""
    links = [step.link for step in reversed(vertex.steps) if step.link is not None]
    return links + [edge.name for edge in plan.inputs_of(vertex.index)]


# -- driver -----------------------------------------------------------------------------------------------------


def ask_custom_partitioners(
    metadata: CheckpointMetadata, plan: Plan, storage: CheckpointStorage
) -> dict[Origin, array[int]]:
    """The new subtask of every row in flight on custom edges that have changed.

    Raises:
        DamagedFile: a file of channel state is.
        StorageError: one can't be read.
        Exception: what the user's partitioner raises.
    """
    assigned: dict[Origin, array[int]] = {}
    shapes = edge_shapes(plan)
    for edge in plan.edges:
        old = metadata.edges.get(edge.name)
        if old is None or rule(old.shape, shapes[edge.name]) is not Rule.ASSIGNED:
            continue
        everyone = (old, range(old.shape.downstreams), range(old.shape.upstreams))
        for subtask, handle in _files(metadata, [everyone]):
            runs = channel_state.load(storage, handle, subtask)
            mine = (run for run in runs if run.origin.channel.edge == edge.name)
            assigned.update(assign(mine, old.shape.format, _chooser(edge, shapes[edge.name].downstreams)))
    return assigned


def _chooser(edge: PlannedEdge, downstreams: int) -> Callable[[Any], int]:
    function = edge.partitioner.function
    assert function is not None

    def choose(value: Any) -> int:
        index = function(value, downstreams)
        if type(index) is not int or not 0 <= index < downstreams:
            raise ValueError(
                f"the partitioner before {edge.downstream_step!r} chose subtask {index!r}; it must choose a whole "
                f"number from 0 to {downstreams - 1}"
            )
        return index

    return choose


def in_flight_for(
    vertex: Vertex,
    index: int,
    metadata: CheckpointMetadata,
    plan: Plan,
    max_parallelism: int,
    assigned: Mapping[Origin, array[int]],
) -> RestoredInFlight:
    """What subtask `index` of `vertex` needs for `load_in_flight`.

    Args:
        assigned: from `ask_custom_partitioners`.
    """
    old = {name: metadata.edges[name].shape for name in edges_into(vertex, plan) if name in metadata.edges}
    spread = _redistributions(vertex, plan, old, max_parallelism, {})
    wanted = [(metadata.edges[name], one.holders(index), one.upstreams(index)) for name, one in spread.items()]
    mine = {origin: targets for origin, targets in assigned.items() if origin.channel.edge in old}
    return RestoredInFlight(old, list(_files(metadata, wanted)), mine)


def _files(
    metadata: CheckpointMetadata, wanted: list[tuple[SnapshotEdge, Any, Any]]
) -> Iterator[tuple[int, FileHandle]]:
    """Files of old subtasks, each once: of those downstream and of those upstream on each edge."""
    subtasks: dict[tuple[str, int], None] = {}
    for edge, downstream, upstream in wanted:
        subtasks.update(((edge.downstream_vertex, i), None) for i in downstream)
        subtasks.update(((edge.upstream_vertex, i), None) for i in upstream)
    for name, index in subtasks:
        for handle in metadata.vertices[name].subtasks[index].channel_state:
            yield index, handle


# -- subtask ----------------------------------------------------------------------------------------------------


def load_in_flight(
    restored: RestoredInFlight,
    storage: CheckpointStorage,
    plan: Plan,
    vertex: Vertex,
    index: int,
    max_parallelism: int,
) -> list[tuple[ChannelName, InFlight]]:
    """The restored sequence of subtask `index` of `vertex`, in the format that the edges have now.

    Channels are those of the attempt that captured an element first. It enters the chain in front of the step
    `channel.edge.downstream`.

    Raises:
        DamagedFile: a file of channel state is.
        StorageError: one can't be read.
        KeyMissing: the edge is keyed by something else now, and a record doesn't have that.
    """
    edges = _redistributions(vertex, plan, restored.edges, max_parallelism, restored.assigned)
    runs = (run for subtask, handle in restored.files for run in channel_state.load(storage, handle, subtask))
    # Whoever's event time had ended says so again; but of a job that was being drained none does, as it reads on.
    return [one for one in redistribute(runs, edges, index) if one[1] != Watermark(MAX_WATERMARK)]


def holders(
    restored: RestoredInFlight, plan: Plan, vertex: Vertex, index: int, max_parallelism: int
) -> dict[EdgeName, Sequence[int]]:
    """By input edge of the vertex the old subtasks whose in-flight rows may come to subtask `index`."""
    edges = _redistributions(vertex, plan, restored.edges, max_parallelism, restored.assigned)
    inputs = {edge.name for edge in plan.inputs_of(vertex.index)}
    return {name: edge.holders(index) for name, edge in edges.items() if name in inputs}


def _redistributions(
    vertex: Vertex,
    plan: Plan,
    old: Mapping[EdgeName, EdgeShape],
    max_parallelism: int,
    assigned: Mapping[Origin, array[int]],
) -> dict[EdgeName, EdgeRedistribution]:
    """By edge, in the order of `edges_into`."""
    shapes = edge_shapes(plan)
    planned = {edge.name: edge for edge in plan.inputs_of(vertex.index)}

    def redistribution(name: EdgeName) -> EdgeRedistribution:
        new, edge = shapes[name], planned.get(name)
        key = edge.partitioner.key if edge is not None else None

        def shares(upstream: int) -> Any:
            # A link is a forward edge.
            return (upstream,) if edge is None else downstream_subtasks(edge, upstream, new.upstreams, new.downstreams)

        return EdgeRedistribution(
            old[name], new, max_parallelism, shares, None if key is None else key.compile(), assigned
        )

    return {name: redistribution(name) for name in edges_into(vertex, plan) if name in old}
