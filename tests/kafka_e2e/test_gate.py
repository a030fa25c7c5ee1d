"""Active backpressure in whole jobs: whatever slows the job down, no checkpoint spans more than it may, and the source
goes on once it can."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from deadlines import eventually
from kafka_job import EXACT, Stage, records

from pipeline.buffers import BufferConfig
from pipeline.handle import JobHandle
from pipeline.testing import failpoints
from sources import SequenceSource, Source

SPAN = 100
"""`max_span_records`; the sources could emit as much in a millisecond."""
MIB = 1024 * 1024
Make = Callable[..., tuple[Stage, Source]]


@pytest.fixture(params=["kafka", "sequence"])
def make_input(request: pytest.FixtureRequest, make_stage: Callable[..., Stage]) -> Make:
    """`make_input(2000)`: a stage, and a source of so many records that could go on as fast as it likes."""

    def make(n: int, max_span_records: int | None = SPAN) -> tuple[Stage, Source]:
        if request.param == "kafka":
            stage = make_stage(n)
            return stage, stage.source(rate_limit=None, max_span_records=max_span_records)
        stage = make_stage(0)
        stage.inputs = records(n)
        source = SequenceSource(n, partitions=2)
        source.max_span_records = max_span_records
        return stage, source

    return make


@pytest.fixture
def start(spark: Any) -> Iterator[Callable[..., JobHandle]]:
    """Starts a stage's job; what still runs at the end of the test is cancelled."""
    handles: list[JobHandle] = []

    def start(stage: Stage, **options: Any) -> JobHandle:
        handles.append(stage.pipeline(**options).start(spark=spark))
        return handles[-1]

    yield start
    for handle in handles:
        handle.cancel()


def sources_of(handle: JobHandle) -> list[dict[str, Any]]:
    """The metrics of the source subtasks."""
    return [values for name, values in handle.metrics()["subtasks"].items() if name.startswith("in")]


def reasons(handle: JobHandle) -> list[str]:
    """Why the gates that are closed are so."""
    return [reason for values in sources_of(handle) if (reason := values.get("sourceGateReason"))]


def completed(handle: JobHandle) -> int:
    return sum(row.status == "completed" for row in handle.checkpoints())


def assert_span_held(handle: JobHandle, most: int = SPAN) -> None:
    spans = [(row.id, row.span_records) for row in handle.checkpoints()]
    assert any(span for _, span in spans)
    assert [(id, span) for id, span in spans if span > most] == []


def assert_gates_opened(handle: JobHandle) -> None:
    """At the end of a job that has finished."""
    assert handle.status == "finished"
    assert reasons(handle) == []


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize("max_concurrent", [1, 2])
def test_a_slow_sink_gets_short_spans_from_first_to_last(
    make_input: Make, start: Callable[..., JobHandle], max_concurrent: int
) -> None:
    stage, source = make_input(1200)
    handle = start(stage, source=source, sink=stage.slow_sink(0.003), interval=0.3, max_concurrent=max_concurrent)
    handle.wait(300)
    assert_span_held(handle)
    assert_gates_opened(handle)
    assert any(values["sourceGateClosedMs"] > 0 for values in sources_of(handle))
    assert stage.findings() == EXACT


def test_a_sink_that_stalls_closes_the_gate_and_opens_it_when_it_goes_on(
    make_input: Make, start: Callable[..., JobHandle]
) -> None:
    stage, source = make_input(2000)
    sink = stage.slow_sink(0.0005)
    handle = start(stage, source=source, sink=sink, interval=0.3)
    eventually(lambda: completed(handle) >= 2)
    sink.hold()
    eventually(
        lambda: sum("checkpoints in progress are at their maximum of 1" in reason for reason in reasons(handle)) == 2
    )
    before = completed(handle)
    sink.release()
    handle.wait(300)
    assert completed(handle) > before
    assert_span_held(handle)
    assert_gates_opened(handle)
    assert stage.findings() == EXACT


