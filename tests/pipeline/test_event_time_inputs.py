"""Inputs that make no watermarks: left out where they only broadcast, refused where event time would stand still."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipeline import KeyedOperator, Operator, Pipeline, PipelineError, WatermarkStrategy
from pipeline.event_time_inputs import TimedInputs, event_time_notes, uses_event_time
from pipeline.streams import Stream
from pipeline.testing import TestingSource
from sources import SequenceSource


class Timers(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> None:
        ctx.timer(1)

    def process_connected(self, value: Any, ctx: Any) -> None:
        pass

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


class ByTheClock(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> None:
        ctx.processing_timer(1)

    def process_connected(self, value: Any, ctx: Any) -> None:
        pass

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


class Measures(ByTheClock):
    """Other things have timers, too."""

    timer: Any = None

    def process(self, value: Any, ctx: Any) -> None:
        self.timer = Timed.timer(self.timer)
        ctx.processing_timer(1)


class Timed:
    timer = str


class Aliased(ByTheClock):
    def process(self, value: Any, ctx: Any) -> None:
        for at, set_timer in enumerate([ctx.timer]):
            set_timer(at)


def set_a_timer(ctx: Any) -> None:
    (lambda: ctx.timer(5))()


class Helped(ByTheClock):
    def process(self, value: Any, ctx: Any) -> None:
        set_a_timer(ctx)


class Watches(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value

    def on_watermark(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


class WatchesMore(Watches):
    pass


@pytest.mark.parametrize(
    ("operator", "uses"),
    [
        (Timers(), True),
        (ByTheClock(), False),
        (Measures(), False),
        (Aliased(), True),
        (Helped(), True),
        (Watches(), True),
        (WatchesMore(), True),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_uses_event_time_can_be_seen(operator: Operator, uses: bool) -> None:
    assert (uses_event_time(operator) is not None) == uses


TIMES = WatermarkStrategy.bounded(lambda v: v, 0)


def endless(p: Pipeline, id: str) -> Stream:
    return p.source(id, SequenceSource(None, rate=1))


def ending(p: Pipeline, id: str) -> Stream:
    return p.source(id, TestingSource([1]))


def keyed(stream: Stream) -> Any:
    return stream.key_by(lambda v: v)


def connected(p: Pipeline, rules: Stream, operator: Operator) -> Any:
    return keyed(endless(p, "in").assign_timestamps(TIMES)).connect(rules).process("op", operator).map(str)


def union(p: Pipeline, other: Stream, operator: Operator) -> Any:
    return keyed(endless(p, "in").assign_timestamps(TIMES).union(other)).process("op", operator).map(str)


ACCEPTED: dict[str, Callable[[Pipeline], Any]] = {
    "rules that only broadcast": lambda p: connected(p, endless(p, "rules").broadcast(), Timers()),
    "rules that were rebalanced before": lambda p: connected(
        p, endless(p, "rules").rebalance().map(str).broadcast(), Timers()
    ),
    "all inputs have timestamps": lambda p: union(p, endless(p, "b").assign_timestamps(TIMES), Timers()),
    "an input that ends": lambda p: union(p, ending(p, "b"), Timers()),
    "nobody uses event time": lambda p: union(p, endless(p, "b"), ByTheClock()),
    "a new event time begins before it is used": lambda p: keyed(
        endless(p, "a").assign_timestamps(TIMES).union(endless(p, "b")).map(str).assign_timestamps(TIMES)
    ).process("op", Timers()),
    "processing time without any timestamps": lambda p: keyed(endless(p, "in")).process("op", ByTheClock()),
    "a job that ends, without any timestamps": lambda p: keyed(ending(p, "in")).process("op", Timers()),
}
REFUSED: dict[str, Callable[[Pipeline], Any]] = {
    "a second stream without timestamps": lambda p: connected(p, keyed(endless(p, "b")), Timers()),
    "a united stream without timestamps": lambda p: union(p, endless(p, "b"), Timers()),
    "steps between": lambda p: union(p, endless(p, "b").rebalance().map(str).rebalance().filter(bool), Timers()),
    "event time is used further down": lambda p: (
        union(p, endless(p, "b"), ByTheClock()).rebalance().process("watch", Watches())
    ),
    "it is used by a helper": lambda p: union(p, endless(p, "b"), Helped()),
    "none at all": lambda p: keyed(endless(p, "b")).process("op", Timers()),
    "rules have timestamps, and the records none": lambda p: (
        keyed(endless(p, "b")).connect(endless(p, "rules").assign_timestamps(TIMES).broadcast()).process("op", Timers())
    ),
    "neither rules nor records have any": lambda p: (
        keyed(endless(p, "b")).connect(endless(p, "rules").broadcast()).process("op", Timers())
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_can_run_is_not_refused(name: str) -> None:
    p = Pipeline("job", parallelism=2)
    ACCEPTED[name](p)
    p.plan()


@pytest.mark.parametrize("name", REFUSED)
def test_where_event_time_would_stand_still_the_source_and_the_step_are_named(name: str) -> None:
    p = Pipeline("job", parallelism=2)
    REFUSED[name](p)
    with pytest.raises(PipelineError, match="makes no watermarks") as refused:
        p.plan()
    assert "source 'b'" in str(refused.value)
    assert ("step 'watch'" if "further" in name else "step 'op'") in str(refused.value)


@pytest.mark.parametrize("name", ["an input that ends", "nobody uses event time"])
def test_where_event_time_waits_for_the_end_of_an_input_the_plan_says_so(name: str) -> None:
    p = Pipeline("job", parallelism=2)
    ACCEPTED[name](p)
    (note,) = event_time_notes(p.plan())
    assert "'op' stands still until its input from 'b' ends" in note


def test_only_broadcast_inputs_without_watermarks_are_left_out() -> None:
    p = Pipeline("job", parallelism=2)
    connected(p, endless(p, "rules").broadcast(), Timers())
    plan = p.plan()
    inputs = TimedInputs(plan)
    left_out = {edge.upstream for vertex in plan.vertices for edge in inputs.left_out(vertex)}
    assert left_out == {"rules"}
