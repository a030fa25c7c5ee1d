"""State with a time to live by either clock, in front of windows and joins, gives what an oracle says over the whole
input: at any parallelism, with restarts and rescaling at any record, checkpoints that fail, whole or incremental ones,
and in either backend, which may be another one behind each restart."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import pytest
from join_pipelines import together
from kept_for_a_while import Lifetimes, looks, remembering, seen
from schedules import MOST, Schedule, Some, in_schedules, thousands
from time_oracles import Run, Side, check_fixed_windows, interval_join, named, same
from timed_input import timed_input
from window_pipelines import SIZE, Ids

from pipeline import CheckpointConfig, Count, Pipeline, Tumbling, WatermarkStrategy
from pipeline.aggregates import Aggregate
from pipeline.joins import windowed
from pipeline.paged import directory
from pipeline.testing import TestingSink, TestingSource

Shape = Literal["windows", "interval join", "windowed join"]
SHAPES: tuple[Shape, ...] = ("windows", "interval join", "windowed join")
LOW, HIGH = -60, 40
"""Milliseconds, where partners of an interval join are."""


class Shown(Aggregate):
    """What each record has seen."""

    def create(self) -> Any:
        return ()

    def add(self, acc: Any, value: Any) -> Any:
        return (*acc, [value["id"], value["seen"]])

    def merge(self, a: Any, b: Any) -> Any:
        return (*a, *b)

    def result(self, acc: Any) -> Any:
        return list(acc)


def with_state(
    p: Pipeline, some: Some, readers: Some, strategy: Callable[[], WatermarkStrategy], shape: Shape, lives: Lifetimes
) -> None:
    """Add the steps, up to the sinks `out` and `shown`."""

    def source(name: str) -> Any:
        read = p.source(name, TestingSource(), parallelism=readers())
        return read.assign_timestamps(strategy(), id=f"time of {name}").map(dict).key_by("key")

    kept = source("first").process("kept", remembering(lives), parallelism=some())
    kept.map(dict, id="seen").sink("shown", TestingSink())
    again = kept.map(dict, id="again").key_by("key")
    if shape == "windows":
        windows = again.window(Tumbling(SIZE / 1000))
        results = windows.aggregate("windows", parallelism=some(), n=Count(), ids=Ids(), shown=Shown())
        results.late().sink("late", TestingSink())
    else:
        options: dict[str, Any] = {"within": (LOW / 1000, HIGH / 1000)}
        if shape == "windowed join":
            options = {"window": Tumbling(SIZE / 1000)}
        results = again.join(source("second"), how="full", select=together, id="join", parallelism=some(), **options)
        results.late().sink("late", TestingSink())
    results.rebalance().sink("out", TestingSink(), parallelism=some())


def one_schedule(seed: int, shape: Shape) -> tuple[int, int]:
    """Run it and check what comes out. Returns how many checkpoints failed, and how many records were in flight in
    snapshots."""
    rng = random.Random(f"{shape} {seed}")
    lives = Lifetimes(rng.choice((30, 200, 1000)), rng.choice((300, 900, 2500)))
    disorder, partitions = rng.choice((0, 20, 150)), rng.randint(1, 3)
    sources = ("first",) if shape == "windows" else ("first", "second")
    calm = timed_input(rng, sources, partitions, rng.randint(20, 70), disorder, wild=False)
    arrivals = [one._replace(wait=rng.choice((0.0,) * 6 + (0.05, 0.3, 1.0))) for one in calm]
    strategy = partial(WatermarkStrategy.bounded, "at", lateness=disorder / 1000)

    def checkpoints() -> CheckpointConfig:
        backend: Any = rng.choice(("heap", "rocksdb"))
        return CheckpointConfig("file:///nowhere", incremental=rng.random() < 0.8, state_backend=backend)

    def build(p: Pipeline, some: Some, readers: Some) -> None:
        with_state(p, some, readers, strategy, shape, lives)

    most = rng.choice((partitions, MOST))
    schedule = Schedule(seed, build, arrivals, partitions, most, checkpoints, settled=True)
    check(schedule.run(("out", "late", "shown"), idles=False, frees=False), schedule.sent, shape, lives)
    return schedule.aborted, schedule.in_flight


def check(run: Run, sent: dict[int, int], shape: Shape, lives: Lifetimes) -> None:
    first = [one for one in run.arrivals if one.source == "first"]
    all_of_them = [*first, *looks(first)]
    expected = seen(first, sent, lives)
    assert run.outputs["late"] == []
    shown = run.outputs["shown"]
    same((one["id"] for one in shown), expected)
    for one in shown:
        assert one["seen"] == expected[one["id"]], f"{one['id']} has seen {one['seen']}, not {expected[one['id']]}"
    if shape == "windows":
        for result in run.outputs["out"]:
            for id, what in result["shown"]:
                assert what == expected[id]
        bounds = {**run.bounds, **{one.id: None for one in all_of_them}}
        check_fixed_windows(run._replace(arrivals=all_of_them, bounds=bounds), SIZE, SIZE, 0, any_late=False)
        return
    lefts = [Side(one.id, one.key, one.at) for one in all_of_them]
    rights = [Side(one.id, one.key, one.at) for one in run.arrivals if one.source == "second"]
    pairs = interval_join(lefts, rights, LOW, HIGH, "full") if shape == "interval join" else window_join(lefts, rights)
    same((named(one["id"]) for one in run.outputs["out"]), (one.id for one in pairs))


def window_join(lefts: list[Side], rights: list[Side]) -> list[Side]:
    """Of windows of `SIZE`, "full"."""

    def window(one: Side) -> tuple[str, int]:
        return one.key, one.at // SIZE

    found = [Side((a.id, b.id), a.key, a.at) for a in lefts for b in rights if window(a) == window(b)]
    both = {window(one) for one in lefts} & {window(one) for one in rights}
    found += [Side((one.id, None), one.key, one.at) for one in lefts if window(one) not in both]
    return found + [Side((None, one.id), one.key, one.at) for one in rights if window(one) not in both]


@pytest.mark.parametrize("size", [2, directory.MOST])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_kept_for_a_while_is_there_for_that_long_and_in_windows_and_joins(
    shape: Shape, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MOST", size)
    monkeypatch.setattr(windowed, "MOST_AT_ONCE", size)
    what = f"{shape} of what is kept for a while, {size} a page"
    aborted, in_flight = in_schedules(what, range(6), lambda seed: one_schedule(seed, shape))
    assert aborted > 0
    assert in_flight > 0


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_kept_for_a_while_in_thousands_of_schedules(shape: Shape) -> None:
    in_schedules(f"{shape} of what is kept for a while", thousands(), lambda seed: one_schedule(seed, shape))
