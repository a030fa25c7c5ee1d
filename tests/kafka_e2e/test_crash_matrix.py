"""Workers killed at every step of the source, the sink and the commit: what a `read_committed` reader finds is exact
over all records, in order for each key, and no transaction is left open.

The rows of a table share one job, which goes on from one crash to the next.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import kafka_driver
import pytest
from deadlines import PATIENCE
from kafka_job import EXACT, Stage, await_processed
from small_job import running
from struck_job import SPAN, Jobs, Step, StruckJob

from pipeline import JobFailed, RestartStrategy
from pipeline.testing import KafkaBroker, failpoints

SOURCE = (
    Step("source.before_assign", nth=1, at_start=True),
    Step("source.after_assign", nth=1, at_start=True),
    Step("source.after_poll"),
    Step("source.before_snapshot"),
    Step("source.after_snapshot"),
    Step("source.before_pause", burst=6 * SPAN),
    Step("source.before_resume", burst=6 * SPAN),
    Step("source.before_group_commit"),
    Step("source.after_group_commit"),
    Step("source.partition_found", nth=1, new_partition=True),
)
WRITER = (
    Step("sink.before_seal"),
    Step("sink.after_seal"),
    Step("sink.before_flush"),
    Step("sink.after_flush"),
    Step("snapshot.async_write"),
    Step("subtask.after_acknowledge"),
)
COMMITTER = (
    Step("committer.before_init", at_start=True),
    Step("committer.after_init", at_start=True),
    Step("committer.after_read", at_start=True),
    Step("committer.after_settle", at_start=True),
    Step("committer.before_commit"),
    Step("committer.before_transaction"),
    Step("committer.mid_produce"),
    Step("committer.after_produce"),
    Step("committer.after_send_offsets"),
    Step("committer.after_owner_check"),
    Step("committer.after_end"),
    Step("committer.after_transaction"),
    Step("committer.between_transactions"),
    Step("committer.after_commit"),
    Step("committer.before_notification"),
    Step("committer.before_abort", nth=1, fails_at="committer.mid_produce"),
    Step("committer.after_abort", nth=1, fails_at="committer.after_send_offsets"),
)
STEPS = SOURCE + WRITER + COMMITTER


@pytest.fixture(autouse=True)
def _no_failpoint_outlives_its_test() -> None:
    """Here they live as long as the job that they are armed for."""


@pytest.fixture(scope="module")
def jobs(kafka: KafkaBroker, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    def make(**kind: Any) -> StruckJob:
        name = uuid.uuid4().hex[:8]
        folder = tmp_path_factory.mktemp("job") / "chk"
        stage = Stage(kafka, f"matrix-{name}", f"matrix-in-{name}", f"matrix-out-{name}", folder)
        stage.create_topics(2)
        steps = AT_LEAST_ONCE if kind.get("delivery") == "at_least_once" else STEPS
        return StruckJob(stage, spark, steps, **kind)

    jobs = Jobs(make)
    yield jobs
    jobs.finish()
    failpoints.clear()


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(
    ("max_concurrent", "step"),
    [pytest.param(2, step, id=f"{step}-2") for step in STEPS]
    + [pytest.param(1, step, id=f"{step}-1", marks=pytest.mark.matrix) for step in STEPS],
)
def test_a_worker_killed_at_any_step_leaves_the_output_exact(jobs: Jobs, max_concurrent: int, step: Step) -> None:
    with jobs.running(2, restarts=True, max_concurrent=max_concurrent) as job:
        job.strike(step)
        assert job.findings() == EXACT


AT_LEAST_ONCE = (
    Step("sink.before_flush"),
    Step("sink.mid_flush"),
    Step("sink.after_flush"),
    Step("subtask.after_acknowledge"),
    Step("source.after_poll"),
)


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(
    ("step", "max_concurrent"),
    [
        pytest.param(step, 1, id=str(step), marks=() if "flush" in step.name else pytest.mark.matrix)
        for step in AT_LEAST_ONCE
    ]
    + [pytest.param(step, 2, id=f"{step}-2", marks=pytest.mark.full) for step in AT_LEAST_ONCE],
)
def test_with_at_least_once_a_worker_killed_at_any_step_loses_nothing(
    jobs: Jobs, step: Step, max_concurrent: int
) -> None:
    with jobs.running(2, restarts=True, max_concurrent=max_concurrent, delivery="at_least_once") as job:
        job.strike(step)
        findings = job.findings()
    assert (findings.lost, findings.wrong) == (0, 0)


CHANGES = [(2, 1), (1, 3), (3, 2), (2, 3), (3, 1), (1, 2)]
"""Parallelism before and after a crash; each begins where the one before has ended."""
IN_TEST = ("committer.after_init", "committer.mid_produce", "committer.between_transactions")


def rescaled_rows() -> list[Any]:
    rows = []
    for max_concurrent, mark in ((2, pytest.mark.matrix), (1, pytest.mark.full)):
        for i, step in enumerate(STEPS):
            before, after = CHANGES[(i + max_concurrent) % len(CHANGES)]
            marks = () if max_concurrent == 2 and step.name in IN_TEST else mark
            id = f"{step}-{max_concurrent}-from {before} to {after}"
            rows.append(pytest.param(max_concurrent, step, before, after, id=id, marks=marks))
    return rows


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(("max_concurrent", "step", "before", "after"), rescaled_rows())
def test_a_crash_at_any_step_and_another_parallelism_leave_the_output_exact(
    jobs: Jobs, max_concurrent: int, step: Step, before: int, after: int
) -> None:
    """What is left to commit lies with other subtasks than those that have prepared it."""
    with jobs.running(before, restarts=False, max_concurrent=max_concurrent) as job:
        job.strike_and_rescale(step, after)
        assert job.findings() == EXACT


# -- steps that a job comes to once ----------------------------------------------------------------------------------

NO_RESTART = RestartStrategy.none()


@pytest.mark.parametrize(
    ("step", "max_concurrent"),
    [
        ("committer.mid_settle", 2),
        pytest.param("committer.before_settle", 1, marks=pytest.mark.matrix),
        pytest.param("committer.before_settle", 2, marks=pytest.mark.full),
        pytest.param("committer.mid_settle", 1, marks=pytest.mark.full),
    ],
)
def test_a_crash_while_a_first_start_writes_its_markers_leaves_the_output_exact(
    stage: Stage, spark: Any, step: str, max_concurrent: int
) -> None:
    with failpoints.crash(step, nth=2) as point:
        handle = stage.pipeline(max_concurrent=max_concurrent).run(spark=spark, timeout=PATIENCE)
    assert point.fired
    assert handle.restarts == 1
    assert stage.findings() == EXACT


@pytest.mark.parametrize(
    ("step", "max_concurrent"),
    [
        ("committer.before_settle", 2),
        pytest.param("committer.mid_settle", 1, marks=pytest.mark.matrix),
        pytest.param("committer.before_settle", 1, marks=pytest.mark.full),
        pytest.param("committer.mid_settle", 2, marks=pytest.mark.full),
    ],
)
def test_a_crash_while_new_owners_write_their_markers_leaves_the_output_exact(
    stage: Stage, spark: Any, step: str, max_concurrent: int
) -> None:
    """A third subtask comes in while others take over what was left open in the middle of a commit."""
    with failpoints.crash("committer.after_send_offsets", nth=5), pytest.raises(JobFailed):
        stage.pipeline(max_concurrent=max_concurrent, restart=NO_RESTART).run(spark=spark, timeout=PATIENCE)
    with failpoints.crash(step, subtask=2) as point:
        handle = stage.pipeline(max_concurrent=max_concurrent, parallelism=3).run(spark=spark, timeout=PATIENCE)
    assert point.fired
    assert handle.restarts == 1
    assert stage.findings() == EXACT


@pytest.mark.parametrize(
    ("parallelism", "max_concurrent"),
    [
        (2, 1),
        pytest.param(3, 2, marks=pytest.mark.matrix),
        pytest.param(2, 2, marks=pytest.mark.full),
        pytest.param(3, 1, marks=pytest.mark.full),
    ],
)
def test_a_crash_where_a_partition_ends_leaves_the_output_exact(
    stage: Stage, spark: Any, parallelism: int, max_concurrent: int
) -> None:
    with failpoints.crash("source.partition_ended") as point, pytest.raises(JobFailed):
        stage.pipeline(max_concurrent=max_concurrent, restart=NO_RESTART).run(spark=spark, timeout=PATIENCE)
    assert point.fired
    stage.pipeline(max_concurrent=max_concurrent, parallelism=parallelism).run(spark=spark, timeout=PATIENCE)
    assert stage.findings() == EXACT


@pytest.mark.parametrize(
    ("parallelism", "max_concurrent"),
    [
        pytest.param(1, 1, marks=pytest.mark.matrix),
        pytest.param(3, 2, marks=pytest.mark.full),
    ],
)
def test_a_crash_where_a_consumer_pauses_leaves_the_output_exact(
    make_stage: Callable[..., Stage], spark: Any, parallelism: int, max_concurrent: int
) -> None:
    """It pauses once as much is delivered as pays for what it throws away: ten times what it fetches ahead."""
    stage = make_stage()
    stage.produce_padded(220, 100_000)
    source = stage.source(end=None, rate_limit=None, max_span_records=50, fetch_budget=4 << 20)
    job = stage.pipeline(source=source, parallelism=1, restart=NO_RESTART, max_concurrent=max_concurrent)
    with (
        failpoints.hold("snapshot.async_write", times=10, timeout=PATIENCE, asleep=True) as checkpoints,
        failpoints.crash("source.before_client_pause") as point,
        running(job, spark) as handle,
    ):
        await_processed(handle, 220)
        checkpoints.wake()  # none completes any more, so that the gate closes and stays so
        stage.produce(200)
        point.wait(PATIENCE)
        with pytest.raises(JobFailed):
            handle.wait(PATIENCE)
    stage.pipeline(parallelism=parallelism, max_concurrent=max_concurrent).run(spark=spark, timeout=PATIENCE)
    assert stage.findings() == EXACT


# -- the driver is killed --------------------------------------------------------------------------------------------


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    "step", ["coordinator.before_metadata", pytest.param("coordinator.after_metadata", marks=pytest.mark.matrix)]
)
@pytest.mark.parametrize(
    ("after", "max_concurrent"),
    [
        (2, 1),
        pytest.param(2, 2, marks=pytest.mark.matrix),
        pytest.param(1, 2, marks=pytest.mark.matrix),
        pytest.param(3, 1, marks=pytest.mark.full),
    ],
)
def test_a_killed_driver_that_is_started_again_leaves_the_output_exact(
    stage: Stage, step: str, after: int, max_concurrent: int
) -> None:
    options = {"max_concurrent": max_concurrent}
    first = kafka_driver.start(stage, pipeline={"parallelism": 2, **options}, crash=step, nth=4)
    first.communicate(timeout=PATIENCE)
    assert first.returncode == -signal.SIGKILL
    again = kafka_driver.start(stage, pipeline={"parallelism": after, **options})
    assert kafka_driver.end(again)["status"] == "finished"
    assert stage.findings() == EXACT
