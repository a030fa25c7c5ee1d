"""The fluent interface: streams and what can be done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from checkpoint.codec.errors import EncodingError
from checkpoint.options import is_whole, named_options, nearest
from checkpoint.state import OF_SUBTASKS, BroadcastState, StateDescriptor, descriptors_of
from checkpoint.state_backends import StateBackend, checked_state_backend
from formats.python_columns import PythonColumns
from pipeline.errors import PipelineError
from pipeline.graph import BatchFunction, Input, Step, StepKind
from pipeline.operators import KeyedOperator, Operator
from pipeline.partitioners import BROADCAST, FORWARD, REBALANCE, RESCALE, Distribution, KeySelector, Partitioner
from pipeline.user_code import is_async, is_generator, loses_return, returns_nothing, takes
from pipeline.watermarks import WatermarkStrategy
from sinks.sink import Sink

if TYPE_CHECKING:
    from pipeline.job import Pipeline


@named_options
class Stream:
    """The records that a step emits. Methods add a step and return its stream."""

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
            if not isinstance(schema, pa.Schema) or not schema.names or len(set(schema.names)) < len(schema.names):
                raise PipelineError(f"the schema of map_batches is a pyarrow.Schema with fields, not {schema!r}")
            if not callable(function):
                raise PipelineError(f"map_batches takes the function first, an id as option; got {function!r}")
            try:
                columns = PythonColumns()
                for field in schema:
                    columns.builder(field, field.name)
            except ValueError as error:
                raise PipelineError(f"the schema of map_batches: {error}") from error
            function = BatchFunction(function, schema)
        return self._functional(StepKind.MAP_BATCHES, function, id, parallelism)

    def assign_timestamps(
        self, strategy: WatermarkStrategy, id: str | None = None, parallelism: int | None = None
    ) -> Stream:
        """Take each record's event time from it, and send watermarks from here on.

        Put it as near to the source as can be: chained to a source it makes watermarks split by split (of Kafka:
        partition by partition), so that reading one of them faster than another makes no record late.
        """
        if not isinstance(strategy, WatermarkStrategy):
            raise PipelineError(f"assign_timestamps takes a WatermarkStrategy, not {strategy!r}")
        return self._add(StepKind.ASSIGN_TIMESTAMPS, id, strategy, parallelism)

    # -- steps with state: a stable id first --------------------------------------------------------------------

    def process(
        self,
        id: str,
        operator: Operator,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
    ) -> Stream:
        """Run an `Operator`; behind `key_by` a `KeyedOperator`, too.

        Args:
            state_backend: where its keyed state is; `None` = as `CheckpointConfig` says.
        """
        _check_operator(self._pipeline, id, operator, [self._input()])
        backend = _state_backend(id, operator, state_backend)
        stream = self._add(StepKind.PROCESS, id, operator, parallelism)
        stream._step.state_backend = backend
        return stream

    def sink(self, id: str, sink: Sink, parallelism: int | None = None) -> Stream:
        """End the stream in a sink."""
        if not isinstance(id, str):
            raise PipelineError(f"sink takes a stable id first, then the sink; got {id!r} as id")
        if not isinstance(sink, Sink):
            raise PipelineError(f"sink({id!r}): {expected('a Sink', sink)}")
        return self._add(StepKind.SINK, id, sink, parallelism)

    # -- distribution -------------------------------------------------------------------------------------------

    def key_by(self, key: str | int | Callable[[Any], Any]) -> KeyedStream:
        """Distribute by key: a field name, an index or a function. All records of a key go to one subtask, in order."""
        if not (callable(key) or isinstance(key, str) or is_whole(key)):
            raise PipelineError(f"key_by takes a field name, an index or a function, not {key!r}")
        _refuse_no_value("key_by", key)
        self.used = True  # the last partitioner counts
        partitioner = Partitioner(Distribution.KEYED, key=KeySelector(key))
        return KeyedStream(self._pipeline, self._step, partitioner, self._tag, "key_by")

    def rebalance(self) -> Stream:
        """Distribute round-robin over all subtasks of the next step."""
        return self._derived("rebalance", REBALANCE)

    def rescale(self) -> Stream:
        """Distribute round-robin over this subtask's share of the next step's subtasks."""
        return self._derived("rescale", RESCALE)

    def broadcast(self) -> Stream:
        """Every record to every subtask of the next step."""
        return self._derived("broadcast", BROADCAST)

    def forward(self) -> Stream:
        """Subtask i to subtask i of the next step, which must have the same parallelism."""
        return self._derived("forward", FORWARD)

    def partition_custom(self, function: Callable[[Any, int], int]) -> Stream:
        """`function(record, n)` chooses one of the n subtasks of the next step, 0 to n - 1."""
        if not callable(function):
            raise PipelineError(f"partition_custom takes a function of (record, number of subtasks), not {function!r}")
        _refuse_no_value("partition_custom", function)
        return self._derived("partition_custom", Partitioner(Distribution.CUSTOM, function=function))

    # -- combining ----------------------------------------------------------------------------------------------

    def union(self, *others: Stream) -> Stream:
        """The records of all of these streams, in no set order between them."""
        streams = (self, *others)
        for stream in others:
            if not isinstance(stream, Stream) or stream._pipeline is not self._pipeline:
                raise PipelineError("union takes streams of the same pipeline")
        inputs = [stream._input() for stream in streams]
        parallelism = max(stream._step.parallelism for stream in streams)
        return Stream(self._pipeline, self._pipeline._graph.add(StepKind.UNION, None, None, parallelism, inputs))

    def connect(self, other: Stream) -> ConnectedStreams:
        """Two streams into one operator, which tells them apart. Either may be a broadcast stream."""
        if not isinstance(other, Stream) or other._pipeline is not self._pipeline:
            raise PipelineError("connect takes a stream of the same pipeline")
        return ConnectedStreams(self, other)

    def side_output(self, tag: str) -> Stream:
        """What the step's operator emits with `ctx.side_output(tag, value)`."""
        if self._step.kind is not StepKind.PROCESS or self._tag is not None or self._partitioner is not None:
            raise PipelineError("side_output follows process(...) directly")
        return Stream(self._pipeline, self._step, None, tag, "side_output")

    def with_id(self, id: str) -> Stream:
        """Give the step just added a stable id."""
        self._pipeline._graph.rename(self._step, id)
        return self

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _spreads(self) -> bool:
        """Whether its next step takes the pipeline's parallelism; one that could be chained keeps the stream's."""
        return self._partitioner is not None and self._partitioner.distribution is not Distribution.FORWARD

    def _functional(self, kind: StepKind, function: Any, id: str | None, parallelism: int | None) -> Stream:
        if not callable(function):
            raise PipelineError(f"{kind.value} takes the function first, an id as option; got {function!r}")
        if kind is not StepKind.FLAT_MAP:
            _refuse_no_value(kind.value, function)
        elif is_async(function):
            raise PipelineError(_ASYNC.format(f"flat_map: {_name(function)}"))
        if kind is StepKind.FILTER and returns_nothing(function):
            raise PipelineError(
                f"filter: {_name(function)} returns nothing, so no record would pass: return True for those that are to"
            )
        return self._add(kind, id, function, parallelism)

    def _add(self, kind: StepKind, id: str | None, payload: Any, parallelism: int | None) -> Stream:
        if parallelism is None:
            parallelism = self._pipeline.parallelism if self._spreads else self._step.parallelism
        return Stream(self._pipeline, self._pipeline._graph.add(kind, id, payload, parallelism, [self._input()]))

    def _input(self, number: int = 0) -> Input:
        """As which a step reads it."""
        self.used = True
        return Input(self._step.index, self._partitioner, self._tag, number)

    def _derived(self, made_by: str, partitioner: Partitioner) -> Stream:
        self.used = True
        return Stream(self._pipeline, self._step, partitioner, self._tag, made_by)

    @property
    def step_index(self) -> int:
        return self._step.index


