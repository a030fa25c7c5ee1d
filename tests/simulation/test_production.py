"""The production shells (driver, attempts, subtasks, channels, storage) on a virtual clock, sockets and files.

`simulated/` has doubles of these shells, and the rules that are broken on purpose. It goes once `jobs/` has them all.
"""

from __future__ import annotations

import pytest
from jobs.simulation import Simulation

_SEEDS = 15


@pytest.mark.timeout(900)
def test_runs_end_with_everything_out_once_and_in_order() -> None:
    """Processes and drivers are killed, messages lost, writes fail; there are savepoints, stops and changed edges."""
    reached: set[str] = set()
    for seed in range(_SEEDS):
        run = Simulation(seed)
        run.run()
        reached |= run.reached
    assert reached >= {"kills a subtask", "loses a message", "fails to write", "restores what was in flight"}
