"""The logical graph: steps as the user wrote them, joined by edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Protocol

import pyarrow as pa

from checkpoint.options import is_whole
from checkpoint.state_backends import StateBackend
from pipeline.errors import PipelineError
from pipeline.on_error import DeadLetter, Skip
from pipeline.partitioners import Distribution, Partitioner


class StepKind(StrEnum):
    SOURCE = "source"
    MAP = "map"
    FILTER = "filter"
    FILTER_NOT = "filter_not"
    PEEK = "peek"
    SPLIT = "split"
    LIMIT_RATE = "limit_rate"
    FLAT_MAP = "flat_map"
    MAP_BATCHES = "map_batches"
    MAP_ASYNC = "map_async"
    ASSIGN_TIMESTAMPS = "assign_timestamps"
    PROCESS = "process"
    UNION = "union"
    SINK = "sink"


MOST_SUBTASKS: Final = 32767
"""Of a step: where a row in flight goes is kept in 16 bits."""

DEFAULT_BRANCH: Final = "default"
"""The branch of a `split` that gets what no other one takes."""


Width = tuple[int, tuple[int, ...] | None]
"""The parallelism of a step, and why it has that (`Step.follows`)."""


@dataclass
class Input:
    """Where a step's records come from."""

    step: int
    """Index of the upstream step in `Graph.steps`."""
    partitioner: Partitioner | None = None
    """`None`: forward between equal parallelisms, rebalance else."""
    tag: str | None = None
    """Side output of the upstream step; `None` = its main output."""
    number: int = 0
    """0: the step's main input; 1: its connected input."""


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
    state_backend: StateBackend | None = None
    """Of its keyed state; `None` = as the checkpoints' options say."""
    on_error: Skip | DeadLetter | None = None
    """What becomes of records that it fails on; `None` = the attempt fails."""
    comes_with: int | None = None
    """Index of the step whose dead letters it takes, if that is what it is for."""
    method: str = ""
    """By which the user has added it: `map`, `join`."""
    follows: tuple[int, ...] | None = None
    """Why it has its parallelism: `None` = it was set for this step; else the steps whose largest one it has, and the
    pipeline's if there are none."""

    def __str__(self) -> str:
        return f"step {self.id!r}"


def errors_id(step: str) -> str:
    """Of the sink for the dead letters of a step."""
    return f"{step}-errors"


@dataclass(frozen=True)
class BatchFunction:
    """The payload of a `map_batches` step that has a schema."""

    function: Callable[[Any], Any]
    schema: pa.Schema
    """The schema of the batches that are made of records."""

    def __call__(self, batch: Any) -> Any:
        return self.function(batch)


class Derived(Protocol):
    """A stream, or two that are connected, which only counts once a step reads it."""

    used: bool
    made_by: str
    """The method."""

    @property
    def step_index(self) -> int: ...


