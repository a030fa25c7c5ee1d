"""What becomes of a step's state when the step has other options in the next run (docs/jobs.md has it as a table)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkpoint.state import StateRestoreError
from pipeline import (
    Count,
    CountWindow,
    Global,
    LookupCache,
    Pipeline,
    PipelineError,
    Sum,
    Tumbling,
    WatermarkStrategy,
)
from pipeline.streams import KeyedStream
from pipeline.testing import PipelineHarness, PipelineSnapshot, TestingSink, TestingSource

Step = Callable[[KeyedStream, KeyedStream], Any]

DISTINCT: dict[str, dict[str, Any]] = {
    "for ever": {},
    "within": {"within": 10},
    "longer": {"within": 20},
    "lateness": {"within": 10, "lateness": 5},
    "by the clock": {"within": 10, "time": "processing"},
}


async def ask(value: Any) -> Any:
    return value


async def ask_all(values: list[Any]) -> list[Any]:
    return values


def a_distinct(name: str) -> Step:
    return lambda a, b: a.distinct("x", **DISTINCT[name])


def pipeline(step: Step) -> Pipeline:
    p = Pipeline("p")
    first, second = (
        p.source(name, TestingSource()).assign_timestamps(WatermarkStrategy.bounded("at", 0)).key_by("k")
        for name in ("first", "second")
    )
    step(first, second).sink("out", TestingSink())
    second.map(dict).sink("rest", TestingSink())
    return p


def record(at: int, amount: int = 1) -> dict[str, Any]:
    """`at`: seconds."""
    return {"k": "ann", "at": at * 1000, "amount": amount}


def before(step: Step, *first: dict[str, Any], seconds: float = 0.0) -> PipelineSnapshot:
    harness = PipelineHarness(pipeline(step))
    for one in first:
        harness.send("first", one)
        harness.send("second", one)
    harness.advance_time(seconds)
    return harness.snapshot()


def goes_on(step: Step, snapshot: PipelineSnapshot, *then: dict[str, Any], seconds: float = 0.0) -> list[Any]:
    harness = PipelineHarness.restore(pipeline(step), snapshot)
    for one in then:
        harness.send("first", one)
    harness.advance_time(seconds)
    return harness.take("out")


REFUSED: list[tuple[Step, Step]] = [
    *(
        (lambda a, b: a.window(Tumbling(10)).aggregate("x", n=Count()), now)
        for now in (
            lambda a, b: a.window(Tumbling(20)).aggregate("x", n=Count()),
            lambda a, b: a.window(Tumbling(10), lateness=1).aggregate("x", n=Count()),
            lambda a, b: a.window(Tumbling(10)).aggregate("x", n=Sum("amount")),
            lambda a, b: a.window(Tumbling(10)).reduce(lambda a, b: a, "x"),
            lambda a, b: a.window(CountWindow(10)).aggregate("x", n=Count()),
        )
    ),
    *(
        (lambda a, b: a.window(CountWindow(10, 5)).aggregate("x", n=Count()), now)
        for now in (
            lambda a, b: a.window(CountWindow(20, 5)).aggregate("x", n=Count()),
            lambda a, b: a.window(CountWindow(10)).aggregate("x", n=Count()),
            lambda a, b: a.window(Global(count=10)).aggregate("x", n=Count()),
        )
    ),
    (
        lambda a, b: a.window(Global(count=10)).aggregate("x", n=Count()),
        lambda a, b: a.window(Global(count=10, clear=True)).aggregate("x", n=Count()),
    ),
    (lambda a, b: a.aggregate("x", n=Count()), lambda a, b: a.aggregate("x", n=Sum("amount"))),
    (a_distinct("for ever"), a_distinct("within")),
    (a_distinct("by the clock"), a_distinct("within")),
    (lambda a, b: a.latest_by_key("x"), lambda a, b: a.latest_by_key("x", order="arrival")),
    (lambda a, b: a.latest_by_key("x"), lambda a, b: a.latest_by_key("x", order=lambda one: one["amount"])),
    (lambda a, b: a.latest_by_key("x", order="arrival"), lambda a, b: a.latest_by_key("x")),
    (lambda a, b: a.top_n(2, "amount", "x"), lambda a, b: a.top_n(3, "amount", "x")),
    (lambda a, b: a.top_n(2, "amount", "x"), lambda a, b: a.top_n(2, "amount", "x", smallest=True)),
    *(
        (lambda a, b: a.join(b, within=(-5, 5), id="x"), now)
        for now in (
            lambda a, b: a.join(b, within=(-5, 6), id="x"),
            lambda a, b: a.join(b, within=(-5, 5), how="left", id="x"),
            lambda a, b: a.join(b, window=Tumbling(10), id="x"),
            lambda a, b: a.join_as_of(b, id="x"),
        )
    ),
    (
        lambda a, b: a.join(b, window=Tumbling(10), id="x"),
        lambda a, b: a.join(b, window=Tumbling(20), id="x"),
    ),
    (lambda a, b: a.join(b, window=Tumbling(10), id="x"), lambda a, b: a.join(b, within=(-5, 5), id="x")),
    (lambda a, b: a.join_as_of(b, max_age=5, id="x"), lambda a, b: a.join_as_of(b, max_age=6, id="x")),
    (lambda a, b: a.join_as_of(b, max_age=5, id="x"), lambda a, b: a.join_as_of(b, id="x")),
]


@pytest.mark.parametrize(("was", "now"), REFUSED)
def test_what_state_can_not_serve_is_refused(was: Step, now: Step) -> None:
    snapshot = before(was, record(1))
    with pytest.raises((PipelineError, StateRestoreError), match=r"another id|declare"):
        PipelineHarness.restore(pipeline(now), snapshot)


@pytest.mark.parametrize("was", DISTINCT)
@pytest.mark.parametrize("now", DISTINCT)
def test_a_key_that_is_known_is_left_out_whatever_within_is(was: str, now: str) -> None:
    if ("within" in DISTINCT[now]) and DISTINCT[now].get("time") is None and was in ("for ever", "by the clock"):
        return  # refused, see above
    assert goes_on(a_distinct(now), before(a_distinct(was), record(1)), record(2)) == []


def test_a_longer_within_does_not_bring_back_what_is_forgotten() -> None:
    snapshot = before(a_distinct("within"), record(1), {**record(30), "k": "bob"})
    assert goes_on(a_distinct("longer"), snapshot, record(32)) == [record(32)]


def test_triggers_of_a_global_window_count_from_the_next_record_of_a_key_on() -> None:
    def of(**options: Any) -> Step:
        return lambda a, b: a.window(Global(**options)).aggregate("x", n=Count())

    def counts(results: list[Any]) -> list[int]:
        return [one["n"] for one in results]

    assert counts(goes_on(of(count=2), before(of(every=10), record(1)), seconds=60)) == []
    assert counts(goes_on(of(count=2), before(of(every=10), record(1)), record(2), seconds=60)) == [2]
    assert counts(goes_on(of(every=10), before(of(count=5), record(1)), seconds=60)) == []
    assert counts(goes_on(of(every=10), before(of(count=5), record(1)), record(2), seconds=60)) == [2]
    assert counts(goes_on(of(count=2), before(of(count=5), record(1), record(2)), record(3))) == [3]


def test_top_n_may_be_shorter_and_a_table_may_say_otherwise_what_is_deleted() -> None:
    snapshot = before(lambda a, b: a.top_n(2, "amount", "x"), record(1, 5), record(2, 4))
    [top] = goes_on(lambda a, b: a.top_n(1, "amount", "x"), snapshot, record(3, 6))
    assert top == {"key": "ann", "top": [record(3, 6)]}
    snapshot = before(lambda a, b: a.latest_by_key("x"), record(5))
    now: Step = lambda a, b: a.latest_by_key("x", deleted=lambda one: one["amount"] == 0, lateness=5)  # noqa: E731
    assert goes_on(now, snapshot, record(4), record(6, 0), record(5)) == [record(6, 0)]


def test_a_windowed_join_may_give_other_results() -> None:
    def of(how: Any, **options: Any) -> Step:
        return lambda a, b: a.join(b, window=Tumbling(10), how=how, id="x", **options)

    harness = PipelineHarness(pipeline(of("inner")))
    harness.send("first", record(1))
    harness = PipelineHarness.restore(
        pipeline(of("left", select=lambda left, right: (left, right))), harness.snapshot()
    )
    harness.end_of_input()
    assert harness.outputs("out") == [(record(1), None)]


def test_a_waiting_record_of_an_as_of_join_gets_what_the_options_of_now_say() -> None:
    harness = PipelineHarness(pipeline(lambda a, b: a.join_as_of(b, id="x")))
    harness.send("second", record(1, 7))
    harness.send("first", record(9, 8))
    snapshot = harness.snapshot()
    for options, wanted in (
        ({"how": "left"}, [7]),
        ({"wait": False}, [7]),
        ({"max_age": 3}, []),
        ({"how": "left", "max_age": 3}, [None]),
    ):
        step: Step = lambda a, b, options=options: a.join_as_of(  # type: ignore[misc]  # noqa: E731
            b, select=lambda left, right: right and right["amount"], id="x", **options
        )
        harness = PipelineHarness.restore(pipeline(step), snapshot)
        harness.end_of_input()
        assert harness.outputs("out") == wanted, options


_ASKED: list[dict[str, Any]] = [
    {},
    {"capacity": 1},
    {"ordered": False},
    {"ordered": "key"},
    {"batch_size": 3},
    {"retries": 2},
    {"timeout": None},
    {"on_error": "skip"},
]


@pytest.mark.parametrize("was", _ASKED)
@pytest.mark.parametrize("now", _ASKED)
def test_what_was_asked_is_asked_again_by_the_options_of_now(was: dict[str, Any], now: dict[str, Any]) -> None:
    def of(options: dict[str, Any]) -> Step:
        return lambda a, b: a.map_async(ask_all if "batch_size" in options else ask, "x", **options)

    harness = PipelineHarness(pipeline(of(was)), seed=1)  # answers wait
    records = [record(at) for at in range(1, 7)]
    for one in records:
        harness.send("first", one)
    snapshot = harness.snapshot()
    out = list(harness.outputs("out"))
    harness = PipelineHarness.restore(pipeline(of(now)), snapshot)
    harness.run_async()
    harness.end_of_input()
    harness.run_async()
    assert sorted((out + harness.outputs("out")), key=lambda one: one["at"]) == records


def test_a_lookup_may_remember_otherwise() -> None:
    def of(cache: LookupCache | None) -> Step:
        return lambda a, b: a.join_lookup(ask, "x", cache=cache)

    snapshot = before(of(None), record(1))
    harness = PipelineHarness.restore(pipeline(of(LookupCache(5))), snapshot)
    harness.send("first", record(2))
    harness.run_async()
    assert harness.outputs("out")[-1] == {"left": record(2), "right": "ann"}


_STRATEGIES: list[dict[str, Any]] = [
    {"lateness": 0},
    {"lateness": 5},
    {"lateness": 0, "idle_after": 5},
    {"lateness": 0, "quiet_after": 5},
    {"lateness": 0, "max_ahead": 60},
]


@pytest.mark.parametrize("was", _STRATEGIES)
@pytest.mark.parametrize("now", _STRATEGIES)
def test_a_watermark_does_not_go_back_whatever_its_strategy_is(was: dict[str, Any], now: dict[str, Any]) -> None:
    def of(options: dict[str, Any]) -> Pipeline:
        p = Pipeline("p")
        timed = p.source("in", TestingSource()).assign_timestamps(WatermarkStrategy.bounded("at", **options), "times")
        results = timed.key_by("k").window(Tumbling(10)).aggregate("x", n=Count())
        results.sink("out", TestingSink())
        results.late().sink("late", TestingSink())
        return p

    harness = PipelineHarness(of(was))
    harness.send("in", record(1))
    harness.advance_time(2)  # with `max_ahead` the first watermark comes a second late
    harness.send("in", record(16))
    before_it = harness.outputs("out")
    [reached] = harness.watermarks("times")
    harness = PipelineHarness.restore(of(now), harness.snapshot())
    [restored] = harness.watermarks("times")
    assert restored is not None
    assert reached is not None
    assert restored >= reached
    harness.send("in", record(2))  # its window has closed
    harness.send("in", record(30))
    harness.end_of_input()
    firsts = [one for one in before_it + harness.outputs("out") if one["start"] == 0]
    assert [one["n"] for one in firsts] == [1]
    assert harness.outputs("late") == [record(2)]
