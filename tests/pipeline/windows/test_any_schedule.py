"""Windows give what an oracle says over the whole input: at any parallelism, with restarts and rescaling at any record,
aligned and not, and whoever of the subtasks is faster."""

from __future__ import annotations

import random
from typing import Any

import pytest
from schedules import IN_HARNESS, Schedule, Some, in_schedules, incremental, thousands
from time_oracles import Run, check_fixed_windows, check_sessions
from timed_input import timed_input
from window_pipelines import GAP, SIZE, SLIDE, SOURCES, Kind, Shape, with_windows

from pipeline import Pipeline, WatermarkStrategy
from pipeline.paged import directory

KINDS: tuple[Kind, ...] = ("tumbling", "sliding", "session")
SHAPES: tuple[Shape, ...] = ("pipeline", "union", "repeated")

OPTIONS: tuple[dict[str, Any], ...] = (
    *({},) * 4,
    {"max_ahead": 1.0},
    {"idle_after": 1.0},
    {"quiet_after": 1.0},
    {"max_ahead": 1.0, "idle_after": 0.5},
)
"""Of the strategy."""


def one_schedule(seed: int, kind: Kind, logs: bool = False) -> tuple[int, int]:
    """Run it and check what comes out. Returns how many records were late, and in flight in snapshots.

    Args:
        logs: checkpoints are incremental.
    """
    rng = random.Random(f"{kind} {seed}")
    shape = rng.choice(SHAPES)
    wild = rng.random() < 0.7
    lateness = rng.choice((0, 0, 30, 400))
    disorder = rng.choice((0, 20, 150))
    options: dict[str, Any] = {}
    if wild:
        options = rng.choice(OPTIONS)
    idles = "idle_after" in options or "quiet_after" in options
    early = rng.choice((None, None, "update", 0.1))

    def strategy() -> WatermarkStrategy:
        return WatermarkStrategy.bounded("at", lateness=disorder / 1000, **options)

    partitions = rng.randint(1, 4)
    arrivals = timed_input(rng, SOURCES[shape], partitions, rng.randint(20, 120), disorder, wild)

    def build(p: Pipeline, some: Some, readers: Some) -> None:
        with_windows(p, IN_HARNESS, some, strategy, kind, shape, lateness, early)

    schedule = Schedule(seed, build, arrivals, partitions, checkpoints=incremental(rng) if logs else None)
    run = schedule.run(("out", "late"), idles=idles)
    return checked(run, kind, lateness, wild), schedule.in_flight


def checked(run: Run, kind: Kind, lateness: int, wild: bool) -> int:
    if kind == "session":
        return check_sessions(run, GAP, lateness, wild)
    return check_fixed_windows(run, SIZE, SIZE if kind == "tumbling" else SLIDE, lateness, wild)


@pytest.mark.parametrize("kind", KINDS)
def test_windows_equal_the_oracle_in_any_schedule(kind: Kind) -> None:
    late, in_flight = in_schedules(f"{kind} windows", range(6), lambda seed: one_schedule(seed, kind))
    assert late > 0
    assert in_flight > 0


@pytest.mark.parametrize("size", [2, directory.MOST])
@pytest.mark.parametrize("kind", KINDS)
def test_also_with_incremental_checkpoints_in_either_backend(
    kind: Kind, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MOST", size)
    in_schedules(f"{kind} windows, logged", range(2), lambda seed: one_schedule(seed, kind, logs=True))


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_equal_the_oracle_in_thousands_of_schedules(kind: Kind) -> None:
    in_schedules(f"{kind} windows", thousands(), lambda seed: one_schedule(seed, kind))
