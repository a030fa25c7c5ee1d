"""The pipeline topology under its failure schedule: nothing lost, doubled, corrupted or out of order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from topology import Findings, Schedule, SlowSink, build, validate

from pipeline.handle import JobHandle


def _kill_once(handle: JobHandle, wanted: Callable[[], bool], pick: str) -> threading.Thread:
    """Kill one worker process once `wanted`, from a thread of its own."""

    def run() -> None:
        poll = threading.Event()
        while not wanted():
            poll.wait(0.02)
        name = next(name for name in handle.processes() if name.startswith(pick))
        os.kill(handle.processes()[name], signal.SIGKILL)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("parallelism", "max_concurrent"), [(1, 1), (3, 1), (3, 3), pytest.param(5, 1, marks=pytest.mark.matrix)]
)
def test_the_failure_schedule_leaves_the_output_exact(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any, parallelism: int, max_concurrent: int
) -> None:
    schedule = Schedule(tmp_path, checkpoints=12)
    sink = SlowSink(0.001)
    pipeline = build(
        unique_name("job"),
        tmp_path / "checkpoints",
        sink,
        schedule,
        parallelism,
        max_concurrent=max_concurrent,
        interval=0.1,
    )
    handle = pipeline.run(spark=spark, timeout=200)
    completed = [row for row in handle.checkpoints() if row.status == "completed"]
    assert validate(sink.records, schedule.emitted()) == Findings(0, 0, 0, 0)
    assert handle.restarts == 5
    assert len(completed) >= 10


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "victim", ["count", "out", *(pytest.param(name, marks=pytest.mark.matrix) for name in ("numbers", "failing"))]
)
def test_a_killed_worker_leaves_the_output_exact(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any, victim: str
) -> None:
    schedule = Schedule(tmp_path, checkpoints=8, failures=0)
    sink = SlowSink(0.001)
    handle = build(unique_name("job"), tmp_path / "checkpoints", sink, schedule, 2, interval=0.1).start(spark=spark)
    killer = _kill_once(handle, lambda: schedule.completed() >= 3, victim)
    try:
        handle.wait(150)
    finally:
        handle.cancel()
    killer.join(10)
    assert validate(sink.records, schedule.emitted()) == Findings(0, 0, 0, 0)
    assert handle.restarts == 1
