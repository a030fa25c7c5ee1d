"""Long randomised runs (`make stress`): workers of any topology killed at random moments, in every alignment, while
checkpoints expire and storage fails.

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
from topology import EXACT, Schedule, SlowSink, build, validate

from pipeline.testing import failpoints

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
        shape = rng.choice(["pipeline", "multi-input", "union", "broadcast"])
        parallelism, max_concurrent = rng.choice([1, 2, 3]), rng.choice([1, 3])
        alignment = rng.choice(["unaligned", "unaligned", "aligned", 0.001, 0.05, 1.0])
        what = f"round {number} of WEIR_STRESS_SEED={SEED}: {shape}, {parallelism}, {alignment}, {max_concurrent}"
        print(what)
        folder = tmp_path / str(number)
        folder.mkdir()
        schedule, sink = Schedule(folder, checkpoints=25, failures=0), SlowSink(rng.choice([0.0, 0.001, 0.003]))
        pipeline = build(
            unique_name(f"round-{number}"),
            folder / "checkpoints",
            sink,
            schedule,
            parallelism,
            shape,
            interval=rng.choice([0.05, 0.1, 0.25]),
            max_concurrent=max_concurrent,
            alignment=alignment,
            timeout=rng.choice([60.0, 60.0, 1.0]),
            tolerable_failures=100_000,
        )
        if rng.random() < 0.5:
            failpoints.fail("snapshot.channel_state", nth=rng.randint(1, 20), times=rng.randint(1, 10))
            failpoints.stall("snapshot.async_write", rng.uniform(0.1, 1.5), nth=rng.randint(1, 40), times=3)
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
            handle.wait(300)
        finally:
            handle.cancel()
        failpoints.clear()
        assert validate(sink.records, schedule.emitted()) == EXACT, what
