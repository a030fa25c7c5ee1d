"""How a subtask is joined from its parts: its channels by name, where records enter its chain, how it is restored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from checkpoint.codec import revived
from checkpoint.elements import ChannelName, EdgeName
from checkpoint.errors import PermanentFailure
from checkpoint.in_flight.edges import EdgeShape
from checkpoint.state import KeyedBackend
from checkpoint.state.files import load_encoded_state, load_keyed_state
from checkpoint.storage.storage import CheckpointStorage
from pipeline.plan import Plan, PlannedEdge, Vertex
from pipeline.runtime import error_text
from pipeline.runtime.deployment import Restored
from pipeline.runtime.reach import downstream_subtasks
from pipeline.runtime.restored_in_flight import holders
from pipeline.runtime.subtask.chain import Chain, ChainEntry
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.record_writer import RecordWriter


def input_channels(plan: Plan, vertex: Vertex, index: int) -> Iterator[tuple[PlannedEdge, ChannelName]]:
    """The channels that lead into subtask `index` of the vertex, edge by edge."""
    for edge in plan.inputs_of(vertex.index):
        upstream = plan.vertices[edge.upstream]
        for i in range(upstream.parallelism):
            if index in downstream_subtasks(edge, i, upstream.parallelism, vertex.parallelism):
                yield edge, ChannelName(edge.name, i, index)


def output_channels(plan: Plan, vertex: Vertex, index: int) -> Iterator[tuple[PlannedEdge, list[ChannelName]]]:
    """The edges that lead out of the vertex, each with the channels of subtask `index`."""
    for edge in plan.outputs_of(vertex.index):
        downstream = plan.vertices[edge.downstream]
        targets = downstream_subtasks(edge, index, vertex.parallelism, downstream.parallelism)
        yield edge, [ChannelName(edge.name, index, target) for target in targets]


def emitters(
    vertex: Vertex, index: int, writers: Sequence[RecordWriter], max_parallelism: int
) -> dict[tuple[str, str | None], list[Callable[[Any], None]]]:
    """What the chain of subtask `index` emits into, for each edge that leads out of it, as `Chain` takes it."""
    outputs: dict[tuple[str, str | None], list[Callable[[Any], None]]] = {}
    readers = Counter(
        [(writer.edge.upstream_step, writer.edge.tag) for writer in writers]
        + [(step.chained_to, step.tag) for step in vertex.steps if step.chained_to is not None]
    )
    for writer in writers:
        shared = readers[writer.edge.upstream_step, writer.edge.tag] > 1
        emit = writer.emitter(index, vertex.parallelism, max_parallelism, shared)
        outputs.setdefault((writer.edge.upstream_step, writer.edge.tag), []).append(emit)
    return outputs


def entries_into(
    chain: Chain, plan: Plan, vertex: Vertex, shapes: Mapping[EdgeName, EdgeShape]
) -> dict[EdgeName, ChainEntry]:
    """Where records enter the chain, for the edges that lead into it and those inside it.

    Args:
        shapes: of the edges, from `edge_shapes`.
    """
    entries = {
        edge.name: ChainEntry(chain.entry(edge.downstream_step, edge.input), edge.format)
        for edge in plan.inputs_of(vertex.index)
    }
    for step in vertex.steps:
        if step.link is not None and step.chained_to is not None:
            inside = chain.time.of[step.chained_to]
            entries[step.link] = ChainEntry(chain.entry(step.id, 0), shapes[step.link].format, inside)
    return entries


# -- restoring --------------------------------------------------------------------------------------------------


@contextmanager
def whole(what: str) -> Iterator[None]:
    """Around what is made of whole files by code that isn't the user's: what fails there fails every time."""
    try:
        yield
    except PermanentFailure:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:  # of values, not of reading
        raise PermanentFailure(f"{what} can't be restored: {error_text.summary(error)}") from error


def restore_chain(
    chain: Chain, backend: KeyedBackend | None, restore: Restored, storage: CheckpointStorage, allow_unclaimed: bool
) -> None:
    """Give the operators their state. Comes before `open`.

    Args:
        storage: where the files of keyed state lie.
    """
    with whole("keyed state"):
        files = restore.keyed_state.get(chain.head, [])
        if backend is not None and backend.takes_encoded:
            backend.restore_encoded(load_encoded_state(storage, files), allow_unclaimed)
        elif backend is not None:
            backend.restore(load_keyed_state(storage, files), allow_unclaimed)
    with whole("operator list and union state"):
        for id, lists in restore.lists.items():
            chain.restore_lists(id, lists, allow_unclaimed)
    for id, states in restore.operators.items():
        for state in states:
            chain.operators[id].restore(revived(state))
    with whole("broadcast state"):
        for id, broadcast in restore.broadcast.items():
            chain.restore_broadcast(id, broadcast, allow_unclaimed, restore.broadcast_contents.get(id))


def restore_event_time(
    event_time: EventTime, restore: Restored, plan: Plan, vertex: Vertex, index: int, max_parallelism: int, same: bool
) -> None:
    """Give subtask `index` of the vertex its event time.

    Args:
        same: all edges are as they were in the restored checkpoint, at both ends.
    """
    # There are no states if the head is new, or was chained; then old channels may have watermarks in flight.
    event_time.restore(
        restore.event_time.get(vertex.head.id, []),
        holders(restore.in_flight, plan, vertex, index, max_parallelism),
        same,
    )
    for step, watermarks in restore.watermarks.items():
        event_time.restore_watermarks(step, watermarks, same)
