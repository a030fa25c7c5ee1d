"""The logical graph: steps as the user wrote them, joined by edges."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pipeline.errors import PipelineError
from pipeline.partitioners import FORWARD, REBALANCE, Distribution, Partitioner


class StepKind(StrEnum):
    SOURCE = "source"
    MAP = "map"
    FILTER = "filter"
    FLAT_MAP = "flat_map"
    PROCESS = "process"
    UNION = "union"
    SINK = "sink"


@dataclass
class Input:
    """Where a step's records come from."""

    step: int
    """Index of the upstream step in `Graph.steps`."""
    partitioner: Partitioner | None = None
    """`None`: forward between equal parallelisms, rebalance else."""
    tag: str | None = None
    """Side output of the upstream step; `None` = its main output."""


@dataclass
class Step:
    index: int
    kind: StepKind
    id: str
    named: bool
    """Whether the user gave the id."""
    payload: Any
    """The source, sink, operator or function."""
    parallelism: int
    inputs: list[Input] = field(default_factory=list)

    def __str__(self) -> str:
        return f"step {self.id!r}"


class Graph:
    """Steps in the order they were added, so that inputs come before their users."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._numbers: Counter[StepKind] = Counter()

    def add(self, kind: StepKind, id: str | None, payload: Any, parallelism: int, inputs: list[Input]) -> Step:
        """Add a step; without an id it gets one from its place in the graph.

        Raises:
            PipelineError: the id is taken or no usable id, or the parallelism is none.
        """
        self._numbers[kind] += 1
        named = id is not None
        if id is None:
            id = f"{kind.value}-{self._numbers[kind]}"
        if not isinstance(id, str) or not id.strip():
            raise PipelineError(f"the id of a {kind.value} step must be a non-empty string, not {id!r}")
        if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
            raise PipelineError(f"step {id!r}: parallelism must be a whole number of at least 1, not {parallelism!r}")
        self._refuse_duplicate(id)
        step = Step(len(self.steps), kind, id, named, payload, parallelism, inputs)
        self.steps.append(step)
        return step

    def rename(self, step: Step, id: str) -> None:
        """Give a step an id of the user's."""
        if not isinstance(id, str) or not id.strip():
            raise PipelineError(f"the id of {step} must be a non-empty string, not {id!r}")
        if id != step.id:
            self._refuse_duplicate(id)
        step.id, step.named = id, True

    def _refuse_duplicate(self, id: str) -> None:
        for other in self.steps:
            if other.id == id:
                raise PipelineError(
                    f"two steps have the id {id!r} (a {other.kind.value} step has it already); ids name state in "
                    "checkpoints, so each must be unique in its pipeline"
                )


@dataclass(frozen=True)
class PlannedEdge:
    """An edge between two vertices, which becomes channels."""

    index: int
    upstream: int
    """Index of the upstream vertex."""
    upstream_step: str
    downstream: int
    downstream_step: str
    partitioner: Partitioner
    tag: str | None


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


@dataclass(frozen=True)
class Vertex:
    """Steps chained into one task: `parallelism` subtasks, each a Spark partition."""

    index: int
    name: str
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

    def inputs_of(self, vertex: int) -> list[PlannedEdge]:
        return [edge for edge in self.edges if edge.downstream == vertex]

    def outputs_of(self, vertex: int) -> list[PlannedEdge]:
        return [edge for edge in self.edges if edge.upstream == vertex]


def plan(graph: Graph, max_parallelism: int) -> Plan:
    """Chain what can be chained and number vertices, edges and subtasks.

    A step is chained to the one it reads from when the edge is forward, both have the same parallelism and the step
    has no other input.

    Raises:
        PipelineError: the graph can't run, with the reason and the step.
    """
    _check(graph, max_parallelism)
    inputs = {step.index: [_resolved(graph, step, one) for one in _through_unions(graph, step)] for step in graph.steps}
    real = [step for step in graph.steps if step.kind is not StepKind.UNION]
    head_of: dict[int, int] = {}
    members: dict[int, list[PlannedStep]] = {}
    for step in real:
        feeds = inputs[step.index]
        upstream = feeds[0] if len(feeds) == 1 else None
        if upstream is not None and _chains(graph, step, upstream):
            head = head_of[upstream.step]
            link = PlannedStep(step.id, step.kind, step.payload, graph.steps[upstream.step].id, upstream.tag)
        else:
            head = step.index
            link = PlannedStep(step.id, step.kind, step.payload, None, None)
        head_of[step.index] = head
        members.setdefault(head, []).append(link)
    vertices: list[Vertex] = []
    place: dict[int, int] = {}
    first = 0
    for head, steps in members.items():
        place[head] = len(vertices)
        parallelism = graph.steps[head].parallelism
        name = " → ".join(step.id for step in steps)
        vertices.append(Vertex(len(vertices), name, parallelism, first, tuple(steps)))
        first += parallelism
    edges: list[PlannedEdge] = []
    for step in real:
        if head_of[step.index] != step.index:
            continue
        for one in inputs[step.index]:
            assert one.partitioner is not None
            edges.append(
                PlannedEdge(
                    len(edges),
                    place[head_of[one.step]],
                    graph.steps[one.step].id,
                    place[step.index],
                    step.id,
                    one.partitioner,
                    one.tag,
                )
            )
    return Plan(tuple(vertices), tuple(edges))


def _check(graph: Graph, max_parallelism: int) -> None:
    if not any(step.kind is StepKind.SOURCE for step in graph.steps):
        raise PipelineError("the pipeline has no source: begin with p.source(id, ...)")
    used = {one.step for step in graph.steps if step.kind is not StepKind.UNION for one in _through_unions(graph, step)}
    for step in graph.steps:
        if step.parallelism > max_parallelism:
            raise PipelineError(
                f"{step}: parallelism {step.parallelism} is above the pipeline's max_parallelism {max_parallelism}, "
                "which is the number of key groups; raise max_parallelism before the first checkpoint"
            )
        if step.kind is StepKind.SOURCE and step.index not in used:
            raise PipelineError(f"{step} is read by no step: add operators or a sink behind it")


def _through_unions(graph: Graph, step: Step) -> list[Input]:
    """The step's inputs, with union steps replaced by what they unite."""
    found: list[Input] = []
    for one in step.inputs:
        upstream = graph.steps[one.step]
        if upstream.kind is StepKind.UNION:
            found += [Input(i.step, one.partitioner or i.partitioner, i.tag) for i in _through_unions(graph, upstream)]
        else:
            found.append(one)
    return found


def _resolved(graph: Graph, step: Step, one: Input) -> Input:
    upstream = graph.steps[one.step]
    partitioner = one.partitioner
    if partitioner is None:
        partitioner = FORWARD if upstream.parallelism == step.parallelism else REBALANCE
    elif partitioner.distribution is Distribution.FORWARD and upstream.parallelism != step.parallelism:
        raise PipelineError(
            f"forward from {upstream} ({upstream.parallelism} subtasks) to {step} ({step.parallelism}) needs equal "
            "parallelism; use rebalance() or rescale()"
        )
    return Input(one.step, partitioner, one.tag)


def _chains(graph: Graph, step: Step, one: Input) -> bool:
    assert one.partitioner is not None
    return (
        one.partitioner.distribution is Distribution.FORWARD and graph.steps[one.step].parallelism == step.parallelism
    )
