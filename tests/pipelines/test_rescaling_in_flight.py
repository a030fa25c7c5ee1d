"""Checkpoints with records in flight, restored at another parallelism: what holds for all records.

A tour is fail or cancel, restore at another parallelism, take a checkpoint, and so on; see `rescaling.Tour`.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from rescaling import Tour, build, checkpoint_with, findings, rows_between
from rescaling_steps import PacedSink
from rescaling_topologies import TIMED, TIMED_TOPOLOGIES, TOPOLOGIES
from small_job import NEVER, failure_of

from checkpoint.counted import counted

Name = Callable[[str], str]


@pytest.fixture
def tour(tmp_path: Path, unique_name: Name, spark: Any) -> Callable[..., Tour]:
    def make(topology: str, slow: str = "sink") -> Tour:
        return Tour(unique_name("job"), TOPOLOGIES[topology], tmp_path, spark, slow)

    return make


# -- every kind of edge ---------------------------------------------------------------------------------------------


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(
    ("topology", "old", "new", "newest_"),
    [
        ("keyed", 4, 1, 3),
        ("two keyed hops", 1, 2, 3),
        ("rebalance", 3, 2, 3),
        ("rescale", 2, 3, 2),
        ("forward with keys", 3, 2, 3),
        ("forward", 2, 3, 1),
        ("broadcast", 2, 3, 2),
        ("custom", 3, 5, 3),
        ("union", 1, 2, 3),
        ("two inputs", 2, 3, 2),
        ("chaining", 3, 2, 3),
        ("side output", 2, 3, 2),
        ("another partitioner", 3, 2, 3),
        ("all to all", 2, 3, 2),
    ],
)
def test_nothing_in_flight_is_lost_doubled_or_out_of_order_after_a_failure_and_in_the_middle_of_a_drain(
    tour: Callable[..., Tour], topology: str, old: int, new: int, newest_: int
) -> None:
    job = tour(topology)
    job.until_full(old, fail=True)
    assert job.first_checkpoint(new).replaying
    assert findings(job, job.finish(newest_)) == []


@pytest.mark.matrix
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_nothing_is_lost_doubled_or_out_of_order_over_many_restores(tour: Callable[..., Tour], topology: str) -> None:
    job = tour(topology)
    job.until_full(4)
    assert job.first_checkpoint(1, fail=True).replaying
    job.until_full(2)
    assert job.first_checkpoint(3).replaying
    job.until_full(5, fail=True)
    job.until_full(3)
    assert findings(job, job.finish(2)) == []


@pytest.mark.parametrize(
    "topology",
    [one if one == "two inputs" else pytest.param(one, marks=pytest.mark.matrix) for one in TOPOLOGIES],
)
def test_with_a_slow_source_too(tour: Callable[..., Tour], topology: str) -> None:
    job = tour(topology, slow="source")
    job.until_full(2)
    job.first_checkpoint(3, fail=True)
    assert findings(job, job.finish(2)) == []


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(40))
def test_any_topology_at_any_parallelism(tour: Callable[..., Tour], seed: int) -> None:
    dice = random.Random(seed)
    topology = dice.choice(list(TOPOLOGIES))
    job = tour(topology, slow=dice.choice(["sink", "sink", "source"]))
    for _ in range(dice.randint(2, 5)):
        run = dice.choice([job.until_full, job.first_checkpoint])
        run(
            dice.randint(1, 5),
            fail=dice.random() < 0.5,
            alignment=dice.choice(["unaligned", "unaligned", 0.02, 0.3]),
            **dice.choice([NEVER, {"interval": 0.1}]),
            max_concurrent=dice.choice([1, 3]),
            retained=100,
        )
    assert findings(job, job.finish(dice.randint(1, 5))) == []


# -- replaying ------------------------------------------------------------------------------------------------------


def test_only_another_parallelism_and_a_checkpoint_taken_during_a_drain_make_a_restore_drain(
    tour: Callable[..., Tour],
) -> None:
    job = tour("two keyed hops")
    job.until_full(2)
    same = job.first_checkpoint(2)
    assert (same.replaying, same.in_flight_records > 0) == (False, True)
    assert job.first_checkpoint(3).replaying
    again = job.first_checkpoint(3)
    assert (again.replaying, again.in_flight_records > 0) == (True, True)
    assert findings(job, job.finish(3)) == []


# -- modes ----------------------------------------------------------------------------------------------------------


def test_an_unaligned_checkpoint_is_restored_by_an_aligned_job_and_the_other_way_round(
    tour: Callable[..., Tour],
) -> None:
    job = tour("two inputs")
    assert job.until_full(2).in_flight_records > 0
    assert job.first_checkpoint(3, alignment="aligned").in_flight_records == 0
    with job.running(2, alignment=0.05) as (_, pipeline, handle):
        assert checkpoint_with(pipeline, handle, [("count", "recount")]).in_flight_records > 0
    assert findings(job, job.finish(3, alignment="aligned")) == []


def test_an_unaligned_checkpoint_is_restored_at_least_once(tour: Callable[..., Tour]) -> None:
    job = tour("two inputs")
    assert job.until_full(2).in_flight_records > 0
    assert findings(job, job.finish(3, mode="at_least_once")) == []


def test_a_checkpoint_of_an_at_least_once_job_is_restored_unaligned_and_loses_nothing(
    tour: Callable[..., Tour],
) -> None:
    job = tour("keyed")
    assert job.first_checkpoint(2, mode="at_least_once").in_flight_records == 0
    assert job.until_full(3).in_flight_records > 0
    wrong = findings(job, job.finish(2))
    assert [one for one in wrong if one.startswith(("lost", "corrupted"))] == []


# -- event time -----------------------------------------------------------------------------------------------------


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(
    ("topology", "old", "between", "new"),
    [
        ("timers", 2, None, 3),
        ("timers", 3, 2, 5),
        pytest.param("timers", 4, None, 1, marks=pytest.mark.matrix),
        pytest.param("timers", 5, 3, 2, marks=pytest.mark.matrix),
        pytest.param("timers", 1, 2, 2, marks=pytest.mark.matrix),
        pytest.param("timers", 3, None, 3, marks=pytest.mark.matrix),
        ("timers, chaining", 2, 3, 2),
        pytest.param("timers, chaining", 3, None, 3, marks=pytest.mark.matrix),
        pytest.param("timers, chaining", 3, 2, 1, marks=pytest.mark.matrix),
    ],
)
def test_timers_fire_once_and_nothing_is_late_when_the_topic_falls_idle_right_after_the_checkpoint(
    tmp_path: Path, unique_name: Name, spark: Any, topology: str, old: int, between: int | None, new: int
) -> None:
    job = Tour(unique_name("job"), TIMED_TOPOLOGIES[topology], tmp_path, spark)

    with job.running(old) as (phase, pipeline, handle):
        # All that there ever was is read, and the end of it is in flight.
        while True:
            metadata = checkpoint_with(pipeline, handle, ())
            positions = [one.state["source"] for one in metadata.operator("numbers")]
            if {i for own in positions for _, i in own} == {TIMED}:
                break
    assert metadata.in_flight_records > 0
    if between is not None:
        assert job.first_checkpoint(between).in_flight_records > 0

    def fired() -> Counter[tuple[int, int]]:
        records = [record for record in PacedSink(phase).records if record["source"] == "timer"]
        return Counter((record["partition"], record["id"]) for record in records)

    by_clock = {(k, 1000 * i + 1): 1 for k in range(4) for i in range(TIMED)}
    by_watermark = {(k, 1000 * i + 500): 1 for k in range(4) for i in range(TIMED)}
    # The watermark is that of the last record: the timer behind it waits for the end.
    last = {(k, 1000 * (TIMED - 1) + 500) for k in range(4)}
    idle = {name: 1 for name in [*by_clock, *by_watermark] if name not in last}
    with job.running(new, last=True, interval=0.3) as (phase, _, handle):
        eventually(lambda: handle.failure is not None or fired() >= Counter(idle))
        assert handle.failure is None
        assert fired() == idle
        phase.end.touch()
        handle.wait(PATIENCE)
    assert fired() == {**by_clock, **by_watermark}
    assert findings(job, PacedSink(phase).records) == []


# -- what is refused ------------------------------------------------------------------------------------------------


def test_another_max_parallelism_is_refused(tour: Callable[..., Tour]) -> None:
    job = tour("keyed")
    job.until_full(2)
    other = build(job.name, job.topology, job.phase(3), max_parallelism=64)
    assert "was taken with max_parallelism 128" in failure_of(other, job.spark)


def test_records_of_an_edge_that_is_gone_are_an_error_and_can_be_dropped_once(
    tour: Callable[..., Tour], caplog: pytest.LogCaptureFixture
) -> None:
    job = tour("two keyed hops")
    checkpoint = job.until_full(2)
    rows = rows_between(checkpoint)
    lost = rows["count", "recount"]

    job.topology = TOPOLOGIES["keyed"]  # the same without its second hop
    message = failure_of(build(job.name, job.topology, job.phase(3)), job.spark, allow_unclaimed=True)
    assert (
        f"has {counted(lost, 'record')} in flight from 'count' to 'recount', an edge that the pipeline doesn't have"
        in message
    )
    assert f"ignore_in_flight={checkpoint.id}" in message

    ignoring = {"ignore_in_flight": checkpoint.id, "allow_unclaimed": True}
    with caplog.at_level(logging.WARNING), job.running(3, start=ignoring) as (_, pipeline, handle):
        later = checkpoint_with(pipeline, handle, job.topology.edges)
    (logged,) = [one.getMessage() for one in caplog.records if "without its in-flight data" in one.getMessage()]
    for (upstream, downstream), n in rows.items():
        assert f"{n} from {upstream!r} to {downstream!r}" in logged
    assert later.in_flight_records > 0

    output = job.finish(2)
    found = Counter((record["partition"], record["id"]) for record in output)
    assert set(found.values()) == {1}
    emitted = sum(int((job.folder / f"emitted-numbers-{k}").read_text()) for k in range(4))
    assert emitted - len(found) == sum(rows.values()), "only what was in flight in the first checkpoint is missing"
