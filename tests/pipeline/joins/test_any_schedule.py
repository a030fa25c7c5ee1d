"""Joins give what an oracle says over the whole input: at any parallelism, with restarts and rescaling at any record,
aligned and not, and whichever of the inputs is faster."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from join_pipelines import SOURCES, Join, Shape, with_joins
from schedules import IN_HARNESS, MOST, Schedule, Some, in_schedules, incremental, thousands
from time_oracles import Run, Side, as_of_join, check_late, interval_join, late_of, named, same, sides
from timed_input import timed_input

from pipeline import Pipeline, WatermarkStrategy
from pipeline.joins import interval
from pipeline.paged import directory
from pipeline.testing import PipelineHarness

SHAPES: tuple[Shape, ...] = ("two", "three", "self", "as of")
HOW = ("inner", "left", "right", "full")

OPTIONS: tuple[dict[str, Any], ...] = (
    *({},) * 4,
    {"max_ahead": 1.0},
    {"idle_after": 1.0},
    {"quiet_after": 1.0},
    {"max_ahead": 1.0, "idle_after": 0.5},
)
"""Of the strategy."""


def one_schedule(seed: int, shape: Shape, logs: bool = False) -> tuple[int, int]:
    """Run it and check what comes out. Returns how many records were late, and in flight in snapshots.

    Args:
        logs: checkpoints are incremental.
    """
    rng = random.Random(f"{shape} {seed}")
    wild = rng.random() < 0.7
    disorder = rng.choice((0, 20, 150))
    options: dict[str, Any] = {}
    if wild:
        options = rng.choice(OPTIONS)
    idles = "idle_after" in options or "quiet_after" in options

    def strategy() -> WatermarkStrategy:
        return WatermarkStrategy.bounded("at", lateness=disorder / 1000, **options)

    first, second = _join(rng), _join(rng)
    if shape == "as of":
        first = first._replace(how=rng.choice(("inner", "left")))
    partitions = rng.randint(1, 3)
    arrivals = timed_input(rng, SOURCES[shape], partitions, rng.randint(20, 100), disorder, wild)

    def build(p: Pipeline, some: Some, readers: Some) -> None:
        with_joins(p, IN_HARNESS, some, readers, strategy, shape, first, second)

    most = rng.choice((partitions, MOST))
    schedule = Schedule(seed, build, arrivals, partitions, most, incremental(rng) if logs else None)
    sinks = ("out", "late", "late three") if shape == "three" else ("out", "late")
    run = schedule.run(sinks, idles=idles, frees=shape != "as of")  # whose versions are a table
    return checked(run, shape, first, second, wild, idles), schedule.in_flight


def _join(rng: random.Random) -> Join:
    low = rng.choice((-300, -20, 0, 10))
    return Join(low, low + rng.choice((0, 5, 60, 400)), rng.choice(HOW))


def checked(run: Run, shape: Shape, first: Join, second: Join, any_late: bool, any_idle: bool) -> int:
    """
    Args:
        any_late: some records may be late.
        any_idle: sources may fall idle. Where all in front of the first join are, the second one goes on without it,
            and its results may be late there.
    """
    late = late_of(run, "late", any_late)
    for ids in late.values():
        check_late(run, ids)
    source, *others = SOURCES[shape]
    lefts = sides(run, source, late["left"])
    rights = sides(run, others[0] if others else source, late["right"])
    found = [named(one["id"]) for one in run.outputs["out"]]
    count = len(late["left"]) + len(late["right"])
    if shape == "as of":
        wanted = dict(as_of_join(lefts, rights, first.how))
        same((left for left, _ in found), wanted)
        for left, right in found:
            assert right in wanted[left], f"{left} is joined with {right}, not with one of {wanted[left]}"
        return count
    joined: list[Side] = list(interval_join(lefts, rights, *first))
    if shape == "three":
        late_three = late_of(run, "late three", any_late or any_idle)
        assert any_late or not late_three["right"]
        gone = set(late_three["left"])
        assert any_idle or not gone, f"results of a join are late in the next one: {gone}"
        assert gone <= {one.id for one in joined}
        joined = [one for one in joined if one.id not in gone]
        check_late(run, late_three["right"])
        count += len(late_three["right"])
        joined = list(interval_join(joined, sides(run, others[1], late_three["right"]), *second))
    same(found, (one.id for one in joined))
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_joins_equal_the_oracle_in_any_schedule(shape: Shape) -> None:
    late, in_flight = in_schedules(f"a join of {shape}", range(5), lambda seed: one_schedule(seed, shape))
    assert late > 0
    assert in_flight > 0


@pytest.mark.parametrize("size", [2, directory.MOST])
@pytest.mark.parametrize("shape", SHAPES)
def test_also_with_incremental_checkpoints_in_either_backend(
    shape: Shape, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MOST", size)
    monkeypatch.setattr(interval, "MOST_AT_ONCE", size)
    in_schedules(f"a join of {shape}, logged", range(2), lambda seed: one_schedule(seed, shape, logs=True))


def test_at_the_end_results_of_a_join_are_in_time_for_the_next_one_whichever_subtasks_of_sources_end_first() -> None:
    """Each source has one partition, and more subtasks than that."""
    sources = SOURCES["three"]

    def late(seed: int) -> list[Any]:
        p = Pipeline("the end", max_parallelism=16)
        join = Join(0, 50, "full")
        strategy = partial(WatermarkStrategy.bounded, "at", lateness=0)
        with_joins(p, IN_HARNESS, lambda: 1, lambda: 2, strategy, "three", join, join)
        harness = PipelineHarness(p, seed=seed, partitions=dict.fromkeys(sources, 1))
        for source, at in zip(sources, (490, 500, 900), strict=True):
            harness.send(source, {"id": at, "key": source, "at": at}, partition=0)
        harness.end_of_input()
        harness.deliver()
        assert len(harness.outputs("out")) == len(sources)
        return harness.outputs("late three")

    # In each, the first join knows of one subtask of each of its sources that it has ended, and the other one is idle.
    assert not any(late(seed) for seed in (2, 6))


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shape", SHAPES)
def test_joins_equal_the_oracle_in_thousands_of_schedules(shape: Shape) -> None:
    in_schedules(f"a join of {shape}", thousands(), lambda seed: one_schedule(seed, shape))
