"""The plan: what of the graph runs in which subtask, and the edges between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkpoint.counted import counted
from checkpoint.edge_format import EdgeFormat
from checkpoint.elements import EdgeName
from checkpoint.key_groups import subtask_of
from checkpoint.row_format import row_format
from checkpoint.state_backends import StateBackend
from pipeline.errors import PipelineError
from pipeline.graph import Graph, Input, Step, StepKind, all_broadcast, through_unions
from pipeline.on_error import DeadLetter, Skip
from pipeline.partitioners import FORWARD, REBALANCE, Distribution, Partitioner


@dataclass(frozen=True)
class PlannedEdge:
    """An edge between two vertices, which becomes channels."""

    index: int
    upstream: int
    """Index of the upstream vertex."""
    downstream: int
    partitioner: Partitioner
    tag: str | None
    """Side output of the upstream step; `None` = its main output."""
    name: EdgeName
    """The same over restarts as long as the steps keep their ids."""
    input: int
    """0: main input of the downstream step; 1: its connected input."""
    carries_keys: bool
    """Frames have key and key group: on keyed edges, and on forward ones behind a vertex whose records have keys, so
    that what was in flight there can go by them when it is restored. (Records without one: see
    `checkpoint.edge_format.NO_KEY`.)"""

    @property
    def format(self) -> EdgeFormat:
        """How its records are encoded."""
        return row_format(self.carries_keys)

    @property
    def upstream_step(self) -> str:
        return self.name.upstream

    @property
    def downstream_step(self) -> str:
        return self.name.downstream

    @property
    def fingerprint(self) -> str:
        """Changes with the way records are spread; kept in checkpoints."""
        return self.partitioner.fingerprint


@dataclass(frozen=True)
class PlannedStep:
    """A step inside a vertex."""

    id: str
    kind: StepKind
    payload: Any
    chained_to: str | None
    """Id of the step in the same vertex that feeds it; `None` for the head."""
    tag: str | None
    """Side output of `chained_to` that it reads."""

    @property
    def link(self) -> EdgeName | None:
        """The edge inside the vertex that it reads from: what was in flight there in a checkpoint enters in front of
        the step, chained or not. `None` for the head."""
        if self.chained_to is None:
            return None
        return EdgeName(self.chained_to, self.id, _port(Input(0, tag=self.tag), 0))

    connected: bool = False
    """Whether it has a second input; such a step is the head."""
    broadcast_inputs: frozenset[int] = frozenset()
    """Which inputs (0: main, 1: connected) bring every subtask all of their records."""
    state_backend: StateBackend | None = None
    """Of its keyed state; `None` = as the checkpoints' options say."""
    on_error: Skip | DeadLetter | None = None
    """What becomes of records that it fails on; `None` = the attempt fails."""


@dataclass(frozen=True)
class Vertex:
    """Steps chained into one task: `parallelism` subtasks, each a Spark partition."""

    index: int
    name: str
    """From `vertex_name`: no other vertex of the plan has it. Checkpoints, metrics and errors go by it."""
    parallelism: int
    first_subtask: int
    """Global number of its subtask 0; the others follow."""
    steps: tuple[PlannedStep, ...]
    """Head first, each behind the step it is chained to."""

    @property
    def head(self) -> PlannedStep:
        return self.steps[0]

    @property
    def is_source(self) -> bool:
        return self.head.kind is StepKind.SOURCE

    @property
    def subtasks(self) -> range:
        return range(self.first_subtask, self.first_subtask + self.parallelism)

    def subtask_name(self, subtask: int) -> str:
        return f"{self.name}[{subtask - self.first_subtask}]"


@dataclass(frozen=True)
class Plan:
    """What runs: vertices joined by edges."""

    vertices: tuple[Vertex, ...]
    edges: tuple[PlannedEdge, ...]

    @property
    def subtasks(self) -> int:
        """How many subtasks, and so Spark slots, the job needs."""
        return sum(vertex.parallelism for vertex in self.vertices)

    def vertex_of(self, subtask: int) -> Vertex:
        for vertex in self.vertices:
            if subtask in vertex.subtasks:
                return vertex
        raise IndexError(f"no subtask {subtask}")

    def subtask_name(self, subtask: int) -> str:
        """`totals[1]`: how errors and statistics name a subtask."""
        return self.vertex_of(subtask).subtask_name(subtask)

    def owner_of(self, step: str, group: int, max_parallelism: int) -> int:
        """The subtask that has a key group's state of a keyed step.

        Raises:
            LookupError: no vertex begins with that step.
        """
        for vertex in self.vertices:
            if vertex.head.id == step:
                return vertex.subtasks[subtask_of(group, vertex.parallelism, max_parallelism)]
        raise LookupError(f"no vertex begins with step {step!r}")

    def inputs_of(self, vertex: int) -> list[PlannedEdge]:
        return [edge for edge in self.edges if edge.downstream == vertex]

    def outputs_of(self, vertex: int) -> list[PlannedEdge]:
        return [edge for edge in self.edges if edge.upstream == vertex]


