"""The fluent interface: streams and what can be done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from checkpoint.state import StateDescriptor
from pipeline.errors import PipelineError
from pipeline.graph import Input, Step, StepKind
from pipeline.operators import KeyedOperator, Operator
from pipeline.partitioners import FORWARD, REBALANCE, RESCALE, Distribution, KeySelector, Partitioner
from sinks.sink import Sink

if TYPE_CHECKING:
    from pipeline.job import Pipeline


class Stream:
    """The records that a step emits. Methods add a step and return its stream."""

    def __init__(self, pipeline: Pipeline, step: Step, partitioner: Partitioner | None = None, tag: str | None = None):
        self._pipeline = pipeline
        self._step = step
        self._partitioner = partitioner
        self._tag = tag

    # -- functional steps: the function first, an id as option --------------------------------------------------

    def map(self, function: Callable[[Any], Any], id: str | None = None, parallelism: int | None = None) -> Stream:
        """One output for each record."""
        return self._functional(StepKind.MAP, function, id, parallelism)

    def filter(self, function: Callable[[Any], bool], id: str | None = None, parallelism: int | None = None) -> Stream:
        """The records for which `function` is true."""
        return self._functional(StepKind.FILTER, function, id, parallelism)

    def flat_map(
        self, function: Callable[[Any], Iterable[Any]], id: str | None = None, parallelism: int | None = None
    ) -> Stream:
        """Any number of outputs for each record."""
        return self._functional(StepKind.FLAT_MAP, function, id, parallelism)

    # -- steps with state: a stable id first --------------------------------------------------------------------

    def process(self, id: str, operator: Operator, parallelism: int | None = None) -> Stream:
        """Run an `Operator`; behind `key_by` a `KeyedOperator`, too."""
        if not isinstance(id, str):
            raise PipelineError(f"process takes a stable id first, then the operator; got {id!r} as id")
        if isinstance(operator, type) and issubclass(operator, Operator):
            raise PipelineError(f"process({id!r}): give an instance, {operator.__name__}(), not the class")
        if not isinstance(operator, Operator):
            raise PipelineError(f"process({id!r}): expected an Operator, not {type(operator).__name__}; use map")
        for name, value in vars(operator).items():
            if isinstance(value, StateDescriptor):
                raise PipelineError(
                    f"process({id!r}): {type(operator).__name__}.{name} is a {type(value).__name__} made for an "
                    "instance; declare it in the class body, so that each key has its own"
                )
        if isinstance(operator, KeyedOperator) and not self._keyed:
            raise PipelineError(
                f"process({id!r}): {type(operator).__name__} is a KeyedOperator, whose state needs a key; put "
                "key_by(...) right before it"
            )
        for step in self._pipeline._graph.steps:
            if step.payload is operator:
                raise PipelineError(
                    f"process({id!r}): {step} runs this very {type(operator).__name__} already; make an instance for "
                    "each step, so that they don't share state"
                )
        return self._add(StepKind.PROCESS, id, operator, parallelism)

    def sink(self, id: str, sink: Sink, parallelism: int | None = None) -> Stream:
        """End the stream in a sink."""
        if not isinstance(id, str):
            raise PipelineError(f"sink takes a stable id first, then the sink; got {id!r} as id")
        if not isinstance(sink, Sink):
            raise PipelineError(f"sink({id!r}): expected a Sink, not {type(sink).__name__}")
        return self._add(StepKind.SINK, id, sink, parallelism)

    # -- distribution -------------------------------------------------------------------------------------------

    def key_by(self, key: str | int | Callable[[Any], Any]) -> KeyedStream:
        """Distribute by key: a field name, an index or a function. All records of a key go to one subtask, in order."""
        if not (callable(key) or (isinstance(key, str | int) and not isinstance(key, bool))):
            raise PipelineError(f"key_by takes a field name, an index or a function, not {key!r}")
        return KeyedStream(self._pipeline, self._step, Partitioner(Distribution.KEYED, key=KeySelector(key)), self._tag)

    def rebalance(self) -> Stream:
        """Distribute round-robin over all subtasks of the next step."""
        return Stream(self._pipeline, self._step, REBALANCE, self._tag)

    def rescale(self) -> Stream:
        """Distribute round-robin over this subtask's share of the next step's subtasks."""
        return Stream(self._pipeline, self._step, RESCALE, self._tag)

    def forward(self) -> Stream:
        """Subtask i to subtask i of the next step, which must have the same parallelism."""
        return Stream(self._pipeline, self._step, FORWARD, self._tag)

    def partition_custom(self, function: Callable[[Any, int], int]) -> Stream:
        """`function(record, n)` chooses one of the n subtasks of the next step, 0 to n - 1."""
        if not callable(function):
            raise PipelineError(f"partition_custom takes a function of (record, number of subtasks), not {function!r}")
        return Stream(self._pipeline, self._step, Partitioner(Distribution.CUSTOM, function=function), self._tag)

    # -- combining ----------------------------------------------------------------------------------------------

    def union(self, *others: Stream) -> Stream:
        """The records of all of these streams, in no set order between them."""
        streams = (self, *others)
        for stream in others:
            if not isinstance(stream, Stream) or stream._pipeline is not self._pipeline:
                raise PipelineError("union takes streams of the same pipeline")
        inputs = [Input(stream._step.index, stream._partitioner, stream._tag) for stream in streams]
        parallelism = max(stream._step.parallelism for stream in streams)
        return Stream(self._pipeline, self._pipeline._graph.add(StepKind.UNION, None, None, parallelism, inputs))

    def side_output(self, tag: str) -> Stream:
        """What the step's operator emits with `ctx.side_output(tag, value)`."""
        if self._step.kind is not StepKind.PROCESS or self._tag is not None or self._partitioner is not None:
            raise PipelineError("side_output follows process(...) directly")
        return Stream(self._pipeline, self._step, None, tag)

    def with_id(self, id: str) -> Stream:
        """Give the step just added a stable id."""
        self._pipeline._graph.rename(self._step, id)
        return self

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _keyed(self) -> bool:
        return self._partitioner is not None and self._partitioner.distribution is Distribution.KEYED

    def _functional(self, kind: StepKind, function: Any, id: str | None, parallelism: int | None) -> Stream:
        if not callable(function):
            raise PipelineError(f"{kind.value} takes the function first, an id as option; got {function!r}")
        return self._add(kind, id, function, parallelism)

    def _add(self, kind: StepKind, id: str | None, payload: Any, parallelism: int | None) -> Stream:
        if parallelism is None:
            # A step that could be chained keeps the parallelism of what it reads from.
            keeps = self._partitioner is None or self._partitioner.distribution is Distribution.FORWARD
            parallelism = self._step.parallelism if keeps else self._pipeline.parallelism
        one = Input(self._step.index, self._partitioner, self._tag)
        return Stream(self._pipeline, self._pipeline._graph.add(kind, id, payload, parallelism, [one]))


class KeyedStream(Stream):
    """A stream distributed by key: its next step may be a `KeyedOperator`."""