class KeyedStream(Stream):
    """A stream distributed by key: its next step may be a `KeyedOperator`."""


@named_options
class ConnectedStreams:
    """Two streams that one operator reads."""

    def __init__(self, first: Stream, second: Stream):
        self._first = first
        self._second = second
        self.used = False
        self.made_by = "connect"
        first._pipeline._graph.derived.append(self)

    def process(
        self,
        id: str,
        operator: Operator,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
    ) -> Stream:
        """Run an operator whose `process` gets the first stream's records, and `process_connected` the second's.

        A `KeyedOperator` needs both streams keyed, where records with equal keys share state, or one keyed and the
        other broadcast: for that one's records there is no current key.

        Args:
            state_backend: where its keyed state is; `None` = as `CheckpointConfig` says.
        """
        first, second, pipeline = self._first, self._second, self._first._pipeline
        self.used = True
        inputs = [stream._input(number) for number, stream in enumerate((first, second))]
        _check_operator(pipeline, id, operator, inputs)
        if parallelism is None:
            # Forward streams can only come to as many subtasks as they have; a broadcast one fits everywhere.
            others = [
                s for s, one in zip((first, second), inputs, strict=True) if not pipeline._graph.is_broadcast(one)
            ]
            if others and not any(stream._spreads for stream in others):
                parallelism = max(stream._step.parallelism for stream in others)
            else:
                parallelism = pipeline.parallelism
        backend = _state_backend(id, operator, state_backend)
        step = pipeline._graph.add(StepKind.PROCESS, id, operator, parallelism, inputs)
        step.state_backend = backend
        return Stream(pipeline, step)

    @property
    def step_index(self) -> int:
        return self._first.step_index


