"""In-flight data of a restored checkpoint: whether it fits the pipeline, and how it gets to the subtasks."""

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
from pipeline.graph import Plan, PlannedEdge, Vertex, keeps_keys
from pipeline.partitioners import Distribution
from pipeline.runtime.deployment import RestoredInFlight
from pipeline.runtime.reach import downstream_subtasks

# -- edges ------------------------------------------------------------------------------------------------------


def snapshot_edges(plan: Plan) -> dict[EdgeName, SnapshotEdge]:
    """What a checkpoint remembers of the edges, those between chained steps included."""
    edges: dict[EdgeName, SnapshotEdge] = {}
    for vertex in plan.vertices:
        inputs = plan.inputs_of(vertex.index)
        for edge in inputs:
            upstream = plan.vertices[edge.upstream]
            shape = EdgeShape(
                edge.partitioner.distribution.value,
                edge.fingerprint,
                edge.carries_keys,
                upstream.parallelism,
                vertex.parallelism,
            )
            edges[edge.name] = SnapshotEdge(shape, upstream.name, vertex.name)
        keyed = any(edge.carries_keys for edge in inputs)
        for step in vertex.steps:
            if step.link is not None:
                carries_keys = keyed and keeps_keys(vertex, step.link.upstream)
                forward = Distribution.FORWARD.value
                shape = EdgeShape(forward, forward, carries_keys, vertex.parallelism, vertex.parallelism)
                edges[step.link] = SnapshotEdge(shape, vertex.name, vertex.name)
    return edges


def edge_shapes(plan: Plan) -> dict[EdgeName, EdgeShape]:
    return {name: edge.shape for name, edge in snapshot_edges(plan).items()}


def edges_into(vertex: Vertex, plan: Plan) -> list[EdgeName]:
    """The edges at which restored data can enter the vertex, the steps furthest down the chain first."""
    links = [step.link for step in reversed(vertex.steps) if step.link is not None]
    return links + [edge.name for edge in plan.inputs_of(vertex.index)]


def same_topology(metadata: CheckpointMetadata, plan: Plan) -> bool:
    """Whether no parallelism, edge or partitioner has changed since the checkpoint."""
    return not topology_changes(metadata, plan)


def topology_changes(metadata: CheckpointMetadata, plan: Plan) -> list[str]:
    """What has changed of edges, partitioners and parallelism since the checkpoint."""
    before, now = {name: edge.shape for name, edge in metadata.edges.items()}, edge_shapes(plan)
    return [
        *(f"the edge {describe(name)} is gone" for name in before if name not in now),
        *(f"the edge {describe(name)} is new" for name in now if name not in before),
        *(
            f"the edge {describe(name)} {_shape_change(before[name], shape)}"
            for name, shape in now.items()
            if name in before and before[name] != shape
        ),
    ]


def _shape_change(before: EdgeShape, now: EdgeShape) -> str:
    if (before.upstreams, before.downstreams) != (now.upstreams, now.downstreams):
        return (
            f"had {before.upstreams} → {before.downstreams} subtasks, and has {now.upstreams} → {now.downstreams} now"
        )
    if before.distribution != now.distribution:
        return f"was {before.distribution}, and is {now.distribution} now"
    if before.fingerprint != now.fingerprint:
        return "is partitioned by another key or function now"
    return "carries keys now" if now.carries_keys else "carries no keys any more"


def must_replay(metadata: CheckpointMetadata, plan: Plan) -> bool:
    """Whether sources must wait after a restore until all restored in-flight data has gone through the job.

    Else a key's new records could overtake its old ones, which may lie with another subtask than before. The mark
    counts as much as a change: a checkpoint taken during a replay holds data that lies with other subtasks still.
    """
    return bool(replay_reasons(metadata, plan))


def replay_reasons(metadata: CheckpointMetadata, plan: Plan) -> list[str]:
    """Why sources must wait so (see `must_replay`); empty if they need not."""
    earlier = ["the checkpoint was taken while data of an earlier restore was replayed"] if metadata.replaying else []
    return [*earlier, *topology_changes(metadata, plan)]


def in_flight_misfits(metadata: CheckpointMetadata, plan: Plan) -> Iterator[tuple[EdgeName, str]]:
    """The edges with records in flight that the pipeline has no place for, and what to do."""
    shapes = edge_shapes(plan)
    for name, count in metadata.in_flight_rows().items():
        where = f"checkpoint {metadata.id} has {count} records in flight {describe(name)}"
        drop = f"drop them with ignore_in_flight={metadata.id}"
        if name not in shapes:
            message = (
                f"{where}, an edge that the pipeline doesn't have any more: bring the steps back under their ids, "
                f"restore, and take a checkpoint that has nothing in flight there; or {drop}"
            )
            yield name, message
        elif rule(metadata.edges[name].shape, shapes[name]) is Rule.NOTHING:
            message = (
                f"{where}, which has become a broadcast edge, or was one: set it back, restore, and take a checkpoint "
                f"that has nothing in flight there; or {drop}"
            )
            yield name, message


def describe(edge: EdgeName) -> str:
    """`from 'orders' to 'totals'`, with the input or side output where there are several."""
    port = "" if edge.port == "0.0" else f" ({edge.port})"
    return f"from {edge.upstream!r} to {edge.downstream!r}{port}"


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