class Graph:
    """Steps in the order they were added, so that inputs come before their users."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.derived: list[Derived] = []
        """What methods returned that add no step, such as `key_by`."""
        self._numbers: Counter[str] = Counter()

    def add(
        self,
        kind: StepKind,
        id: str | None,
        payload: Any,
        parallelism: int,
        inputs: list[Input],
        method: str | None = None,
        follows: tuple[int, ...] | None = None,
    ) -> Step:
        """Add a step; without an id it gets one from its place in the graph.

        Args:
            method: by which the user adds it, if its kind doesn't say.
            follows: why it has its parallelism (`Step.follows`).

        Raises:
            PipelineError: the id is taken or unusable, or the parallelism is not a whole number from 1.
        """
        method = method or kind.value
        self._numbers[method] += 1
        named = id is not None
        if id is None:
            id = f"{method}-{self._numbers[method]}"
        _check_id(id, f"a {method} step")
        if not (is_whole(parallelism) and parallelism >= 1):
            raise PipelineError(f"step {id!r}: parallelism must be a whole number of at least 1, not {parallelism!r}")
        self._refuse_duplicate(id)
        for one in inputs:
            upstream = self.steps[one.step]
            if upstream.kind is StepKind.SINK:
                raise PipelineError(
                    f"step {id!r} would read sink {upstream.id!r}, and nothing comes out of a sink: call {method} "
                    "on the stream that the sink is called on"
                )
        step = Step(len(self.steps), kind, id, named, payload, parallelism, inputs, method=method, follows=follows)
        self.steps.append(step)
        return step

    def roots(self, step: Step) -> frozenset[str]:
        """The ids of the steps that go by the pipeline's parallelism and that this one follows, or is; none if it goes
        by what steps set for themselves."""
        if step.follows is None:
            return frozenset()
        if not step.follows:
            return frozenset({step.id})
        return frozenset().union(*(self.roots(self.steps[i]) for i in step.follows))

    def rescaled(self, parallelism: int | None, steps: Mapping[str, int], *, own: bool = True) -> Graph:
        """A copy at another parallelism, with the same payloads.

        Args:
            parallelism: of steps that go by the pipeline's; `None` = as it is.
            steps: by id: of these steps, and of those that follow them.
            own: from now on these steps count as set by themselves.

        Raises:
            PipelineError: there is no such step.
        """
        copy = Graph()
        copy._numbers = Counter(self._numbers)
        for step in self.steps:
            width, follows = step.parallelism, step.follows
            if step.id in steps:
                width, follows = steps[step.id], None if own else step.follows
            elif follows:
                width = max(copy.steps[i].parallelism for i in follows)
            elif follows is not None and parallelism is not None:
                width = parallelism
            copy.steps.append(replace(step, parallelism=width, follows=follows))
        if unknown := steps.keys() - {step.id for step in self.steps}:
            there = ", ".join(step.id for step in self.steps if step.kind is not StepKind.UNION)
            raise PipelineError(f"there is no step {sorted(unknown)[0]!r}; there are {there}")
        return copy

    def rename(self, step: Step, id: str) -> None:
        """Give a step an id of the user's."""
        _check_id(id, str(step))
        if id != step.id:
            self._refuse_duplicate(id)
        step.id, step.named = id, True
        for other in self.steps:
            if other.comes_with == step.index:
                self.rename(other, errors_id(id))

    def is_broadcast(self, one: Input) -> bool:
        """Whether every record of an input reaches every subtask, whichever of the united streams it comes from."""
        return all_broadcast(through_unions(self, [one]))

    def has_broadcast(self, one: Input) -> bool:
        """Whether one of the streams that are united in an input is a broadcast stream."""
        return any(all_broadcast([each]) for each in through_unions(self, [one]))

    def _refuse_duplicate(self, id: str) -> None:
        for other in self.steps:
            if other.id == id:
                raise PipelineError(
                    f"two steps have the id {id!r} (a {other.method} step has it already); ids name state in "
                    "checkpoints, so each must be unique in its pipeline"
                )


def _check_id(id: Any, whose: str) -> None:
    if not isinstance(id, str) or not id.strip():
        raise PipelineError(f"the id of {whose} must be a non-empty string, not {id!r}")
    try:
        id.encode()
    except UnicodeEncodeError:
        raise PipelineError(
            f"the id of {whose} is {id!r}, which holds lone surrogates and so can't be written into a checkpoint"
        ) from None


def through_unions(graph: Graph, inputs: list[Input]) -> list[Input]:
    """The inputs, with union steps replaced by what they unite."""
    found: list[Input] = []
    for one in inputs:
        upstream = graph.steps[one.step]
        if upstream.kind is StepKind.UNION:
            found += [
                Input(i.step, one.partitioner or i.partitioner, i.tag, one.number)
                for i in through_unions(graph, upstream.inputs)
            ]
        else:
            found.append(one)
    return found


def all_broadcast(inputs: list[Input]) -> bool:
    return bool(inputs) and all(
        one.partitioner is not None and one.partitioner.distribution is Distribution.BROADCAST for one in inputs
    )