def expected(what: str, given: Any) -> str:
    """What is wrong with something of another kind."""
    if isinstance(given, type):
        return f"expected {what}: give an instance, {given.__name__}(…), not the class"
    return f"expected {what}, not {type(given).__name__}"


_ASYNC = "{} is async, and nothing would await it: make it a plain def"


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _refuse_no_value(who: str, function: Any) -> None:
    """A function that is to return a value must not make something that has yet to run."""
    if not callable(function):
        return
    if is_async(function):
        raise PipelineError(_ASYNC.format(f"{who}: {_name(function)}"))
    if is_generator(function):
        raise PipelineError(
            f"{who}: {_name(function)} has a yield, so it only makes a generator, which is no value: return the value, "
            "or use flat_map for any number of records"
        )


_EMITTING = {
    "process": ("value", "ctx"),
    "process_connected": ("value", "ctx"),
    "on_timer": ("timestamp", "ctx"),
    "on_watermark": ("timestamp", "ctx"),
}
_RUNNING: dict[str, tuple[str, ...]] = {
    "open": ("ctx",),
    "close": (),
    "snapshot": ("checkpoint_id",),
    "restore": ("state",),
    "on_checkpoint_complete": ("checkpoint_id",),
    "on_checkpoint_aborted": ("checkpoint_id",),
}
"""What the methods are called with."""


def check_operator_itself(operator: Any, step: str = "") -> None:
    """Refuse an operator that would do wherever it stands what it doesn't look like: never run, or keep no state.

    Args:
        step: names it in errors, with a colon and a space.

    Raises:
        PipelineError: it is one, or none at all.
    """
    if isinstance(operator, type) and issubclass(operator, Operator):
        raise PipelineError(f"{step}give an instance, {operator.__name__}(), not the class")
    if not isinstance(operator, Operator):
        raise PipelineError(f"{step}expected an Operator, not {type(operator).__name__}; use map")
    kind = type(operator)
    where = f"{step}{kind.__name__}"
    for attribute, value in vars(operator).items():
        if isinstance(value, StateDescriptor):
            raise PipelineError(
                f"{where}.{attribute} is a {type(value).__name__} made for an instance; declare it in "
                "the class body, so that each key has its own"
            )
    if getattr(operator.process, "__func__", None) is Operator.process:  # an instance may have its own
        own = [name for name in dir(kind) if name not in dir(KeyedOperator)]
        hint = nearest("process", own).replace("mean", "mean it by")
        raise PipelineError(f"{where} has no method process(value, ctx), which every operator needs{hint}")
    for name, arguments in (_EMITTING | _RUNNING).items():
        method = getattr(operator, name, None)
        if method is None:
            continue
        if not takes(method, len(arguments)):
            raise PipelineError(
                f"{where}.{name} can't be called with ({', '.join(arguments)}): write it as "
                f"def {name}({', '.join(('self', *arguments))})"
            )
        if is_async(method):
            raise PipelineError(_ASYNC.format(f"{where}.{name}"))
        if name in _RUNNING and is_generator(method):
            raise PipelineError(
                f"{where}.{name} has a yield, so it would never run: it can emit nothing, leave yield out"
            )
        if name in _EMITTING and loses_return(method):
            raise PipelineError(
                f"{where}.{name} has a yield and returns a value, which nobody would get: yield that, too"
            )
    if not issubclass(kind, KeyedOperator) and hasattr(kind, "on_timer"):
        raise PipelineError(
            f"{where} has on_timer, which is only called for timers of a key: derive {kind.__name__} from KeyedOperator"
        )


