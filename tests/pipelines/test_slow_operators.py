"""Operators that take long: a barrier waits for one record, or one timer, at most; and what is said when it can't."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import Count, assert_exact, running

from pipeline import CheckpointConfig, JobHandle, KeyedOperator, Operator, Pipeline, RestartStrategy
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointStats
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]


def rows(handle: JobHandle, status: str) -> list[CheckpointStats]:
    return [row for row in handle.checkpoints() if row.status == status]


def kill(handle: JobHandle, name: str) -> None:
    os.kill(handle.processes()[name], signal.SIGKILL)


class Doze:
    """One second a record, until somebody says hurry."""

    def __init__(self, folder: Path) -> None:
        self._hurry = folder / "hurry"

    def doze(self) -> None:
        if not self._hurry.exists():
            time.sleep(1.0)

    def hurry(self) -> None:
        self._hurry.touch()


class SlowOperator(Operator):
    def __init__(self, pace: Doze) -> None:
        self._pace = pace

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        self._pace.doze()
        yield value


class PacedSink(TestingSink):
    """Calls `pace` before each record."""

    def __init__(self, pace: Callable[[], None]) -> None:
        super().__init__()
        self._pace = pace

    def create_writer(self, ctx: Any) -> Any:
        writer = super().create_writer(ctx)
        pace, write = self._pace, writer.write

        def paced_write(value: Any, context: Any) -> None:
            pace()
            write(value, context)

        writer.write = paced_write
        return writer


RECORDS = 3000


def slow_job(name: str, folder: Path, sink: TestingSink, operator: Operator, **checkpoints: Any) -> Pipeline:
    config = CheckpointConfig((folder / "checkpoints").as_uri(), **{"interval": 0.2, "timeout": 60.0, **checkpoints})
    p = Pipeline(name, checkpoints=config, restart=RestartStrategy.fixed_delay(attempts=3, delay=0.05))
    # Large enough that queues are full however many there are.
    source = TestingSource([{"id": i, "padding": "x" * 100} for i in range(RECORDS)])
    p.source("in", source).rebalance().process("slow", operator).rebalance().sink("out", sink)
    return p


class Pass(Operator):
    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value


@pytest.mark.parametrize(
    ("slow", "alignment"),
    [
        ("operator", "unaligned"),
        ("sink", 0.05),
        pytest.param("operator", 0.05, marks=pytest.mark.matrix),
        pytest.param("sink", "unaligned", marks=pytest.mark.matrix),
    ],
)
def test_a_barrier_waits_for_one_record_however_many_are_queued(
    tmp_path: Path, unique_name: Name, spark: Any, slow: str, alignment: Any
) -> None:
    pace = Doze(tmp_path)
    sink = PacedSink(pace.doze) if slow == "sink" else TestingSink()
    operator: Operator = SlowOperator(pace) if slow == "operator" else Pass()
    with running(slow_job(unique_name("job"), tmp_path, sink, operator, alignment=alignment), spark) as handle:
        eventually(lambda: sum(row.in_flight_records > 50 for row in rows(handle, "completed")) >= 3)
        full = [row for row in rows(handle, "completed") if row.in_flight_records > 50]
        for row in full:
            assert row.unaligned
            assert row.in_flight_bytes > 0
            # Each record that is queued would take a second.
            assert row.start_delay < row.in_flight_records / 4
        pace.hurry()
        kill(handle, "slow[0]" if slow == "operator" else "out[0]")
        handle.wait(PATIENCE)
    assert handle.restarts == 1
    assert [record["id"] for record in sink.records] == list(range(RECORDS))


def test_restored_data_that_still_wait_are_part_of_the_next_checkpoint_and_come_first_again(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    pace, sink = Doze(tmp_path), TestingSink()
    job = slow_job(unique_name("job"), tmp_path, sink, SlowOperator(pace), alignment="unaligned")
    with running(job, spark) as handle:
        eventually(lambda: any(row.in_flight_records > 50 for row in rows(handle, "completed")))
        for restarts in (1, 2):
            kill(handle, "slow[0]")
            eventually(lambda: handle.restarts == restarts, PATIENCE)  # noqa: B023
            last = rows(handle, "completed")[-1].id
            eventually(lambda: sum(row.id > last for row in rows(handle, "completed")) >= 2, PATIENCE)  # noqa: B023
            # A few seconds are a few records: most of them were restored.
            assert all(row.in_flight_records > 25 for row in rows(handle, "completed") if row.id > last)
        pace.hurry()
        kill(handle, "in[0]")
        handle.wait(PATIENCE)
    assert handle.restarts == 3
    assert [record["id"] for record in sink.records] == list(range(RECORDS))


BURSTS, BURST = 15, 150


def burst(value: dict[str, Any]) -> Iterable[Any]:
    """One record becomes many, little by little: they are sent on while the record is being processed."""
    for i in range(BURST):
        time.sleep(0.003)
        yield {"id": value["id"] * BURST + i, "key": f"k{i % 7}", "padding": "x" * 100}


def test_what_arrives_in_front_of_a_late_barrier_is_captured(tmp_path: Path, unique_name: Name, spark: Any) -> None:
    """The barrier of one source comes at once, that of the other waits for a record whose output goes on arriving."""
    prompt = TestingSource([TestingSource.PAUSE()], directory=tmp_path / "prompt")
    late = TestingSource([{"id": i} for i in range(BURSTS)])
    config = CheckpointConfig((tmp_path / "checkpoints").as_uri(), interval=0.1, tolerable_failures=100)
    p = Pipeline(unique_name("job"), checkpoints=config, restart=RestartStrategy.fixed_delay(attempts=10, delay=0.05))
    sink = TestingSink()
    both = p.source("prompt", prompt).union(p.source("late", late).flat_map(burst))
    both.key_by("key").process("count", Count()).sink("out", sink)
    with running(p, spark) as handle:
        for restarts in (1, 2, 3):
            known = {row.id for row in handle.checkpoints()}
            eventually(
                lambda: sum(r.in_flight_records > 0 and r.id not in known for r in rows(handle, "completed")) >= 1,  # noqa: B023
                PATIENCE,
            )
            kill(handle, "count → out[0]")
            eventually(lambda: handle.restarts == restarts, PATIENCE)  # noqa: B023
        prompt.release()
        handle.wait(PATIENCE)
    assert handle.restarts == 3
    assert_exact(sink, [record for i in range(BURSTS) for record in burst({"id": i})])


def test_an_expired_aligned_checkpoint_says_where_its_barrier_waits_behind_data(
    tmp_path: Path, unique_name: Name, spark: Any
) -> None:
    pace = Doze(tmp_path)
    job = slow_job(
        unique_name("job"),
        tmp_path,
        sink := TestingSink(),
        SlowOperator(pace),
        alignment="aligned",
        timeout=2.5,
        tolerable_failures=100,
    )
    with running(job, spark) as handle:
        eventually(lambda: any("queued towards" in (row.failure or "") for row in rows(handle, "failed")))
        said = next(row.failure or "" for row in rows(handle, "failed") if "queued towards" in (row.failure or ""))
        assert "the barrier of in[0] is still queued towards slow[0]" in said
        assert "slow[0] has no barrier from" in said
        assert "bytes queued" in said
        assert "storage idle" in said
        pace.hurry()
        handle.wait(PATIENCE)
    assert [record["id"] for record in sink.records] == list(range(RECORDS))
    assert not any(row.unaligned or row.in_flight_records for row in handle.checkpoints())


class Alarms(KeyedOperator):
    """Each record sets a hundred timers of its key, which say so when they fire."""

    def process(self, value: dict[str, Any], ctx: Any) -> None:
        for at in range(value["first"], value["first"] + TIMERS_A_RECORD):
            ctx.timer(at)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield [ctx.key, timestamp]


TIMERS_A_RECORD = 100
ALARM_KEYS = 50


@pytest.mark.parametrize(
    ("timers", "seconds_per_record"),
    [(40_000, 0.0001), pytest.param(1_000_000, 0.0, marks=pytest.mark.matrix)],
)
def test_a_watermark_that_many_timers_are_due_at_is_interrupted_by_barriers_and_no_timer_fires_twice(
    tmp_path: Path, unique_name: Name, spark: Any, timers: int, seconds_per_record: float
) -> None:
    inputs = [{"key": f"k{i % ALARM_KEYS}", "first": i * TIMERS_A_RECORD} for i in range(timers // TIMERS_A_RECORD)]
    source = TestingSource([*inputs, TestingSource.PAUSE()], directory=tmp_path / "source")
    sink = PacedSink(partial(time.sleep, seconds_per_record))
    config = CheckpointConfig((tmp_path / "checkpoints").as_uri(), interval=0.2, tolerable_failures=100)
    p = Pipeline(unique_name("job"), checkpoints=config, restart=RestartStrategy.fixed_delay(attempts=3, delay=0.05))
    p.source("in", source).key_by("key").process("alarms", Alarms()).rebalance().sink("out", sink)

    def in_last() -> int:
        return len(rows(handle, "completed"))

    with running(p, spark) as handle:
        source.wait_until_paused(PATIENCE)
        handle.checkpoint(PATIENCE)
        source.release()  # the input ends, and event time with it: all timers are due
        eventually(lambda: len(sink.records) > 0)
        before = in_last()
        eventually(lambda: in_last() >= before + 2)
        fired = len(sink.records)
        kill(handle, "alarms[0]")
        handle.wait(400)
    assert 0 < fired < timers
    assert handle.restarts == 1
    expected = sorted([one["key"], at] for one in inputs for at in range(one["first"], one["first"] + TIMERS_A_RECORD))
    assert sorted(sink.records) == expected