@pytest.mark.sample(1 / 5)
def test_time_closes_the_gate_where_nothing_limits_records(make_input: Make, start: Callable[..., JobHandle]) -> None:
    stage, source = make_input(60_000, max_span_records=None)
    sink = stage.slow_sink(0.0)
    handle = start(stage, source=source, sink=sink, interval=0.2)
    eventually(lambda: handle.status == "running" and bool(sources_of(handle)))
    sink.hold()
    eventually(lambda: any("s used up" in reason for reason in reasons(handle)) or completed(handle) > 50)
    sink.release()
    handle.wait(300)
    assert_gates_opened(handle)
    assert stage.findings() == EXACT


def test_the_min_pause_is_no_time_to_read_on(make_input: Make, start: Callable[..., JobHandle]) -> None:
    """Triggers meet a closed gate here, time after time, and are answered."""
    stage, source = make_input(800)
    handle = start(stage, source=source, interval=0.1, min_pause=1.0)
    eventually(lambda: any("min pause" in reason for reason in reasons(handle)))
    handle.wait(300)
    assert_span_held(handle)
    assert_gates_opened(handle)
    assert stage.findings() == EXACT


def test_checkpoints_that_fail_leave_the_span_bounded_and_the_gate_open(
    make_input: Make, start: Callable[..., JobHandle]
) -> None:
    stage, source = make_input(1000)
    with failpoints.fail("snapshot.async_write", nth=9, times=3, error="disk full") as point:
        handle = start(stage, source=source, interval=0.2, tolerable_failures=10)
        handle.wait(300)
    failed = [row for row in handle.checkpoints() if row.status == "failed"]
    assert point.fired
    assert any("disk full" in (row.failure or "") for row in failed)
    assert handle.restarts == 0
    assert_span_held(handle)
    assert_gates_opened(handle)
    assert stage.findings() == EXACT


def test_a_slow_storage_closes_the_gate_for_its_time_only(make_input: Make, start: Callable[..., JobHandle]) -> None:
    stage, source = make_input(1000)
    with failpoints.stall("snapshot.async_write", 0.6, nth=5, times=6) as point:
        handle = start(stage, source=source, interval=0.2)
        eventually(lambda: len(reasons(handle)) > 0)
        handle.wait(300)
    assert point.fired
    assert_span_held(handle)
    assert_gates_opened(handle)
    assert stage.findings() == EXACT


def test_an_expired_checkpoint_says_who_held_it_up(make_input: Make, start: Callable[..., JobHandle]) -> None:
    stage, source = make_input(1000)
    options = {"interval": 0.2, "timeout": 1.0, "tolerable_failures": 1000}
    buffers = BufferConfig(debloat=False)  # else the source waits for room in its channels, with an open gate
    handle = start(stage, source=source, sink=(sink := stage.slow_sink(0.001)), buffers=buffers, **options)
    eventually(lambda: completed(handle) >= 2)
    sink.hold()
    parts = (
        "1 s after the trigger",
        "sum → out[",
        "has no barrier from",
        "bytes queued",
        "storage idle",
        "gate closed: in",
    )
    eventually(lambda: any(all(part in (row.failure or "") for part in parts) for row in handle.checkpoints()))
    sink.release()
    handle.wait(300)
    assert_gates_opened(handle)
    assert_span_held(handle, 2 * SPAN)
    assert stage.findings() == EXACT


def test_memory_stays_flat_while_the_sink_is_slow(make_input: Make, start: Callable[..., JobHandle]) -> None:
    """The source could fill gigabytes meanwhile."""
    stage, source = make_input(60_000, max_span_records=1000)
    handle = start(stage, source=source, sink=stage.slow_sink(0.001), interval=0.2)
    eventually(lambda: completed(handle) >= 1)
    processes = {name: psutil.Process(pid) for name, pid in handle.processes().items()}
    first = {name: process.memory_info().rss for name, process in processes.items()}
    most = dict(first)
    pause = threading.Event()
    while completed(handle) < 8:
        most = {name: max(rss, processes[name].memory_info().rss) for name, rss in most.items()}
        pause.wait(0.05)
    handle.cancel()
    grown = {name: (most[name] - first[name]) / MIB for name in first}
    assert max(grown.values()) < 64, grown
    assert_span_held(handle, 1000)
    findings = stage.findings()
    assert (findings.duplicated, findings.wrong, findings.disordered) == (0, 0, 0)
