"""Kinds of schedules that broke earlier drafts of the protocol: with today's rules they all pass.

`test_rules` shows for most of them that the same kind of run fails when the rule is broken.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from jobs.graph import Graph
from jobs.shapes import (
    CUSTOM,
    FORWARD,
    KEYED,
    REBALANCE,
    RESCALE,
    chain,
    forward_behind_keyed,
    two_sinks,
    union,
    with_rules,
    with_timers,
)
from jobs.simulation import Simulation

SEED = int(os.environ.get("WEIR_STRESS_SEED", random.SystemRandom().randrange(2**32)))
_UNALIGNED: dict[str, Any] = {
    "exactly_once": True,
    "alignment": 0.0,
    "max_concurrent": 3,
    "interval": 0.2,
    "timeout": 60.0,
    "tolerable_failures": 1000,
    "storage_seconds": 0.002,
    "storage_failures": 0.0,
    "lost": 0.0,
    "savepoints": False,
    "stops": 0.0,
    "edges_change": 0.0,
    "ignores_in_flight": 0.0,
    "markers_lost": 0.0,
    "takeovers": 0.0,
    "idle_after": None,
    "crashes": 6,
    "storm": 2500,
}
_CASES: dict[str, tuple[Callable[[], Graph], dict[str, Any]]] = {
    "restored data first, as one ordered sequence": (
        lambda: chain(KEYED, KEYED, FORWARD),
        {"keep_parallelism": 1.0, "slow_steps": ("op",), "crash_moments": ("complete",)},
    ),
    "two keyed hops, rescaled every time": (lambda: chain(KEYED, KEYED, FORWARD), {"keep_parallelism": 0.0}),
    "committables travel with every later checkpoint": (
        lambda: chain(KEYED, FORWARD),
        {"slow": ("commit",), "crash_moments": ("complete", "commit")},
    ),
    "segments that were aborted join the next epoch, and keep their names": (
        lambda: chain(KEYED, FORWARD),
        {"slow": ("report",), "storage_failures": 0.1, "crash_moments": ("commit",)},
    ),
    "a key's older epochs go out first after rescaling": (
        lambda: chain(KEYED, FORWARD, records=20),
        {"slow": ("commit",), "keep_parallelism": 0.0, "crash_moments": ("complete",)},
    ),
    "operators that emit for broadcast elements, not rescaled": (with_rules, {"keep_parallelism": 1.0}),
    "operators that emit for broadcast elements, rescaled": (with_rules, {"keep_parallelism": 0.0}),
    "broadcast and custom edges into one operator": (lambda: with_rules(CUSTOM), {"keep_parallelism": 0.3}),
    "broadcast and rebalance edges into one operator": (lambda: with_rules(REBALANCE), {"keep_parallelism": 0.3}),
    "forward edges from the source, rescaled": (
        lambda: with_rules(FORWARD, KEYED),
        {"keep_parallelism": 0.0, "slow_steps": ("op",), "crash_moments": ("complete",)},
    ),
    "forward edges behind a keyed operator go by key group": (
        forward_behind_keyed,
        {"keep_parallelism": 0.0, "slow_steps": ("op1",)},
    ),
    "a checkpoint taken during a replay replays again": (
        lambda: with_rules(FORWARD, KEYED),
        {"keep_parallelism": 0.5, "interval": 0.1, "crashes": 8, "slow_steps": ("op",)},
    ),
    "aligned checkpoints and savepoints at once": (
        lambda: chain(KEYED, KEYED, FORWARD),
        {"alignment": None, "savepoints": True, "slow": ("wire",)},
    ),
    "barriers are made unaligned in the sender's queue": (
        lambda: chain(KEYED, RESCALE, KEYED, FORWARD),
        {"alignment": 0.05, "slow": ("wire",)},
    ),
    "watermarks of old channels stay apart until they are used up": (
        lambda: chain(REBALANCE, KEYED, FORWARD),
        {"keep_parallelism": 0.0, "slow_steps": ("op",)},
    ),
    "watermarks wait for broadcast inputs after rescaling": (
        lambda: with_rules(CUSTOM),
        {"keep_parallelism": 0.0, "slow_steps": ("op",), "crash_moments": ("complete",)},
    ),
    "every checkpoint would expire: spans shrink until one completes": (
        lambda: chain(KEYED, FORWARD, records=20),
        {"alignment": None, "timeout": 4.0, "slow_steps": ("sink",), "max_span_records": 8, "crashes": 0},
    ),
    "lost triggers, notifications and heartbeats": (union, {"lost": 0.5}),
    "a slow and failing storage": (union, {"storage_seconds": 0.5, "storage_failures": 0.1}),
    "at least once": (union, {"exactly_once": False}),
    "timers, with data in flight": (with_timers, {"slow_steps": ("op",), "keep_parallelism": 0.3}),
    "stopped and started again, with savepoints": (with_timers, {"stops": 0.5, "savepoints": True}),
    "edges change while data is in flight": (
        lambda: chain(CUSTOM, KEYED, REBALANCE),
        {"edges_change": 1.0, "slow_steps": ("op0", "sink")},
    ),
    "what was in flight is left out": (
        lambda: chain(KEYED, KEYED, FORWARD),
        {"ignores_in_flight": 0.5, "slow_steps": ("op",)},
    ),
    "a driver's job is taken over while it lives": (
        lambda: two_sinks(KEYED),
        {"takeovers": 1.0, "driver_crashes": 1.0, "slow": ("report", "mail")},
    ),
    # A driver died while a drained job's event time had ended in some of the subtasks.
    "drained, and killed meanwhile": (lambda: chain(KEYED, REBALANCE), {"stops": 1.0, "crashes": 4}),
    # A driver took its own owner file, of whose write the storage had answered with an error, for another one's.
    "storage that fails after it has written": (lambda: chain(KEYED, REBALANCE), {"storage_failures": 0.2}),
}


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("name", _CASES)
def test_a_schedule_of_the_kind_that_broke_an_earlier_draft(name: str) -> None:
    print(f"WEIR_STRESS_SEED={SEED}")
    _run(name, range(SEED, SEED + 1))


@pytest.mark.full
@pytest.mark.parametrize("name", _CASES)
def test_further_schedules_of_the_kind_that_broke_an_earlier_draft(name: str) -> None:
    _run(name, range(20))


def _run(name: str, seeds: Iterable[int]) -> None:
    make, overrides = _CASES[name]
    for seed in seeds:
        Simulation(seed, make(), **(_UNALIGNED | overrides)).run()