def _state_backend(id: str, operator: Operator, given: Any) -> StateBackend | None:
    """The option of a step, if it may have it."""
    if given is None:
        return None
    if not isinstance(operator, KeyedOperator):
        raise PipelineError(
            f"process({id!r}): state_backend={given!r} would have no effect, {type(operator).__name__} is no "
            "KeyedOperator and keeps no state of keys"
        )
    try:
        return checked_state_backend(given)
    except ValueError as error:
        raise PipelineError(f"process({id!r}): {error}") from error


def _check_operator(pipeline: Pipeline, id: str, operator: Operator, inputs: list[Input]) -> None:
    """Refuse what can't run as a step that reads `inputs`."""
    if not isinstance(id, str):
        raise PipelineError(f"process takes a stable id first, then the operator; got {id!r} as id")
    check_operator_itself(operator, f"process({id!r}): ")
    name = type(operator).__name__
    if len(inputs) == 2 and getattr(operator.process_connected, "__func__", None) is Operator.process_connected:
        raise PipelineError(
            f"process({id!r}): {name} reads two streams and has no process_connected; implement "
            "process_connected(value, ctx) for the records of the second one"
        )
    keyed = [_is_keyed(one) for one in inputs]
    broadcast = [pipeline._graph.is_broadcast(one) for one in inputs]
    if isinstance(operator, KeyedOperator):
        if not any(keyed):
            raise PipelineError(
                f"process({id!r}): {name} is a KeyedOperator, whose state needs a key; put key_by(...) right before it"
            )
        if not all(one or other for one, other in zip(keyed, broadcast, strict=True)):
            raise PipelineError(
                f"process({id!r}): one stream is keyed and the other neither keyed nor broadcast, so what {name} knows "
                "of a key would be in another subtask than the other stream's records; put key_by(...) or broadcast() "
                "right before connect on that one, too"
            )
    for attribute, state in descriptors_of(type(operator)).items():
        if getattr(state, "factory", None) is None:  # that may need what only workers have
            try:
                state.check()
            except EncodingError as error:
                raise PipelineError(f"process({id!r}): {name}: {error}") from None
        if isinstance(state, BroadcastState):
            if not any(broadcast):
                raise PipelineError(
                    f"process({id!r}): {name}.{attribute} is broadcast state, which only records of a broadcast stream "
                    "may change; connect one with stream.connect(other.broadcast()).process(...)"
                )
        elif not isinstance(operator, KeyedOperator) and not isinstance(state, OF_SUBTASKS):
            raise PipelineError(
                f"process({id!r}): {name}.{attribute} is a {type(state).__name__}, which belongs to a key; derive "
                f"{name} from KeyedOperator"
            )
    for step in pipeline._graph.steps:
        if step.payload is operator:
            raise PipelineError(
                f"process({id!r}): {step} runs this very {name} already; make an instance for each step, so that they "
                "don't share state"
            )


def _is_keyed(one: Input) -> bool:
    return one.partitioner is not None and one.partitioner.distribution is Distribution.KEYED
