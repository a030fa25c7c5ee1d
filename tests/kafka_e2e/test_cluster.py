"""Three brokers, and what happens to some of them, or all, under a running job.

What a `read_committed` reader finds is exact over all records, in order for each key, and no transaction is left open.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from deadlines import eventually
from kafka_job import EXACT, Stage

from pipeline import RestartStrategy
from pipeline.handle import JobHandle
from pipeline.testing import KafkaCluster, failpoints

RATE = 400
"""Records/s: reading the input takes ten seconds, so that some of it is read before the trouble and some after it."""
PATIENT = RestartStrategy.fixed_delay(attempts=50, delay=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster.start() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _all_brokers_run_again(cluster: KafkaCluster) -> Iterator[None]:
    yield
    cluster.resume()
    if dead := cluster.dead():
        cluster.restart(*dead)


@pytest.fixture
def stage(make_stage: Callable[..., Stage], cluster: KafkaCluster) -> Stage:
    """4,000 records in two partitions."""
    return make_stage(4000, broker=cluster)


def completed(handle: JobHandle) -> int:
    return sum(row.status == "completed" for row in handle.checkpoints())


def await_checkpoints(handle: JobHandle, more: int) -> None:
    """Wait until so many more have completed, or the job has finished."""
    goal = completed(handle) + more

    def over() -> bool:
        assert handle.status != "failed", handle.failure
        return completed(handle) >= goal or handle.status == "finished"

    try:
        eventually(over)
    except AssertionError as error:
        raise AssertionError(f"{handle.status}, {handle.start_phases}, {handle.metrics()['waits']}") from error


@contextmanager
def running(stage: Stage, spark: Any, **options: Any) -> Iterator[JobHandle]:
    """The job: when the block starts, it has had two checkpoints and reads on; when it is left, it has finished."""
    defaults: dict[str, Any] = {"source": stage.source(rate_limit=RATE), "interval": 0.5}
    handle = stage.pipeline(**{**defaults, **options}).start(spark=spark)
    try:
        await_checkpoints(handle, 2)
        assert handle.status == "running"
        yield handle
        handle.wait(300)
    finally:
        handle.cancel()
    check(stage)


def check(stage: Stage) -> None:
    # The markers that end the last transactions may be on their way to a broker that has just come back.
    eventually(lambda: stage.findings().open_transactions == 0)
    assert stage.findings() == EXACT


def coordinator(stage: Stage, of: str, subtask: int = 0) -> tuple[str, int]:
    """The partition of Kafka's own whose leader coordinates an owner of the sink."""
    cluster, name = stage.broker, f"{stage.name}-out-{subtask}"
    assert isinstance(cluster, KafkaCluster)
    if of == "group":
        return cluster.coordinator_partition(group=name)
    return cluster.coordinator_partition(transactional_id=name)


def partition(stage: Stage, of: str) -> tuple[str, int]:
    """What the trouble is to come to."""
    topics = {"source": stage.source_topic, "sink": stage.out_topic}
    return (topics[of], 0) if of in topics else coordinator(stage, of)


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    "of",
    [
        "sink",
        pytest.param("source", marks=pytest.mark.matrix),
        pytest.param("group", marks=pytest.mark.full),
        pytest.param("transaction", marks=pytest.mark.full),
    ],
)
def test_the_job_goes_on_when_a_leader_is_killed(stage: Stage, cluster: KafkaCluster, spark: Any, of: str) -> None:
    with running(stage, spark) as handle:
        node = cluster.await_leader(*partition(stage, of))
        cluster.kill(node)
        cluster.await_leader(*partition(stage, of), other_than=node)
        await_checkpoints(handle, 2)
        cluster.restart(node)
    assert handle.restarts == 0


