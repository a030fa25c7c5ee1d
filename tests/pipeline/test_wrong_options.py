"""Whatever an option is given, it is taken, or refused by one rule: a `ValueError` that names the option, which is a
`PipelineError` where a method of a stream refuses it."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from pipeline import (
    TTL,
    Aggregate,
    AggregatingState,
    ApproxCountDistinct,
    AtMost,
    Autoscale,
    BroadcastState,
    BufferConfig,
    CheckpointConfig,
    Collect,
    Count,
    CountDistinct,
    CountWindow,
    DeadLetter,
    First,
    Fold,
    Global,
    Last,
    ListState,
    LookupCache,
    MapState,
    Max,
    Mean,
    Min,
    Operator,
    OperatorListState,
    OperatorUnionState,
    Pipeline,
    PipelineError,
    Quantiles,
    ReducingState,
    RestartStrategy,
    RocksDb,
    Session,
    Skip,
    Sliding,
    StandardDeviation,
    Sum,
    Top,
    Tumbling,
    ValueState,
    Variance,
    WatermarkStrategy,
    register_pickle,
)
from pipeline.testing import FakeService, ManualClock, TestingSink, TestingSource
from sinks import Avro, FileSink, JsonSchema, KafkaSink, PrintSink
from sources import ArrowJson, FileSource, KafkaSource, SequenceSource

ANYTHING: list[Any] = [
    object(), -1, 0, 1.5, math.nan, math.inf, -math.inf, 10**400, True, None, "no such", "", b"x", [], {}, (1, 2),
    [None], {"a": 1}, int, lambda: None, timedelta(-1),
]  # fmt: skip

CONSTRUCTORS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (TTL, {"after": 1}),
    (AtMost, {"share": 0.1}),
    (Autoscale, {"most": 3}),
    (BufferConfig, {}),
    (CheckpointConfig, {"uri": "/tmp/x"}),
    (RestartStrategy.fixed_delay, {}),
    (RestartStrategy.exponential, {}),
    (WatermarkStrategy.bounded, {"field_or_function": "at", "lateness": 1}),
    (LookupCache, {}),
    (Skip, {}),
    (DeadLetter, {"topic": "t"}),
    (RocksDb, {}),
    (Tumbling, {"size": 60}),
    (Sliding, {"size": 60, "slide": 10}),
    (Session, {"gap": 5}),
    (CountWindow, {"size": 5}),
    (Global, {"count": 3}),
    *((cls, {}) for cls in (Aggregate, ApproxCountDistinct, Collect, Count, CountDistinct, First, Last, Max, Min)),
    *((cls, {"of": "a"}) for cls in (Mean, StandardDeviation, Sum, Variance)),
    (Top, {"n": 3, "by": "a"}),
    (Quantiles, {"of": "a", "at": 0.5}),
    (Fold, {"create": 0, "add": lambda a, b: a, "merge": lambda a, b: a}),
    *((cls, {}) for cls in (ValueState, ListState, MapState, BroadcastState, OperatorListState, OperatorUnionState)),
    (ReducingState, {"reduce_fn": max}),
    (AggregatingState, {"create": int, "add": max, "result": abs}),
    (Pipeline, {"name": "p"}),
    (KafkaSource, {"servers": "b:1", "topics": ["t"]}),
    (FileSource, {"uri": "/tmp/x"}),
    (SequenceSource, {"n": 3}),
    (ArrowJson, {"schema": pa.schema([("a", pa.int64())])}),
    (KafkaSink, {"servers": "b:1", "topic": "t"}),
    (FileSink, {"uri": "/tmp/x", "format": "jsonl"}),
    (PrintSink, {}),
    (Avro, {"registry": "http://x"}),
    (JsonSchema, {"registry": "http://x"}),
    (TestingSource, {}),
    (TestingSink, {}),
    (FakeService, {}),
    (ManualClock, {}),
    (register_pickle, {"cls": int}),
]


class Same(Operator):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


async def ask(value: Any) -> Any:
    return value


def keyed(p: Pipeline) -> Any:
    return p.source(f"in-{len(p._graph.steps)}", TestingSource()).key_by("k")


METHODS: list[tuple[str, Callable[[Pipeline], Any], dict[str, Any]]] = [
    *((name, keyed, {"function": lambda value: 1}) for name in ("map", "filter", "filter_not", "peek", "flat_map")),
    ("map_batches", keyed, {"function": lambda batch: batch}),
    ("map_async", keyed, {"function": ask}),
    ("join_lookup", keyed, {"lookup": ask}),
    ("limit_rate", keyed, {"records_per_second": 5}),
    ("split", keyed, {"some": lambda value: True}),
    ("assign_timestamps", keyed, {"strategy": WatermarkStrategy.bounded("at", 1)}),
    ("process", keyed, {"id": "x", "operator": Same()}),
    ("sink", keyed, {"id": "x", "sink": TestingSink()}),
    ("key_by", keyed, {"key": "k"}),
    ("partition_custom", keyed, {"function": lambda value, n: 0}),
    ("aggregate", keyed, {"n": Count()}),
    ("reduce", keyed, {"function": lambda a, b: a}),
    ("distinct", keyed, {"within": 5}),
    ("latest_by_key", keyed, {}),
    ("top_n", keyed, {"n": 3, "by": "a"}),
    ("window", keyed, {"window": Tumbling(5)}),
    ("aggregate", lambda p: keyed(p).window(Tumbling(5)), {"n": Count()}),
    ("reduce", lambda p: keyed(p).window(Tumbling(5)), {"function": lambda a, b: a}),
]
MAIN = {"function", "lookup", "key", "operator", "sink", "strategy", "window", "records_per_second"}
"""What a method is about: its name says which argument is meant."""
JOINS: list[tuple[str, dict[str, Any]]] = [
    ("join", {"within": (0, 5)}),
    ("join_as_of", {}),
    ("connect", {}),
    ("union", {}),
]


def options_of(call: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in inspect.signature(call).parameters.values() if one.kind in kinds]


def refusal(call: Callable[[], Any]) -> ValueError | None:
    """Whatever else is raised fails the test."""
    try:
        call()
    except ValueError as error:
        return error
    return None


def check(call: Callable[..., Any], given: dict[str, Any], kind: type[ValueError], names: dict[str, str]) -> int:
    """
    Args:
        names: by option how messages name it.

    Returns:
        How often something was refused.
    """
    refused = 0
    for option, name in names.items():
        for value in ANYTHING:
            error = refusal(lambda option=option, value=value: call(**{**given, option: value}))  # type: ignore[misc]
            if error is not None:
                refused += 1
                assert isinstance(error, kind), f"{option}={value!r} raises a {type(error).__name__}: {error}"
                assert re.search(rf"\b{name}\b", str(error)), f"{option}={value!r} isn't named: {error}"
    return refused


@pytest.mark.parametrize(("call", "given"), CONSTRUCTORS, ids=lambda one: getattr(one, "__qualname__", ""))
def test_a_constructor_takes_a_value_or_names_the_option(call: Callable[..., Any], given: dict[str, Any]) -> None:
    call(**given)
    assert check(call, given, ValueError, {one: one for one in options_of(call)}) > 0


@pytest.mark.parametrize(("method", "stream", "given"), METHODS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_method_refuses_by_a_pipeline_error(
    method: str, stream: Callable[[Pipeline], Any], given: dict[str, Any]
) -> None:
    def call(**options: Any) -> Any:
        if "operator" in options and isinstance(options["operator"], Same):
            options["operator"] = Same()
        return getattr(stream(Pipeline("p")), method)(**options)

    call(**given)
    options = options_of(getattr(stream(Pipeline("p")), method))
    assert check(call, given, PipelineError, {one: method if one in MAIN else one for one in options}) > 0


@pytest.mark.parametrize(("method", "given"), JOINS)
def test_a_method_of_two_streams_refuses_by_a_pipeline_error(method: str, given: dict[str, Any]) -> None:
    def call(**options: Any) -> Any:
        p = Pipeline("p")
        other = options.pop("other", MISSING)
        return getattr(keyed(p), method)(keyed(p) if other is MISSING else other, **options)

    call(**given)
    for value in ANYTHING:
        with pytest.raises(PipelineError, match=method):
            call(**given, other=value)
    options = [one for one in options_of(getattr(keyed(Pipeline("p")), method)) if one != "other"]
    check(call, given, PipelineError, {one: method if one in MAIN else one for one in options})


MISSING: Any = object()


def test_values_of_constructors_that_a_method_makes_are_told_by_the_method() -> None:
    for call in (
        lambda s: s.aggregate(n=Count(), ttl="soon"),
        lambda s: s.reduce(lambda a, b: a, ttl=-1),
        lambda s: s.top_n(1, "a", ttl=math.nan),
    ):
        with pytest.raises(PipelineError, match=r"^(aggregate|reduce|top_n): ttl must be"):
            call(keyed(Pipeline("p")))


def test_what_is_no_option_or_is_missing_is_a_type_error() -> None:
    for wrong in (lambda: Tumbling(sise=5), lambda: Tumbling(), lambda: keyed(Pipeline("p")).window()):
        with pytest.raises(TypeError):
            wrong()