def plan(graph: Graph, max_parallelism: int) -> Plan:
    """Chain what can be chained and number vertices, edges and subtasks.

    A step is chained to the one it reads from when the edge is forward, both have the same parallelism and the step
    has no other input. A `map_async` step is always the head: what it has taken and not emitted is in flight on its
    input channels.

    Raises:
        PipelineError: the graph can't run, with the reason and the step.
    """
    _check(graph, max_parallelism)
    inputs = {
        step.index: [_resolved(graph, step, one) for one in through_unions(graph, step.inputs)] for step in graph.steps
    }
    real = [step for step in graph.steps if step.kind is not StepKind.UNION]
    head_of: dict[int, int] = {}
    members: dict[int, list[PlannedStep]] = {}
    for step in real:
        feeds = inputs[step.index]
        upstream = feeds[0] if len(feeds) == 1 else None
        if upstream is not None and _chains(graph, step, upstream):
            head = head_of[upstream.step]
            link = PlannedStep(
                step.id,
                step.kind,
                step.payload,
                graph.steps[upstream.step].id,
                upstream.tag,
                on_error=step.on_error,
            )
        else:
            head = step.index
            connected = any(one.number == 1 for one in feeds)
            link = PlannedStep(
                step.id,
                step.kind,
                step.payload,
                None,
                None,
                connected,
                _broadcast_inputs(feeds),
                step.state_backend,
                step.on_error,
            )
        head_of[step.index] = head
        members.setdefault(head, []).append(link)
    vertices: list[Vertex] = []
    place: dict[int, int] = {}
    first = 0
    for head, steps in members.items():
        place[head] = len(vertices)
        parallelism = graph.steps[head].parallelism
        name = vertex_name([step.id for step in steps])
        vertices.append(Vertex(len(vertices), name, parallelism, first, tuple(steps)))
        first += parallelism
    edges: list[PlannedEdge] = []
    keyed: set[int] = set()
    """Vertices in which records have keys. A vertex comes behind those that it reads."""
    for step in real:
        if head_of[step.index] != step.index:
            continue
        vertex = place[step.index]
        known = len(edges)
        repeats: Counter[tuple[int, int, str | None]] = Counter()
        for one in inputs[step.index]:
            assert one.partitioner is not None
            upstream_vertex = vertices[place[head_of[one.step]]]
            upstream_id = graph.steps[one.step].id
            same = (one.step, one.number, one.tag)
            edges.append(
                PlannedEdge(
                    index=len(edges),
                    upstream=upstream_vertex.index,
                    downstream=vertex,
                    partitioner=one.partitioner,
                    tag=one.tag,
                    name=EdgeName(upstream_id, step.id, _port(one, repeats[same])),
                    input=one.number,
                    carries_keys=one.partitioner.distribution is Distribution.KEYED
                    or (
                        one.partitioner.distribution is Distribution.FORWARD
                        and upstream_vertex.index in keyed
                        and keeps_keys(upstream_vertex, upstream_id)
                    ),
                )
            )
            repeats[same] += 1
        if any(edge.carries_keys for edge in edges[known:]):
            keyed.add(vertex)
    return Plan(tuple(vertices), tuple(edges))


_ARROW: Final = " → "


def vertex_name(ids: Sequence[str]) -> str:
    """The ids of a chain's steps, joined so that other ids never give the same name: `count → out`, and of a step with
    the id `count → out` it is `'count → out'`."""
    return _ARROW.join(repr(id) if "→" in id or id[0] in "'\"" else id for id in ids)


def _broadcast_inputs(feeds: list[Input]) -> frozenset[int]:
    return frozenset(number for number in (0, 1) if all_broadcast([one for one in feeds if one.number == number]))


def _port(one: Input, repeat: int) -> str:
    """Unique among the edges between two steps; the tag comes last, since it may be any text."""
    return f"{one.number}.{repeat}" + ("" if one.tag is None else f":{one.tag}")


def keeps_keys(vertex: Vertex, id: str) -> bool:
    """Whether a record that comes into the vertex with a key still has it where step `id` emits."""
    steps = {step.id: step for step in vertex.steps}
    step: PlannedStep | None = steps[id]
    while step is not None:
        if step.kind is StepKind.MAP_BATCHES:
            return False
        step = None if step.chained_to is None else steps[step.chained_to]
    return True


def _check(graph: Graph, max_parallelism: int) -> None:
    if not any(step.kind is StepKind.SOURCE for step in graph.steps):
        raise PipelineError("the pipeline has no source: begin with p.source(id, ...)")
    used = {
        one.step
        for step in graph.steps
        if step.kind is not StepKind.UNION
        for one in through_unions(graph, step.inputs)
    }
    for step in graph.steps:
        if step.parallelism > max_parallelism:
            raise PipelineError(
                f"{step}: parallelism {step.parallelism} is above the pipeline's max_parallelism {max_parallelism}, "
                "which is the number of key groups; raise max_parallelism before the first checkpoint"
            )
        if step.kind is StepKind.SOURCE and step.index not in used:
            raise PipelineError(f"{step} is read by no step: add operators or a sink behind it")


def _resolved(graph: Graph, step: Step, one: Input) -> Input:
    upstream = graph.steps[one.step]
    partitioner = one.partitioner
    if partitioner is None:
        partitioner = FORWARD if upstream.parallelism == step.parallelism else REBALANCE
    elif partitioner.distribution is Distribution.FORWARD and upstream.parallelism != step.parallelism:
        raise PipelineError(
            f"forward from {upstream} ({counted(upstream.parallelism, 'subtask')}) to {step} ({step.parallelism}) "
            "needs equal parallelism; use rebalance() or rescale()"
        )
    return Input(one.step, partitioner, one.tag, one.number)


def _chains(graph: Graph, step: Step, one: Input) -> bool:
    assert one.partitioner is not None
    return (
        step.kind is not StepKind.MAP_ASYNC
        and one.partitioner.distribution is Distribution.FORWARD
        and graph.steps[one.step].parallelism == step.parallelism
    )
