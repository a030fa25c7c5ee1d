"""Long randomised runs (`make stress`): a worker killed at random moments, round after round, on one checkpoint folder.

WEIR_STRESS_SEED repeats the choices of a run (not the timing of threads); WEIR_STRESS_ROUNDS sets its length.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from topology import Findings, Schedule, SlowSink, build, validate

SEED = int(os.environ.get("WEIR_STRESS_SEED", random.SystemRandom().randrange(2**32)))
ROUNDS = int(os.environ.get("WEIR_STRESS_ROUNDS", 20))


@pytest.mark.stress
@pytest.mark.timeout(7200)
def test_workers_killed_at_random_moments_leave_the_output_exact(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any
) -> None:
    print(f"WEIR_STRESS_SEED={SEED}")
    rng = random.Random(SEED)
    for number in range(ROUNDS):
        parallelism, max_concurrent = rng.choice([1, 2, 3]), rng.choice([1, 3])
        folder = tmp_path / str(number)
        folder.mkdir()
        schedule, sink = Schedule(folder, checkpoints=25, failures=0), SlowSink(0.001)
        pipeline = build(
            unique_name(f"round-{number}"),
            folder / "checkpoints",
            sink,
            schedule,
            parallelism,
            interval=0.1,
            max_concurrent=max_concurrent,
        )
        handle = pipeline.start(spark=spark)
        pause = threading.Event()
        for _ in range(rng.randint(1, 4)):
            pause.wait(rng.uniform(0.2, 2.5))
            pids = [pid for _, pid in sorted(handle.processes().items())]
            if handle.status == "running" and pids:
                try:
                    os.kill(rng.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue  # it has left meanwhile
        try:
            handle.wait(180)
        finally:
            handle.cancel()
        findings = validate(sink.records, schedule.emitted())
        assert findings == Findings(0, 0, 0, 0), f"round {number} of WEIR_STRESS_SEED={SEED}"
