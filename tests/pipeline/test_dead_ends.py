"""What would run without any effect is refused before it starts, with what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline import BroadcastState, KeyedOperator, Operator, Pipeline, PipelineError, ValueState
from pipeline.preview import preview
from pipeline.streams import Stream
from pipeline.testing import TestingSink, TestingSource


class Same(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value


class Silent(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        self.last = value


class WithoutContext(Same):
    def process(self, value: Any) -> Any:  # type: ignore[override]
        yield value


class OpensWithoutContext(Same):
    def open(self) -> None:  # type: ignore[override]
        pass


class SnapshotsWithoutId(Same):
    def snapshot(self) -> Any:  # type: ignore[override]
        return None


class WithStaticAndMoreArguments(Operator):
    @staticmethod
    def process(value: Any, ctx: Any, more: int = 0) -> Any:  # type: ignore[override]
        yield value

    def open(self, *arguments: Any) -> None:
        pass


class WithComplex(KeyedOperator):
    kind = ValueState(default=1j)

    def process(self, value: Any, ctx: Any) -> Any:
        yield value


class WithDefaultFromWorkers(KeyedOperator):
    model = ValueState(default=lambda: Path("/only/on/workers").read_text())

    def process(self, value: Any, ctx: Any) -> Any:
        yield value


class SilentUntilTheEnd(Silent):
    def on_watermark(self, timestamp: int, ctx: Any) -> Any:
        yield self.last


class SilentBoth(Silent):
    def process_connected(self, value: Any, ctx: Any) -> Any:
        if value:
            return None
        self.last = value


class SpeaksOnTheOther(Silent):
    def process_connected(self, value: Any, ctx: Any) -> Any:
        return [value]


class OnTimers(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> Any:
        ctx.timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


class Delegates(Same):
    def process(self, value: Any, ctx: Any) -> Any:
        return super().process(value, ctx)


class Refuses(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        raise ValueError(value)


class ToTheSide(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        ctx.side_output("odd", value)


def nothing(value: Any) -> Any:
    str(value)


async def later(value: Any) -> Any:
    return value


async def many_later(value: Any) -> AsyncIterator[Any]:
    yield value


def many(value: Any) -> Iterator[Any]:
    yield value


class Quiet:
    def __call__(self, value: Any) -> Any:
        nothing(value)


class LaterCallable:
    async def __call__(self, value: Any) -> Any:
        return value


def operator(**methods: Any) -> Operator:
    return type("Mine", (Operator,), {"process": Same.process, **methods})()  # type: ignore[no-any-return]


async def async_open(self: Any, ctx: Any) -> None: ...


def yielding_open(self: Any, ctx: Any) -> Any:
    yield 1


async def async_process(self: Any, value: Any, ctx: Any) -> Any:
    return [value]


async def async_yielding_process(self: Any, value: Any, ctx: Any) -> Any:
    yield value


def losing_process(self: Any, value: Any, ctx: Any) -> Any:
    if value:
        return [value]
    yield value


def ternary(value: Any) -> Any:
    return [value["x"]] if "x" in value else None


def either_branch(value: Any) -> Any:
    found = str(value)
    return found or None


class LeavesEarly(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> Any:
        if value < 0:
            return ctx.side_output("late", str(value.real))
        if value == 0:
            return (yield from self.on_timer(value, ctx))
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if timestamp:
            return ctx.timer(timestamp + 1) if ctx.watermark else None
        yield timestamp


class ChoosesItsOwn(Silent):
    """Its process is the instance's."""

    def __init__(self) -> None:
        self.process = self.fast  # type: ignore[method-assign]

    def fast(self, value: Any, ctx: Any) -> Any:
        yield value


class OnlyItsOwn(Operator):
    def __init__(self) -> None:
        self.process = ChoosesItsOwn().fast  # type: ignore[method-assign]


Build = Callable[[Pipeline, Stream], Any]


def refused(build: Build) -> str:
    p = Pipeline("job")
    try:
        build(p, p.source("in", TestingSource()))
        preview(p)
    except PipelineError as error:
        return str(error)
    pytest.fail("nothing was refused")


def out(stream: Stream) -> Stream:
    return stream.sink("out", TestingSink())


