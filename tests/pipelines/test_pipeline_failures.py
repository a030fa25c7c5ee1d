"""The topologies under their failure schedule, in every alignment and mode: nothing lost, doubled, corrupted or out of
order."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from topology import EXACT, Schedule, Shape, SlowSink, build, validate

from pipeline.handle import JobHandle
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointStats

Name = Callable[[str], str]
Alignment = str | float
Row = tuple[Shape, int, Alignment, int]
"""Shape, parallelism, alignment, max concurrent."""

ALIGNMENTS: tuple[Alignment, ...] = ("unaligned", "aligned", 0.001, 0.05, 1.0)
ROWS: tuple[Row, ...] = (
    ("pipeline", 1, "unaligned", 1),
    ("pipeline", 3, 0.05, 3),
    ("pipeline", 5, "unaligned", 3),
    ("multi-input", 1, 1.0, 3),
    ("multi-input", 3, "unaligned", 1),
    ("union", 1, 0.001, 1),
    ("union", 3, "aligned", 3),
    ("broadcast", 2, "unaligned", 3),
)
"""Each alignment, shape, parallelism and number of concurrent checkpoints at least once."""
MORE_ROWS: tuple[Row, ...] = (
    ("pipeline", 3, "aligned", 1),
    ("pipeline", 5, 0.001, 1),
    ("pipeline", 3, 1.0, 3),
    ("multi-input", 3, 0.001, 3),
    ("multi-input", 5, 0.05, 1),
    ("multi-input", 5, "aligned", 3),
    ("multi-input", 5, "unaligned", 3),
    ("union", 5, "unaligned", 3),
    ("union", 3, 0.05, 1),
    ("union", 5, 1.0, 1),
    ("broadcast", 3, "unaligned", 1),
    ("broadcast", 3, 0.05, 3),
    ("broadcast", 3, "aligned", 3),
)
ALL_ROWS: tuple[Row, ...] = tuple(
    itertools.product(("pipeline", "multi-input", "union", "broadcast"), (1, 3, 5), ALIGNMENTS, (1, 3))
)


def table() -> list[Any]:
    """Those for everybody, those for CI, and all others for long runs."""
    rest = [row for row in ALL_ROWS if row not in (*ROWS, *MORE_ROWS)]
    return [
        *ROWS,
        *(pytest.param(*row, marks=pytest.mark.matrix) for row in MORE_ROWS),
        *(pytest.param(*row, marks=pytest.mark.stress) for row in rest),
    ]


def completed(handle: JobHandle) -> list[CheckpointStats]:
    return [row for row in handle.checkpoints() if row.status == "completed"]


def kill_once(handle: JobHandle, wanted: Callable[[], bool], pick: str) -> threading.Thread:
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


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(("shape", "parallelism", "alignment", "max_concurrent"), table())
def test_the_failure_schedule_leaves_the_output_exact(
    tmp_path: Path,
    unique_name: Name,
    spark: Any,
    shape: Shape,
    parallelism: int,
    alignment: Alignment,
    max_concurrent: int,
) -> None:
    schedule, sink = Schedule(tmp_path, checkpoints=12), SlowSink(0.001)
    job = build(
        unique_name("job"),
        tmp_path / "checkpoints",
        sink,
        schedule,
        parallelism,
        shape,
        alignment=alignment,
        max_concurrent=max_concurrent,
        interval=0.1,
    )
    handle = job.run(spark=spark, timeout=300)
    assert validate(sink.records, schedule.emitted()) == EXACT
    assert handle.restarts == 5
    done = completed(handle)
    assert len(done) >= 10
    if alignment == "aligned":
        assert not any(row.unaligned or row.in_flight_records for row in done)
    elif alignment != 1.0:  # a second is longer than most of these checkpoints take
        assert any(row.unaligned and row.in_flight_records > 0 and row.in_flight_bytes > 0 for row in done)


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    ("shape", "parallelism"),
    [
        ("multi-input", 3),
        pytest.param("pipeline", 3, marks=pytest.mark.matrix),
        pytest.param("union", 5, marks=pytest.mark.matrix),
    ],
)
def test_at_least_once_loses_nothing_under_the_failure_schedule(
    tmp_path: Path, unique_name: Name, spark: Any, shape: Shape, parallelism: int
) -> None:
    schedule, sink = Schedule(tmp_path, checkpoints=12), SlowSink(0.001)
    folder = tmp_path / "checkpoints"
    options: dict[str, Any] = {"mode": "at_least_once", "interval": 0.1}
    handle = build(unique_name("job"), folder, sink, schedule, parallelism, shape, **options).run(
        spark=spark, timeout=300
    )
    findings = validate(sink.records, schedule.emitted())
    assert (findings.lost, findings.corrupted) == (0, 0)
    assert handle.restarts == 5
    done = completed(handle)
    assert len(done) >= 10
    assert not any(row.unaligned or row.in_flight_records for row in done)


KILLS: tuple[tuple[Shape, Alignment, str], ...] = (
    ("pipeline", "unaligned", "count"),
    ("multi-input", "unaligned", "join three"),
    ("union", 0.05, "out"),
)
"""Shape, alignment, victim."""
MORE_KILLS: tuple[tuple[Shape, Alignment, str], ...] = (
    ("pipeline", "unaligned", "numbers"),
    ("pipeline", "aligned", "failing"),
    ("pipeline", 0.05, "out"),
    ("multi-input", "unaligned", "second"),
    ("multi-input", "aligned", "join two"),
    ("multi-input", 0.05, "third"),
    ("union", "unaligned", "third"),
    ("union", "aligned", "count"),
    ("broadcast", "unaligned", "announce"),
    ("broadcast", "aligned", "elements"),
    ("broadcast", 0.05, "announce"),
)


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(
    ("shape", "alignment", "victim"),
    [*KILLS, *(pytest.param(*row, marks=pytest.mark.matrix) for row in MORE_KILLS)],
)
def test_a_killed_worker_leaves_the_output_exact(
    tmp_path: Path, unique_name: Name, spark: Any, shape: Shape, alignment: Alignment, victim: str
) -> None:
    schedule, sink = Schedule(tmp_path, checkpoints=8, failures=0), SlowSink(0.001)
    options: dict[str, Any] = {"alignment": alignment, "interval": 0.1}
    job = build(unique_name("job"), tmp_path / "checkpoints", sink, schedule, 2, shape, **options)
    handle = job.start(spark=spark)
    killer = kill_once(handle, lambda: schedule.completed() >= 3, victim)
    try:
        handle.wait(300)
    finally:
        handle.cancel()
    killer.join(60)
    assert validate(sink.records, schedule.emitted()) == EXACT
    assert handle.restarts == 1
