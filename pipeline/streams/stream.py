"""A stream and what can be done with any of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pyarrow as pa

from checkpoint.options import is_number, is_whole
from checkpoint.state_backends import StateBackend
from pipeline.errors import PipelineError
from pipeline.graph import DEFAULT_BRANCH, Input, Step, StepKind, Width
from pipeline.on_error import ERRORS, OnError, on_error_of
from pipeline.operators import Operator
from pipeline.options import pipeline_options
from pipeline.partitioners import BROADCAST, FORWARD, REBALANCE, RESCALE, Distribution, KeySelector, Partitioner
from pipeline.streams.asking import AsksServices
from pipeline.streams.checks import (
    batch_function,
    check_function,
    check_strategy,
    expected,
    no_attribute,
    refuse_no_value,
)
from pipeline.streams.failures import guard
from pipeline.streams.operator_steps import add_operator
from pipeline.watermarks import WatermarkStrategy
from sinks.sink import Sink

if TYPE_CHECKING:
    # With a default, a plain `Stream` is a stream of anything; Python 3.11 has no such variables at run time.
    from typing_extensions import TypeVar as TypeVarWithDefault

    from pipeline.job import Pipeline
    from pipeline.streams.branches import Branches
    from pipeline.streams.connected import ConnectedStreams
    from pipeline.streams.keyed import KeyedStream

    T = TypeVarWithDefault("T", default=Any, covariant=True)
else:
    T = TypeVar("T", covariant=True)
U = TypeVar("U")


@pipeline_options
class Stream(AsksServices[T], Generic[T]):
    """The records that a step emits. Methods add a step and return its stream.

    A type checker follows `Stream[Order]` through `map`, `filter` and the like. Nothing is checked at run time.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        step: Step,
        partitioner: Partitioner | None = None,
        tag: str | None = None,
        made_by: str | None = None,
    ):
        """
        Args:
            made_by: the method that made it without adding a step.
        """
        self._pipeline = pipeline
        self._step = step
        self._partitioner = partitioner
        self._tag = tag
        self.used = False
        self.made_by = made_by or ""
        if made_by is not None:
            pipeline._graph.derived.append(self)

    # -- functional steps: the function first, an id as option --------------------------------------------------

    def map(
        self,
        function: Callable[[T], U],
        id: str | None = None,
        parallelism: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """One output for each record.

        Args:
            on_error: what becomes of a record that the function fails on: "fail" the attempt, "skip" it,
                `Skip(at_most=…)`, or write it to a topic, `DeadLetter(topic)` (docs/errors.md).
        """
        return self._functional(StepKind.MAP, function, id, parallelism, on_error)

    def filter(
        self,
        function: Callable[[T], bool],
        id: str | None = None,
        parallelism: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream[T]:
        """The records for which `function` is true.

        Args:
            on_error: as of `map`.
        """
        return self._functional(StepKind.FILTER, function, id, parallelism, on_error)

    def filter_not(
        self,
        function: Callable[[T], bool],
        id: str | None = None,
        parallelism: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream[T]:
        """The records for which `function` is false.

        Args:
            on_error: as of `map`.
        """
        return self._functional(StepKind.FILTER_NOT, function, id, parallelism, on_error)

    def peek(
        self,
        function: Callable[[T], Any],
        id: str | None = None,
        parallelism: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream[T]:
        """The same records. `function` is called with a copy of each, for its effect: to log, to count.

        What it does to the copy changes nothing, and what it returns is dropped. After a restart it sees records again.

        Args:
            on_error: as of `map`: a record that the function fails on is not handed on.
        """
        return self._functional(StepKind.PEEK, function, id, parallelism, on_error)

    def limit_rate(self, records_per_second: float, id: str | None = None, parallelism: int | None = None) -> Stream[T]:
        """The same records, this many a second at most: of the whole step, whose subtasks have equal shares.

        While it holds records up the step behaves like a slow one: backpressure reaches the sources, and barriers pass.
        Records that come of one, and the rows of an Arrow batch, go at once, and the wait behind them is longer.
        """
        if not (is_number(records_per_second) and 0 < records_per_second < math.inf):
            raise PipelineError(f"limit_rate takes a number of records/s above 0, not {records_per_second!r}")
        return self._add(StepKind.LIMIT_RATE, id, float(records_per_second), parallelism)

    def split(
        self,
        id: str | None = None,
        parallelism: int | None = None,
        *,
        on_error: OnError = "fail",
        **branches: Callable[[T], bool],
    ) -> Branches[T]:
        """Each record to the first branch whose function is true for it, in the order given; to the branch `default`
        if none is.

            orders = orders.split(large=lambda o: o["amount"] > 1000, small=lambda o: o["amount"] < 10)
            orders.large.sink("large", …)
            orders.default.map(…)

        Records of a branch that nobody reads are dropped.

        Args:
            on_error: as of `map`; `errors()` of what this returns has the records.
        """
        from pipeline.streams.branches import Branches, checked_branches

        checked = checked_branches(branches)
        stream = self._guarded(StepKind.SPLIT, id, checked, parallelism, on_error)
        streams = {name: Stream(self._pipeline, stream._step, None, name) for name in (*checked, DEFAULT_BRANCH)}
        return Branches(stream, streams)

    def flat_map(
        self,
        function: Callable[[T], Iterable[U]],
        id: str | None = None,
        parallelism: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """Any number of outputs for each record.

        Args:
            on_error: as of `map`.
        """
        return self._functional(StepKind.FLAT_MAP, function, id, parallelism, on_error)

    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], Any],
        id: str | None = None,
        parallelism: int | None = None,
        schema: pa.Schema | None = None,
    ) -> Stream:
        """Arrow in, Arrow out: `function` takes a record batch and returns a record batch, a table, or `None`.

        Records are dicts; each field is a column, null where a record lacks it. Without a `schema` all values of a
        field in a batch must be of one type, which becomes the column's; with one they must fit it exactly. What would
        be changed by becoming a column, or a record again, fails the step with field, row and value.

        How many rows a batch has depends on how long the function takes, so no result may depend on it. If as many rows
        come out as went in, each keeps its record's timestamp; else all get the batch's latest. There is no `ctx.key`
        behind it.
        """
        if schema is not None:
            function = batch_function(function, schema)
        return self._functional(StepKind.MAP_BATCHES, function, id, parallelism)

    def assign_timestamps(
        self,
        strategy: WatermarkStrategy,
        id: str | None = None,
        parallelism: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream[T]:
        """Take each record's event time from it, and send watermarks from here on.

        Put it as near to the source as can be: chained to a source it makes watermarks split by split (of Kafka:
        partition by partition), so that reading one of them faster than another makes no record late.

        Args:
            on_error: as of `map`: of a record from which no timestamp can be taken.
        """
        check_strategy(strategy)
        return self._guarded(StepKind.ASSIGN_TIMESTAMPS, id, strategy, parallelism, on_error)

    map_async = AsksServices.map_async
    join_lookup = AsksServices.join_lookup

    # -- steps with state: a stable id first --------------------------------------------------------------------

    def process(
        self,
        id: str,
        operator: Operator[T, U, Any],
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """Run an `Operator`; behind `key_by` a `KeyedOperator`, too.

        Args:
            state_backend: where its keyed state is; `None` = as `CheckpointConfig` says.
            on_error: what becomes of a record, or a timer, that the operator fails on: "fail" the attempt, "skip" it,
                `Skip(at_most=…)`, or write it to a topic, `DeadLetter(topic)` (docs/errors.md). What the operator has
                changed and emitted for it is taken back.
        """
        return self._operator(id, operator, parallelism, state_backend, on_error)

    def sink(self, id: str, sink: Sink[T], parallelism: int | None = None) -> Stream:
        """End the stream in a sink."""
        if not isinstance(id, str):
            raise PipelineError(f"sink takes a stable id first, then the sink; got {id!r} as id")
        if not isinstance(sink, Sink):
            raise PipelineError(f"sink({id!r}): {expected('a Sink', sink)}")
        return self._add(StepKind.SINK, id, sink, parallelism)

    # -- distribution -------------------------------------------------------------------------------------------

    def key_by(self, key: str | int | Callable[[T], Any]) -> KeyedStream[T]:
        """Distribute by key: a field name, an index or a function. All records of a key go to one subtask, in order."""
        if not (callable(key) or isinstance(key, str) or is_whole(key)):
            raise PipelineError(f"key_by takes a field name, an index or a function, not {key!r}")
        refuse_no_value("key_by", key)
        from pipeline.streams.keyed import KeyedStream

        self.used = True  # the last partitioner counts
        partitioner = Partitioner(Distribution.KEYED, key=KeySelector(key))
        return KeyedStream(self._pipeline, self._step, partitioner, self._tag, "key_by")

    def rebalance(self) -> Stream[T]:
        """Distribute round-robin over all subtasks of the next step."""
        return self._derived("rebalance", REBALANCE)

    def rescale(self) -> Stream[T]:
        """Distribute round-robin over this subtask's share of the next step's subtasks."""
        return self._derived("rescale", RESCALE)

    def broadcast(self) -> Stream[T]:
        """Every record to every subtask of the next step."""
        return self._derived("broadcast", BROADCAST)

    def forward(self) -> Stream[T]:
        """Subtask i to subtask i of the next step, which must have the same parallelism."""
        return self._derived("forward", FORWARD)

    def partition_custom(self, function: Callable[[T, int], int]) -> Stream[T]:
        """`function(record, n)` chooses one of the n subtasks of the next step, 0 to n - 1."""
        if not callable(function):
            raise PipelineError(f"partition_custom takes a function of (record, number of subtasks), not {function!r}")
        refuse_no_value("partition_custom", function, "record", "n")
        return self._derived("partition_custom", Partitioner(Distribution.CUSTOM, function=function))

    # -- combining ----------------------------------------------------------------------------------------------

    def union(self, *others: Stream[U]) -> Stream[T | U]:
        """The records of all of these streams, in no set order between them."""
        streams = (self, *others)
        for stream in others:
            if not isinstance(stream, Stream) or stream._pipeline is not self._pipeline:
                raise PipelineError("union takes streams of the same pipeline")
        inputs = [stream._input() for stream in streams]
        parallelism = max(stream._step.parallelism for stream in streams)
        graph, follows = self._pipeline._graph, tuple(stream.step_index for stream in streams)
        return Stream(self._pipeline, graph.add(StepKind.UNION, None, None, parallelism, inputs, follows=follows))

    def connect(self, other: Stream[U]) -> ConnectedStreams[T, U]:
        """Two streams into one operator, which tells them apart. Either may be a broadcast stream."""
        from pipeline.streams.connected import ConnectedStreams

        if not isinstance(other, Stream) or other._pipeline is not self._pipeline:
            raise PipelineError("connect takes a stream of the same pipeline")
        return ConnectedStreams(self, other)

    def side_output(self, tag: str) -> Stream:
        """What the step's operator emits with `ctx.side_output(tag, value)`."""
        if self._step.kind is not StepKind.PROCESS or self._tag is not None or self._partitioner is not None:
            raise PipelineError("side_output follows process(...) directly")
        return Stream(self._pipeline, self._step, None, tag, "side_output")

    def errors(self) -> Stream[dict[str, Any]]:
        """The records that the step has failed on, as dicts: `record`, `key` and `timestamp`, `step` and `subtask`,
        `error` (the exception's class), `reason` and `traceback`, `timer` (its time, where it was no record but a
        timer), and `original`: what the source tells of its record, if the step is chained to one that does."""
        if self._step.on_error is None or self._tag is not None or self._partitioner is not None:
            raise PipelineError(
                f"errors() follows directly a step that leaves failed records out: give {self._step} on_error="
                '"skip", say'
            )
        return Stream(self._pipeline, self._step, None, ERRORS, "errors")

    def with_id(self, id: str) -> Self:
        """Give the step just added a stable id."""
        self._pipeline._graph.rename(self._step, id)
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            from pipeline.streams.keyed import KeyedStream

            if not name.startswith("_") and hasattr(KeyedStream, name):
                raise AttributeError(f"{name} is about the records of a key: put key_by(…) right before it")
            raise AttributeError(no_attribute(type(self), name))

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _spreads(self) -> bool:
        """Whether its next step takes the pipeline's parallelism; one that could be chained keeps the stream's."""
        return self._partitioner is not None and self._partitioner.distribution is not Distribution.FORWARD

    def _functional(
        self, kind: StepKind, function: Any, id: str | None, parallelism: int | None, on_error: OnError = "fail"
    ) -> Stream:
        check_function(kind, function)
        return self._guarded(kind, id, function, parallelism, on_error)

    def _guarded(self, kind: StepKind, id: str | None, payload: Any, parallelism: int | None, on_error: Any) -> Stream:
        policy = on_error_of(on_error, kind.value if id is None else f"{kind.value} {id!r}")
        stream = self._add(kind, id, payload, parallelism)
        guard(self._pipeline, stream._step, policy)
        return stream

    def _add(self, kind: StepKind, id: str | None, payload: Any, parallelism: int | None) -> Stream:
        width, follows = self._width(parallelism)
        graph = self._pipeline._graph
        return Stream(self._pipeline, graph.add(kind, id, payload, width, [self._input()], follows=follows))

    def _operator(
        self,
        id: Any,
        operator: Any,
        parallelism: int | None,
        state_backend: StateBackend | None,
        on_error: OnError,
        method: str | None = None,
    ) -> Stream:
        """See `add_operator`."""
        inputs, width = [self._input()], self._width(parallelism)
        step = add_operator(self._pipeline, id, operator, inputs, width, state_backend, on_error, method)
        return Stream(self._pipeline, step)

    def _width(self, parallelism: int | None) -> Width:
        """Subtasks of the next step, and why (`Step.follows`)."""
        if parallelism is not None:
            return parallelism, None
        return (self._pipeline.parallelism, ()) if self._spreads else (self._step.parallelism, (self._step.index,))

    def _input(self, number: int = 0) -> Input:
        """As which a step reads it."""
        self.used = True
        return Input(self._step.index, self._partitioner, self._tag, number)

    def _derived(self, made_by: str, partitioner: Partitioner) -> Stream[T]:
        self.used = True
        return Stream(self._pipeline, self._step, partitioner, self._tag, made_by)

    @property
    def step_index(self) -> int:
        return self._step.index