@pytest.mark.parametrize(
    ("of", "step"),
    [
        ("group", "committer.after_produce"),
        pytest.param("transaction", "committer.after_owner_check", marks=pytest.mark.matrix),
        *(
            pytest.param(of, step, marks=pytest.mark.full)
            for of, step in [
                ("transaction", "committer.after_produce"),
                ("group", "committer.after_send_offsets"),
                ("sink", "committer.after_send_offsets"),
            ]
        ),
    ],
)
def test_the_job_goes_on_when_a_leader_is_killed_in_the_middle_of_a_transaction(
    stage: Stage, cluster: KafkaCluster, spark: Any, of: str, step: str
) -> None:
    with failpoints.hold(step, subtask=0, nth=4) as point, running(stage, spark) as handle:
        point.wait()
        node = cluster.await_leader(*partition(stage, of))
        cluster.kill(node)
        point.release()
        cluster.await_leader(*partition(stage, of), other_than=node)
        await_checkpoints(handle, 2)
        cluster.restart(node)
    assert handle.restarts == 0


@pytest.mark.matrix
def test_the_job_goes_on_when_leaders_are_moved(stage: Stage, cluster: KafkaCluster, spark: Any) -> None:
    """Their brokers live on, and tell clients that they lead no more."""
    with running(stage, spark, source=stage.source(rate_limit=100)) as handle:
        for of in ("source", "sink", "group", "transaction"):
            place = partition(stage, of)
            now = cluster.await_leader(*place)
            cluster.move_leader(*place, next(node for node in cluster.nodes if node != now))
    assert handle.restarts == 0


@pytest.mark.matrix
def test_the_job_goes_on_over_a_rolling_restart(stage: Stage, cluster: KafkaCluster, spark: Any) -> None:
    with running(stage, spark, source=stage.source(rate_limit=100)) as handle:
        for node in cluster.nodes:
            cluster.restart(node)
            eventually(lambda: cluster.in_sync(stage.out_topic) == cluster.nodes)
    assert handle.restarts == 0


@pytest.mark.parametrize(
    "of",
    [
        pytest.param("sink", marks=pytest.mark.matrix),
        pytest.param("source", marks=pytest.mark.full),
        pytest.param("group", marks=pytest.mark.full),
    ],
)
def test_a_broker_that_comes_back_from_a_long_pause_does_no_harm(
    stage: Stage, cluster: KafkaCluster, spark: Any, of: str
) -> None:
    """It has been replaced meanwhile, and does not know; nor do its clients, whose connections it has kept."""
    with running(stage, spark, restart=PATIENT):
        node = cluster.await_leader(*partition(stage, of))
        cluster.pause(node)
        cluster.await_leader(*partition(stage, of), other_than=node)
        threading.Event().wait(5)
        cluster.resume(node)


@pytest.mark.stress
@pytest.mark.parametrize("seconds", [30, 75])
def test_the_job_outlives_the_loss_of_all_brokers(
    stage: Stage, cluster: KafkaCluster, spark: Any, seconds: float
) -> None:
    """75 s are more than a commit is tried for, so that the job restarts."""
    with running(stage, spark, restart=PATIENT) as handle:
        cluster.kill()
        threading.Event().wait(seconds)
        cluster.restart()
    assert seconds < 60 or handle.restarts > 0


@pytest.mark.stress
def test_brokers_that_are_killed_in_turn_for_minutes_leave_the_output_exact(
    make_stage: Callable[..., Stage], cluster: KafkaCluster, spark: Any
) -> None:
    stage = make_stage(30_000, broker=cluster)
    deadline = time.monotonic() + 180
    with running(stage, spark, source=stage.source(rate_limit=150), restart=PATIENT) as handle:
        turn = 0
        while handle.status == "running" and time.monotonic() < deadline:
            node = cluster.nodes[turn % 3]
            turn += 1
            cluster.kill(node)
            await_checkpoints(handle, 5)
            cluster.restart(node)
            eventually(lambda: cluster.in_sync(stage.out_topic) == cluster.nodes)
