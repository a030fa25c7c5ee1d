"""Trouble in the middle of a commit that doesn't kill the job: the broker goes, time passes, another driver comes, a
reader looks on. A failpoint holds the job at the step that the test names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import kafka_driver
import pytest
from deadlines import PATIENCE, eventually
from kafka_job import EXACT, Stage, await_processed, count_open
from kafka_reader import CommittedReader
from small_job import running

from pipeline import JobFailed, RestartStrategy
from pipeline.testing import KafkaBroker, failpoints

StageMaker = Callable[..., Stage]


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """One that may be killed, and that ends timed out transactions soon."""
    properties = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 200}
    with KafkaBroker.start(kind="native", **properties) as broker:
        yield broker


# -- what readers wait for -------------------------------------------------------------------------------------------


def test_a_reader_never_waits_for_a_slow_checkpoint_only_for_a_commit_under_way(
    make_stage: StageMaker, spark: Any
) -> None:
    stage = make_stage(400)
    source = stage.source(end=None, rate_limit=None, active_backpressure=False)  # it reads on beside a slow checkpoint
    job = stage.pipeline(source=source, max_concurrent=2)
    with (
        failpoints.hold("coordinator.before_metadata", times=1000, timeout=PATIENCE, asleep=True) as checkpoint,
        # A step that an epoch without records doesn't come to: the first one that completes is such a one.
        failpoints.hold("committer.mid_produce", timeout=PATIENCE, asleep=True) as commit,
        CommittedReader(stage.broker, stage.out_topic) as reader,
        running(job, spark) as handle,
    ):
        reader.read(400, PATIENCE)
        checkpoint.wake()
        checkpoint.wait(PATIENCE)
        for total in (600, 800, 1000):
            stage.produce(200)
            await_processed(handle, total)
            assert count_open(stage.broker, stage.out_topic) == 0  # nothing stands between a reader and the end
        reader.read(401, 0.5)
        assert len(reader.records) == 400
        commit.wake()
        checkpoint.release()
        commit.wait(PATIENCE)
        eventually(lambda: count_open(stage.broker, stage.out_topic) > 0)
        commit.release()
        reader.read(1000, PATIENCE)
        eventually(lambda: count_open(stage.broker, stage.out_topic) == 0)
        assert handle.restarts == 0
    assert stage.findings() == EXACT


# -- two drivers -----------------------------------------------------------------------------------------------------


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    ("step", "nth"),
    [
        ("committer.after_owner_check", 5),
        pytest.param("committer.before_transaction", 5, marks=pytest.mark.matrix),
        pytest.param("committer.between_transactions", 2, marks=pytest.mark.matrix),
        pytest.param("committer.mid_settle", 1, marks=pytest.mark.matrix),
        pytest.param("committer.before_init", 1, marks=pytest.mark.matrix),
        pytest.param("committer.before_commit", 5, marks=pytest.mark.full),
        pytest.param("committer.mid_produce", 2, marks=pytest.mark.full),
        pytest.param("committer.after_transaction", 5, marks=pytest.mark.full),
        pytest.param("committer.after_read", 2, marks=pytest.mark.full),
    ],
)
def test_an_earlier_driver_that_wakes_in_a_commit_after_a_later_one_has_finished_the_job_writes_nothing(
    stage: Stage, spark: Any, step: str, nth: int
) -> None:
    sink = stage.sink(max_transaction_bytes=4096)
    with (
        failpoints.hold(step, nth=nth, timeout=2 * PATIENCE) as held,
        running(stage.pipeline(sink=sink, restart=RestartStrategy.none()), spark) as earlier,
    ):
        held.wait(PATIENCE)
        assert kafka_driver.end(kafka_driver.start(stage, take_over=True), 2 * PATIENCE)["status"] == "finished"
        assert stage.findings() == EXACT
        held.release()
        with pytest.raises(JobFailed):
            earlier.wait(PATIENCE)
    assert stage.findings() == EXACT


# -- the broker is gone for a while ----------------------------------------------------------------------------------


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    ("step", "nth"),
    [
        ("committer.after_owner_check", 5),
        pytest.param("committer.mid_produce", 3, marks=pytest.mark.matrix),
        pytest.param("committer.after_produce", 5, marks=pytest.mark.matrix),
        pytest.param("committer.between_transactions", 3, marks=pytest.mark.matrix),
        pytest.param("committer.after_init", 2, marks=pytest.mark.matrix),
        pytest.param("committer.mid_settle", 2, marks=pytest.mark.full),
        pytest.param("committer.before_transaction", 5, marks=pytest.mark.full),
        pytest.param("committer.after_transaction", 5, marks=pytest.mark.full),
    ],
)
def test_a_broker_that_restarts_in_the_middle_of_a_commit_leaves_the_output_exact(
    make_stage: StageMaker, own_broker: KafkaBroker, spark: Any, step: str, nth: int
) -> None:
    stage = make_stage(1600, broker=own_broker)
    job = stage.pipeline(
        sink=stage.sink(max_transaction_bytes=4096), restart=RestartStrategy.fixed_delay(attempts=60, delay=0.2)
    )
    with failpoints.hold(step, nth=nth, timeout=PATIENCE) as held, running(job, spark) as handle:
        held.wait(PATIENCE)
        own_broker.kill()
        held.release()
        own_broker.restart()
        handle.wait(PATIENCE)
    assert stage.findings() == EXACT


@pytest.mark.parametrize(
    "step",
    [
        "committer.after_owner_check",
        pytest.param("committer.mid_produce", marks=pytest.mark.matrix),
        pytest.param("committer.after_produce", marks=pytest.mark.full),
    ],
)
def test_a_commit_that_lasts_beyond_the_transaction_timeout_is_done_again(
    make_stage: StageMaker, own_broker: KafkaBroker, spark: Any, step: str
) -> None:
    """The broker has aborted the transaction by then, and says so at the commit."""
    stage = make_stage(1600, broker=own_broker)
    job = stage.pipeline(sink=stage.sink(config={"transaction.timeout.ms": 3000}), parallelism=1)
    with (
        failpoints.hold("committer.mid_produce", nth=2, timeout=PATIENCE) as commit,
        failpoints.hold(step, timeout=PATIENCE, asleep=True) as held,
        running(job, spark) as handle,
    ):
        commit.wait(PATIENCE)
        held.wake()  # so it is in a transaction that has records
        commit.release()
        held.wait(PATIENCE)
        eventually(lambda: count_open(own_broker, stage.out_topic) > 0)
        eventually(lambda: count_open(own_broker, stage.out_topic) == 0)
        held.release()
        handle.wait(PATIENCE)
    assert stage.findings() == EXACT


@pytest.mark.full
def test_a_take_over_that_lasts_beyond_the_transaction_timeout_is_done_again(
    make_stage: StageMaker, own_broker: KafkaBroker, spark: Any
) -> None:
    stage = make_stage(1600, broker=own_broker)
    job = stage.pipeline(sink=stage.sink(config={"transaction.timeout.ms": 1000}))
    with failpoints.hold("committer.mid_settle", nth=2, timeout=PATIENCE) as held, running(job, spark) as handle:
        held.wait(PATIENCE)
        time.sleep(3)  # longer than the timeout and the broker's look after it; no topic shows this transaction
        held.release()
        handle.wait(PATIENCE)
    assert stage.findings() == EXACT
