"""Random jobs under random schedules: whatever the seed, all is committed once and in order, and nothing gets stuck.

Drivers, attempts and subtasks are production code, on a virtual clock, sockets and files. WEIR_STRESS_SEED repeats the
runs that are drawn.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from jobs.simulation import Simulation, SimulationFailed

SEED = int(os.environ.get("WEIR_STRESS_SEED", random.SystemRandom().randrange(2**32)))
_OFTEN = {
    "restores what was in flight",
    "replays",
    "restores keyed timers",
    "commits what was restored",
    "commits to several sinks",
    "takes a savepoint",
    "stops",
    "kills a subtask",
    "kills a driver",
    "loses Heartbeat",
}
_SELDOM = {
    "drains",
    "starts from a savepoint",
    "changes edges",
    "leaves out what was in flight",
    "is idle",
    "loses Trigger",
    "loses Completed",
    "loses Aborted",
    "loses BarrierPassed",
    "fails to write",
    "takes a job over",
    "makes a barrier unaligned",
    "closes a gate: window",
    "closes a gate: waits for operators",
    "closes a gate: waits for storage",
}

pytestmark = pytest.mark.timeout(900)  # of a busy machine


def test_runs_of_these_seeds_end_with_everything_committed_once_and_in_order() -> None:
    """Whatever goes wrong on the way; and much of it does: a change must not make the runs harmless."""
    reached = _run(range(30))
    assert reached >= _OFTEN, f"no run of these seeds {', '.join(sorted(_OFTEN - reached))}"


def test_runs_of_a_sample_end_so_too() -> None:
    print(f"WEIR_STRESS_SEED={SEED}")
    _run(range(SEED, SEED + 10))


@pytest.mark.full
def test_further_runs_reach_all_that_they_are_for() -> None:
    reached = _run(range(30, 230))
    assert reached >= _OFTEN | _SELDOM, f"no run of these seeds {', '.join(sorted((_OFTEN | _SELDOM) - reached))}"


def test_a_seed_repeats_a_run_exactly_in_another_process() -> None:
    """Its dicts and sets have another order."""
    code = "from jobs.simulation import Simulation; print(*Simulation(3).run().scheduler.trace, sep='\\n')"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parent)}
    there = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    here = "\n".join(map(str, Simulation(3).run().scheduler.trace))
    assert there.stdout.strip() == here != ""


@pytest.mark.stress
@pytest.mark.timeout(6 * 3600)
def test_many_more_seeds() -> None:
    print(f"WEIR_STRESS_SEED={SEED}")
    _run(range(SEED, SEED + 20_000))


def _run(seeds: Iterable[int]) -> set[str]:
    """What the runs have reached."""
    reached: set[str] = set()
    failures = []
    for seed in seeds:
        run = Simulation(seed)
        try:
            run.run()
        except SimulationFailed as failure:
            failures.append(str(failure))
        reached |= run.reached
    assert not failures, f"{len(failures)} runs have failed; the first:\n{failures[0]}"
    return reached
