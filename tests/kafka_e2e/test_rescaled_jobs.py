"""Running jobs that are rescaled, Kafka to Kafka: what a `read_committed` reader finds is exact, whatever was in flight
and whatever crashes meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from deadlines import PATIENCE
from kafka_job import EXACT, Stage, await_processed

from pipeline.testing import failpoints


@pytest.mark.parametrize(
    ("steps", "alignment"),
    [
        ((3, 1), "unaligned"),
        pytest.param((1, 4), "aligned", marks=pytest.mark.matrix),
        pytest.param((5, 2, 3), 0.05, marks=pytest.mark.matrix),
    ],
)
def test_a_job_that_is_rescaled_while_its_sink_is_slow_has_exact_output(
    stage: Stage, spark: Any, steps: tuple[int, ...], alignment: Any
) -> None:
    sink = stage.slow_sink(0.001)
    handle = stage.pipeline(sink=sink, source=stage.source(rate_limit=None), alignment=alignment).start(spark=spark)
    try:
        await_processed(handle, 100)
        for parallelism in steps:
            handle.rescale(parallelism, timeout=PATIENCE)
        handle.wait(PATIENCE)
    finally:
        handle.cancel()
    assert handle.restarts == 0
    told = [
        (f"{before} → {after}", one.what)
        for before, after, one in zip((2, *steps), steps, handle.rescales, strict=False)
    ]
    assert len(told) == len(steps)
    assert all(what.endswith(change) for change, what in told), told
    assert stage.findings() == EXACT


@pytest.mark.parametrize(
    "step",
    [
        "subtask.after_acknowledge",
        pytest.param("committer.mid_produce", marks=pytest.mark.matrix),
        pytest.param("committer.after_send_offsets", marks=pytest.mark.matrix),
        pytest.param("restore.in_flight", marks=pytest.mark.matrix),
    ],
)
def test_a_crash_in_the_middle_of_a_rescale_leaves_the_output_exact(stage: Stage, spark: Any, step: str) -> None:
    sink = stage.slow_sink(0.001)
    handle = stage.pipeline(sink=sink, source=stage.source(rate_limit=None)).start(spark=spark)
    asked: list[Exception | None] = []

    def rescale() -> None:
        try:
            handle.rescale(3, timeout=PATIENCE)
            asked.append(None)
        except Exception as error:
            asked.append(error)

    try:
        await_processed(handle, 100)
        with failpoints.crash(step) as point:
            thread = threading.Thread(target=rescale)
            thread.start()
            thread.join(PATIENCE)
            handle.wait(PATIENCE)
        assert point.fired
    finally:
        handle.cancel()
    assert len(asked) == 1
    assert stage.findings() == EXACT
