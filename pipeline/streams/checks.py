"""What a step can't run, and why: refused where it is added, in words that say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from checkpoint.codec.errors import EncodingError
from checkpoint.options import nearest
from checkpoint.state import OF_SUBTASKS, BroadcastState, StateDescriptor, descriptors_of
from checkpoint.state_backends import StateBackend, checked_state_backend
from formats.python_columns import PythonColumns
from pipeline.errors import PipelineError
from pipeline.graph import BatchFunction, Input, StepKind
from pipeline.operators import KeyedOperator, Operator
from pipeline.partitioners import Distribution
from pipeline.user_code import is_async, is_generator, loses_return, returns_nothing, takes
from pipeline.watermarks import WatermarkStrategy

if TYPE_CHECKING:
    from pipeline.job import Pipeline


def expected(what: str, given: Any) -> str:
    """What is wrong with something of another kind."""
    if isinstance(given, type):
        return f"expected {what}: give an instance, {given.__name__}(…), not the class"
    return f"expected {what}, not {type(given).__name__}"


_LATE_FOLLOWS: Final = (
    "late() follows directly a step that tells late records by event time: window(…).aggregate(…), a join, "
    "distinct(within=…) or latest_by_key(…)"
)
CALLED_HERE: Final = {
    "add_sink": "sink(id, …)",
    "branch": "split(…)",
    "collect": 'key_by(…).aggregate(all=Collect("field"))',
    "count": "key_by(…).aggregate(n=Count())",
    "deduplicate": "key_by(…).distinct(within=…)",
    "drop_duplicates": "key_by(…).distinct(within=…)",
    "foreach": "peek(…), or sink(id, …)",
    "group_by": "key_by(…)",
    "max": 'key_by(…).aggregate(most=Max("field"))',
    "mean": 'key_by(…).aggregate(mean=Mean("field"))',
    "min": 'key_by(…).aggregate(least=Min("field"))',
    "rate_limit": "limit_rate(…)",
    "sum": 'key_by(…).aggregate(total=Sum("field"))',
    "tap": "peek(…)",
    "throttle": "limit_rate(…)",
    "to": "sink(id, …)",
}
"""What others call by another name."""
ASYNC = "{} is async, and nothing would await it: make it a plain def"


def no_attribute(stream: type, name: str) -> str:
    """What is wrong with a name that a stream doesn't have."""
    if name == "late":
        return _LATE_FOLLOWS
    here = CALLED_HERE.get(name)
    hint = nearest(name, dir(stream)) if here is None else f"; that is {here} here"
    return f"a {stream.__name__} has no {name!r}{hint}"


def batch_function(function: Any, schema: Any) -> BatchFunction:
    """The payload of a `map_batches` step with a schema.

    Raises:
        PipelineError: it is none, or records can't become columns of it.
    """
    if not isinstance(schema, pa.Schema) or not schema.names or len(set(schema.names)) < len(schema.names):
        raise PipelineError(f"the schema of map_batches is a pyarrow.Schema with fields, not {schema!r}")
    if not callable(function):
        raise PipelineError(f"map_batches takes the function first, an id as option; got {function!r}")
    refuse_no_value("map_batches", function, "batch")
    try:
        columns = PythonColumns()
        for field in schema:
            columns.builder(field, field.name)
    except ValueError as error:
        raise PipelineError(f"the schema of map_batches: {error}") from error
    return BatchFunction(function, schema)


_RECORD: Final = ("record",)


def name_of(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def refuse_other_arguments(who: str, function: Any, *arguments: str) -> None:
    """A function must take what it is called with, which `arguments` names."""
    if not takes(function, len(arguments)):
        raise PipelineError(f"{who}: {name_of(function)} can't be called with ({', '.join(arguments)})")


def refuse_no_value(who: str, function: Any, *arguments: str) -> None:
    """A function that is to return a value must take what it is called with, and must not make something that has yet
    to run.

    Args:
        arguments: as of `refuse_other_arguments`; none = a record.
    """
    if not callable(function):
        return
    if is_async(function):
        raise PipelineError(ASYNC.format(f"{who}: {name_of(function)}"))
    if is_generator(function):
        raise PipelineError(
            f"{who}: {name_of(function)} has a yield, so it only makes a generator, which is no value: return the "
            "value, or use flat_map for any number of records"
        )
    refuse_other_arguments(who, function, *(arguments or _RECORD))


def check_reducing(who: str, function: Any) -> None:
    """
    Raises:
        PipelineError: it is no function of two records that returns a value.
    """
    if not callable(function):
        raise PipelineError(f"{who} takes a function of two records first, an id as option; got {function!r}")
    if not takes(function, 2):
        raise PipelineError(f"{who}: {name_of(function)} must take two records: what there is so far, and the next")
    refuse_no_value(who, function, "so_far", "record")


def refuse_no_answer(who: str, function: Any, then: str) -> None:
    """A function that is asked about each record must give an answer.

    Args:
        then: what comes of it if it never does, and what to do.
    """
    refuse_no_value(who, function)
    if callable(function) and returns_nothing(function):
        raise PipelineError(f"{who}: {name_of(function)} returns nothing, so {then}")


def refuse_never_run(who: str, function: Any) -> None:
    """A function that is called for what it does must do it when it is called."""
    if is_async(function):
        raise PipelineError(ASYNC.format(f"{who}: {name_of(function)}"))
    if is_generator(function):
        raise PipelineError(
            f"{who}: {name_of(function)} has a yield, so calling it does nothing: leave yield out, or use flat_map"
        )
    refuse_other_arguments(who, function, *_RECORD)


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
            raise PipelineError(ASYNC.format(f"{where}.{name}"))
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


def state_backend_of(id: str, operator: Operator, given: Any) -> StateBackend | None:
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


def check_operator(pipeline: Pipeline, id: str, operator: Operator, inputs: list[Input]) -> None:
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


def check_strategy(strategy: Any) -> None:
    """
    Raises:
        PipelineError: it is none for `assign_timestamps`, or its function can't tell a record's timestamp.
    """
    if not isinstance(strategy, WatermarkStrategy):
        raise PipelineError(f"assign_timestamps takes a WatermarkStrategy, not {strategy!r}")
    refuse_no_value("assign_timestamps", strategy.timestamp)


_NO_ANSWER: Final = {
    StepKind.FILTER: "no record would pass: return True for those that are to",
    StepKind.FILTER_NOT: "every record would pass: return True for those that are not to",
}
"""What comes of a function that never returns anything."""


def check_function(kind: StepKind, function: Any) -> None:
    """
    Raises:
        PipelineError: a step of that kind can't run it.
    """
    if not callable(function):
        raise PipelineError(f"{kind.value} takes the function first, an id as option; got {function!r}")
    if kind in _NO_ANSWER:
        refuse_no_answer(kind.value, function, _NO_ANSWER[kind])
    elif kind is StepKind.PEEK:
        refuse_never_run(kind.value, function)
    elif kind is not StepKind.FLAT_MAP:
        refuse_no_value(kind.value, function, "batch" if kind is StepKind.MAP_BATCHES else "record")
    elif is_async(function):
        raise PipelineError(ASYNC.format(f"flat_map: {name_of(function)}"))
    else:
        refuse_other_arguments(kind.value, function, *_RECORD)
