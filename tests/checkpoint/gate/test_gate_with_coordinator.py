"""Gates, coordinator and barrier handler together, in virtual time: by time and limits, with all that may go wrong."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from virtual_job import HEARTBEAT, SINK_RATE, Job, Scenario

from checkpoint.coordination.coordinator_events import FailureReason

WINDOW = pytest.mark.parametrize("window", [False, True], ids=["by time", "window"])


def check(job: Job) -> None:
    """What holds in every scenario."""
    s = job.s
    for source in job.sources:
        assert source.longest_span <= job.span_seconds + 1e-6
        if s.max_span_records is not None:
            assert source.largest_span <= s.max_span_records
        held_back = s.timeout + s.min_pause + s.deletion * (s.max_concurrent + 1)
        assert source.longest_closed <= held_back + 3 * s.interval + 5 * HEARTBEAT, "closed for good"
    # A shortened span or a record limit may be over before the interval, and asks wait for it after a failure.
    assert job.longest_free <= s.interval + 5 * HEARTBEAT, "closed though nothing held the next checkpoint back"
    assert job.completed, "checkpoints complete"


def random_scenario(seed: int, **fixed: object) -> Scenario:
    rng = random.Random(seed)
    interval = rng.choice([1.0, 2.0, 5.0])
    storage = rng.choice([0.05, 0.2, 0.5]) * interval
    scenario = Scenario(
        interval=interval,
        min_pause=rng.choice([0.0, 0.0, 0.5, 1.0, 2.0]) * interval,
        max_concurrent=rng.randint(1, 3),
        timeout=rng.choice([10, 30]) * interval,
        duration=60 * interval,
        sources=rng.randint(1, 3),
        fetch_records=int(5 * interval),
        queue_seconds=rng.choice([0.2, 0.5]) * interval,
        storage=lambda r: storage * (0.8 + 0.4 * r.random()),
        jitter=rng.choice([0.0, 0.05]) * interval,
    )
    return replace(scenario, **fixed)  # type: ignore[arg-type]


def compare(scenario: Scenario, seed: int) -> tuple[Job, Job]:
    return Job(scenario, seed).run(), Job(replace(scenario, gate=False), seed).run()


@pytest.mark.parametrize("seed", range(8))
def test_a_healthy_job_loses_no_throughput_and_its_gate_never_closes(seed: int) -> None:
    scenario = random_scenario(seed)
    on, off = compare(replace(scenario, queue_seconds=0.2 * scenario.interval), seed)
    check(on)
    assert max(on.completed.values()) < on.s.interval, "the scenario is healthy"
    assert all(source.gate.statistics(on.now).closed_seconds == 0 for source in on.sources)
    assert on.processed >= 0.98 * off.processed
    assert not on.failures


@pytest.mark.parametrize("seed", range(8))
def test_a_sink_at_one_percent(seed: int) -> None:
    scenario = random_scenario(seed)
    job = Job(replace(scenario, fetch_rate=100 * SINK_RATE, queue_seconds=10 * scenario.interval), seed).run()
    check(job)
    assert any(source.gate.statistics(job.now).closed_seconds > 0 for source in job.sources)


@pytest.mark.parametrize("seed", range(6))
def test_a_sink_stalled_for_two_intervals(seed: int) -> None:
    scenario = random_scenario(seed)
    stall = (10 * scenario.interval, 12 * scenario.interval)
    on, off = compare(replace(scenario, stall=stall), seed)
    check(on)
    assert not on.failures
    lost = (off.processed - on.processed) / SINK_RATE
    assert lost <= scenario.interval + scenario.min_pause, "less is lost than the time to the next barrier"


@pytest.mark.parametrize("seed", range(6))
def test_slow_storage(seed: int) -> None:
    interval = random_scenario(seed).interval
    check(Job(random_scenario(seed, storage=lambda rng: interval * rng.choice([2, 5])), seed).run())


@pytest.mark.parametrize("seed", range(8))
def test_failing_checkpoints(seed: int) -> None:
    job = Job(random_scenario(seed, failing=0.4), seed).run()
    check(job)
    assert job.failures


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("overloaded", [False, True])
def test_lost_triggers_callbacks_heartbeats_and_asks(seed: int, overloaded: bool) -> None:
    scenario = random_scenario(seed, lost=0.2, max_span_records=random.Random(seed).choice([None, 40]))
    if overloaded:
        scenario = replace(scenario, queue_seconds=5 * scenario.interval, failing=0.2)
    check(Job(scenario, seed).run())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("deletion", [0.5, 2.0, 1000.0])
def test_slow_and_hung_deletions(seed: int, deletion: float) -> None:
    scenario = random_scenario(seed)
    job = Job(replace(scenario, deletion=deletion * scenario.interval), seed).run()
    # A hung deletion is given up after the timeout.
    job.s = replace(job.s, deletion=min(job.s.deletion, job.s.timeout))
    check(job)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("every", [1, 3])
def test_savepoints_neither_refill_spans_nor_delay_checkpoints(seed: int, every: int) -> None:
    scenario = random_scenario(seed)
    healthy = replace(scenario, queue_seconds=0.2 * scenario.interval)
    job = Job(replace(healthy, savepoint_every=every * scenario.interval), seed).run()
    check(job)
    assert job.savepoints > 5
    assert all(source.gate.statistics(job.now).closed_seconds == 0 for source in job.sources)


@pytest.mark.parametrize("seed", range(6))
def test_savepoints_of_an_overloaded_job_admit_no_more_data(seed: int) -> None:
    scenario = random_scenario(seed)
    savepoint_every, queue_seconds = 2 * scenario.interval, 5 * scenario.interval
    job = Job(replace(scenario, savepoint_every=savepoint_every, queue_seconds=queue_seconds), seed).run()
    check(job)
    assert job.savepoints > 1
    assert any(source.gate.statistics(job.now).closed_seconds > 0 for source in job.sources)


@pytest.mark.parametrize("seed", range(6))
def test_sources_near_their_record_limit_get_checkpoints_ahead_of_time(seed: int) -> None:
    """Each of two sources emits 50 records a second: its limit of 50 lasts a fifth of the interval."""
    scenario = Scenario(interval=5.0, max_concurrent=2, max_span_records=50, queue_seconds=0.4, fetch_records=5)
    on, off = compare(scenario, seed)
    check(on)
    assert len(on.completed) > 3 * scenario.duration / scenario.interval
    assert on.processed >= 0.98 * off.processed


# -- the experiment that this project began with ------------------------------------------------------------------

OVERLOADED = Scenario(
    interval=10,
    timeout=300,
    max_concurrent=2,
    duration=3000,
    sources=1,
    fetch_rate=600,
    fetch_records=100,
    queue_seconds=400,
)


@pytest.mark.parametrize("seed", range(1))
def test_an_overloaded_aligned_job_completes_with_the_gate_and_expires_without(seed: int) -> None:
    on, off = compare(OVERLOADED, seed)
    check(on)
    assert not on.failures
    assert len(on.completed) >= 40
    assert on.processed >= 0.99 * off.processed
    assert len(off.completed) <= 4
    assert off.failures.count(FailureReason.EXPIRED) >= 15


@pytest.mark.parametrize("seed", range(1))
def test_a_span_that_takes_longer_than_the_timeout_is_halved_until_checkpoints_complete(seed: int) -> None:
    """A span of 11 s is 660 s of work here, and the timeout is 300 s."""
    scenario = replace(OVERLOADED, fetch_rate=6000, fetch_records=300, queue_seconds=4000, duration=9000)
    halving, rigid = Job(scenario, seed).run(), Job(replace(scenario, halving=False), seed).run()
    assert all(source.longest_span <= halving.span_seconds + 1e-6 for source in halving.sources)
    late = [t for t in halving.completed_at if t > 3000]
    assert len(late) >= 10
    assert all(after - before < 8 * scenario.timeout for before, after in itertools.pairwise(late))
    assert not [t for t in rigid.completed_at if t > 600], "without halving every checkpoint expires, for ever"
