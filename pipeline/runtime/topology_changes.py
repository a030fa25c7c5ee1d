"""What a pipeline has changed of the edges since a checkpoint, and what follows: which records in flight have no place,
and whether sources wait for a replay (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from checkpoint.counted import counted
from checkpoint.elements import EdgeName
from checkpoint.in_flight.edges import EdgeShape, SnapshotEdge
from checkpoint.in_flight.redistribute import Rule, rule
from checkpoint.storage.metadata import CheckpointMetadata
from pipeline.partitioners import Distribution
from pipeline.plan import Plan, keeps_keys


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
            f"had {before.upstreams} → {counted(before.downstreams, 'subtask')}, and has {now.upstreams} → "
            f"{now.downstreams} now"
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
        where = f"checkpoint {metadata.id} has {counted(count, 'record')} in flight {describe(name)}"
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