@pytest.mark.parametrize(
    ("build", "what", "to_do"),
    [
        (lambda p, s: s.map(str), "the pipeline has no sink", ".sink(id, …)"),
        (lambda p, s: s.process("op", Silent()), "the pipeline has no sink", ".sink(id, …)"),
        (lambda p, s: out(s).map(str), "step 'map-1' would read sink 'out'", "call map on the stream that the sink"),
        (lambda p, s: out(s).sink("b", TestingSink()), "step 'b' would read sink 'out'", "call sink on the stream"),
        (lambda p, s: out(s).key_by("k").process("op", OnTimers()), "'op' would read sink 'out'", "call process on"),
        (lambda p, s: s.union(out(s)), "would read sink 'out'", "call union on the stream"),
        (lambda p, s: s.connect(out(s)).process("op", SilentBoth()), "would read sink 'out'", "call process on"),
        (lambda p, s: (out(s), s.map(str)), "step 'map-1' (map) is read by no step", "put a sink behind it"),
        (lambda p, s: (out(s), s.filter(bool)), "step 'filter-1' (filter) is read by no step", "leave it out"),
        (lambda p, s: (out(s), s.process("op", Same())), "step 'op' (process) is read by no step", "leave it out"),
        (lambda p, s: (out(s), s.union(s)), "a union is read by no step", "leave it out"),
        (lambda p, s: out(s.process("op", Silent())), "Silent.process neither yields nor returns", "yield what it"),
        (lambda p, s: out(s.process("op", ToTheSide())), "nothing ever comes to step 'out'", "yield what it"),
        (
            lambda p, s: out(s.connect(s).process("op", SilentBoth())),
            "Silent.process and SilentBoth.process_connected neither",
            "yield what it",
        ),
        (lambda p, s: out(s.map(nothing)), "nothing returns nothing", "return what it is to emit"),
        (lambda p, s: out(s.map(partial(nothing))), "returns nothing", "return what it is to emit"),
        (lambda p, s: out(s.map(print)), "print returns nothing", "return what it is to emit"),
        (lambda p, s: out(s.map(Quiet())), "Quiet returns nothing", "return what it is to emit"),
        (lambda p, s: out(s.flat_map(nothing)), "nothing returns nothing", "return what it is to emit"),
        (lambda p, s: out(s.map_batches(nothing)), "nothing returns nothing", "return what it is to emit"),
        (lambda p, s: out(s.filter(nothing)), "filter: nothing returns nothing", "return True for those"),
        (lambda p, s: out(s.filter_not(nothing)), "filter_not: nothing returns nothing", "that are not to"),
        (lambda p, s: out(s.filter_not(later)), "filter_not: later is async", "make it a plain def"),
        (lambda p, s: out(s.peek(later)), "peek: later is async", "make it a plain def"),
        (lambda p, s: out(s.peek(many)), "peek: many has a yield, so calling it does nothing", "leave yield out"),
        (lambda p, s: (out(s), s.peek(print)), "step 'peek-1' (peek) is read by no step", "put a sink behind it"),
        (lambda p, s: (out(s), s.split(a=bool)), "step 'split-1' (split) is read by no step", "put a sink behind it"),
        (lambda p, s: s.split(), "split needs a function for each branch", "split(large=lambda"),
        (lambda p, s: s.split(default=bool), "the branch 'default' is there in any case", "another name"),
        (lambda p, s: s.split(_a=bool), "can't begin with an underscore", "'_a'"),
        (lambda p, s: s.split(a=7), "branch 'a' needs a function", "which records it takes"),
        (lambda p, s: s.split(a=nothing), "split, branch 'a': nothing returns nothing", "that are to"),
        (lambda p, s: s.split(a=later), "split, branch 'a': later is async", "make it a plain def"),
        (lambda p, s: s.split(a=bool).a.side_output("b"), "side_output follows process(...) directly", ""),
        (lambda p, s: s.limit_rate(0), "limit_rate takes a number of records/s above 0", "not 0"),
        (lambda p, s: s.limit_rate(float("nan")), "limit_rate takes a number of records/s above 0", "not nan"),
        (lambda p, s: s.limit_rate(True), "limit_rate takes a number of records/s above 0", "not True"),
        (lambda p, s: out(s.map(later)), "map: later is async", "make it a plain def"),
        (lambda p, s: out(s.map(LaterCallable())), "map: LaterCallable is async", "make it a plain def"),
        (lambda p, s: out(s.filter(later)), "filter: later is async", "make it a plain def"),
        (lambda p, s: out(s.flat_map(many_later)), "flat_map: many_later is async", "make it a plain def"),
        (lambda p, s: out(s.map_batches(later)), "map_batches: later is async", "make it a plain def"),
        (lambda p, s: s.key_by(later), "key_by: later is async", "make it a plain def"),
        (lambda p, s: s.partition_custom(later), "partition_custom: later is async", "make it a plain def"),
        (lambda p, s: out(s.map(many)), "map: many has a yield", "use flat_map"),
        (lambda p, s: out(s.filter(many)), "filter: many has a yield", "return the value"),
        (lambda p, s: s.process("op", operator(process=async_process)), "Mine.process is async", "plain def"),
        (lambda p, s: s.process("op", operator(process=async_yielding_process)), "Mine.process is async", "plain def"),
        (lambda p, s: s.process("op", operator(open=async_open)), "Mine.open is async", "plain def"),
        (lambda p, s: s.process("op", operator(open=yielding_open)), "Mine.open has a yield", "leave yield out"),
        (lambda p, s: s.process("op", operator(process=losing_process)), "returns a value, which nobody", "yield that"),
        (lambda p, s: s.process("op", operator(on_timer=OnTimers.on_timer)), "has on_timer", "from KeyedOperator"),
        (
            lambda p, s: s.process("op", type("Mine", (Operator,), {"proces": Same.process})()),
            "Mine has no method process(value, ctx)",
            "did you mean it by 'proces'?",
        ),
        (
            lambda p, s: s.process("op", WithoutContext()),
            "WithoutContext.process can't",
            "def process(self, value, ctx)",
        ),
        (lambda p, s: s.process("op", OpensWithoutContext()), "can't be called with (ctx)", "def open(self, ctx)"),
        (
            lambda p, s: s.process("op", SnapshotsWithoutId()),
            "with (checkpoint_id)",
            "def snapshot(self, checkpoint_id)",
        ),
        (lambda p, s: s.key_by("k").process("op", WithComplex()), "default of state 'kind' can't be kept", "plain"),
        (lambda p, s: s.process("op", Same), "process('op')", "give an instance, Same(), not the class"),
        (lambda p, s: s.sink("out", TestingSink), "sink('out'): expected a Sink", "give an instance, TestingSink(…)"),
        (lambda p, s: p.source("more", TestingSource), "source('more'): expected a Source", "TestingSource(…)"),
    ],
)
def test_what_would_have_no_effect_is_refused(build: Build, what: str, to_do: str) -> None:
    message = refused(build)
    assert what in message
    assert to_do in message


