"""Random jobs under random schedules: whatever the seed, all comes out once and in order, and nothing gets stuck."""

from __future__ import annotations

import os
import random

import pytest
from simulated.simulation import Simulation, SimulationFailed
from simulated.source import Source

_GROUP = 50
_STRESS = 20_000


@pytest.mark.parametrize("first", range(0, 500, _GROUP))
def test_a_run_ends_with_everything_out_once_and_in_order(first: int) -> None:
    for seed in range(first, first + _GROUP):
        Simulation(seed).run()


def test_the_seeds_reach_what_they_are_for() -> None:
    """Restores with data in flight, drains, checkpoints of each alignment: a change must not make the runs harmless."""
    runs = [Simulation(seed).run() for seed in range(60)]
    assert sum(rows > 0 for run in runs for rows in run.restored_rows) >= 20
    assert sum(run.drains for run in runs) >= 20
    assert {alignment is None for run in runs for alignment in run.options.alignments} == {True, False}
    assert {run.options.exactly_once for run in runs} == {True, False}
    sources = [subtask for run in runs for subtask in run.last.subtasks if isinstance(subtask, Source)]
    closed_for = [reason for source in sources for reason in source.closed_for]
    changes = [change for source in sources if (change := source.gate.window_change)]
    for cause in ("window of", "waits for operators", "waits for storage"):
        assert sum(cause in reason for reason in closed_for) >= 10, cause
    for verb in ("grew", "shrank"):
        assert sum(verb in change for change in changes) >= 5, verb


def test_a_seed_repeats_a_run_exactly() -> None:
    def trace(seed: int) -> list[str]:
        return [f"{now} {' '.join(map(str, what))}" for now, _, what in Simulation(seed).run().scheduler.trace]

    assert trace(3) == trace(3)
    assert trace(3) != trace(4)


@pytest.mark.stress
@pytest.mark.timeout(3 * 3600)
def test_many_more_seeds() -> None:
    """WEIR_STRESS_SEED repeats a run from its first seed on."""
    first = int(os.environ.get("WEIR_STRESS_SEED", random.SystemRandom().randrange(2**32)))
    print(f"WEIR_STRESS_SEED={first}")
    failures = []
    for seed in range(first, first + _STRESS):
        try:
            Simulation(seed).run()
        except SimulationFailed as failure:
            failures.append(str(failure))
    assert not failures, f"{len(failures)} of {_STRESS} seeds from {first} on; the first:\n{failures[0]}"