def test_all_is_said_at_once() -> None:
    message = refused(lambda p, s: (s.map(str), s.filter(bool)))
    assert len(message.splitlines()) == 3


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda s: s.key_by("k"), "what key_by behind step 'in' returned is not used"),
        (lambda s: s.rebalance(), "what rebalance behind step 'in' returned is not used"),
        (lambda s: s.broadcast(), "what broadcast behind step 'in' returned is not used"),
        (
            lambda s: s.split(a=bool, b=bool).a.sink("a", TestingSink()),
            "branch 'b' of step 'split-1' is read by no step",
        ),
        (lambda s: s.connect(s), "what connect behind step 'in' returned is not used"),
        (lambda s: s.process("op", ToTheSide()).side_output("odd"), "what side_output behind step 'op' returned"),
    ],
)
def test_a_stream_that_nobody_uses_is_warned_of(build: Callable[[Stream], Any], what: str) -> None:
    p = Pipeline("job")
    stream = p.source("in", TestingSource())
    out(stream)
    build(stream)
    found = preview(p)
    assert found.refusals == ()
    assert any(what in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "build",
    [
        lambda p, s: out(s),
        lambda p, s: out(s.map(max)),  # what a builtin returns can't be seen
        lambda p, s: out(s.flat_map(many)),
        lambda p, s: out(s.peek(print)),
        lambda p, s: out(s.split(a=bool).a),
        lambda p, s: out(s.split(a=bool)["default"].map(str)),
        lambda p, s: out(s.rebalance().key_by("k").rescale()),  # the last one counts
        lambda p, s: out(s.process("op", WithStaticAndMoreArguments())),
        lambda p, s: out(s.key_by("k").process("op", WithDefaultFromWorkers())),
        lambda p, s: (out(s), s.process("op", Silent())),  # it may write by itself
        lambda p, s: out(s.process("op", SilentUntilTheEnd())),
        lambda p, s: out(s.key_by("k").process("op", OnTimers())),
        lambda p, s: out(s.process("op", Delegates())),
        lambda p, s: out(s.process("op", Refuses())),
        lambda p, s: out(s.process("op", ToTheSide()).side_output("odd")),
        lambda p, s: out(s.connect(s).process("op", SpeaksOnTheOther())),
        lambda p, s: out(s.union(s.map(str))),
        lambda p, s: out(s.map(ternary)),
        lambda p, s: out(s.map(either_branch)),
        lambda p, s: out(s.map(lambda value: value.get("x") or None)),
        lambda p, s: out(s.map(lambda value: value and None)),
        lambda p, s: out(s.flat_map(lambda value: [value] if value else None)),
        lambda p, s: out(s.flat_map(lambda value: None if value else [value])),
        lambda p, s: out(s.filter(lambda value: (value > 1 or value < 0) or None)),
        lambda p, s: out(s.key_by("k").process("op", LeavesEarly())),
        lambda p, s: out(s.process("op", ChoosesItsOwn())),
        lambda p, s: out(s.process("op", OnlyItsOwn())),
        lambda p, s: out(s.key_by("k").connect(s.broadcast()).process("op", Rules())),
    ],
)
def test_what_may_have_one_is_not(build: Build) -> None:
    p = Pipeline("job")
    build(p, p.source("in", TestingSource()))
    assert preview(p).refusals == ()


class Rules(KeyedOperator):
    rules = BroadcastState[str, Any]()

    def process(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_connected(self, value: Any, ctx: Any) -> Any:
        self.rules["x"] = value
