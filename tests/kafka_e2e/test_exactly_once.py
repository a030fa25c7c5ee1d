"""Crashes around the commit, Kafka to Kafka, at unchanged parallelism.

What a `read_committed` reader finds is exact over all records, in order for each key, and no transaction is left open.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import kafka_driver
import pytest
from confluent_kafka.admin import AdminClient
from deadlines import eventually
from kafka_job import EXACT, RATE, Findings, Stage, staged_ids
from small_job import NEVER

from checkpoint.storage import fencing
from checkpoint.storage.storage import CheckpointStorage
from pipeline import BufferConfig, JobFailed, RestartStrategy
from pipeline.handle import JobHandle
from pipeline.testing import KafkaBroker, failpoints

NO_RESTART = RestartStrategy.none()


def completed(handle: JobHandle) -> int:
    return sum(row.status == "completed" for row in handle.checkpoints())


def storage_of(stage: Stage) -> CheckpointStorage:
    return CheckpointStorage(stage.folder.as_uri(), stage.name)


# -- a worker is killed ----------------------------------------------------------------------------------------------


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(
    "step",
    [
        "committer.before_commit",
        "snapshot.channel_state",
        pytest.param("committer.after_commit", marks=pytest.mark.matrix),
    ],
)
def test_a_crash_under_backpressure_leaves_the_output_exact(stage: Stage, spark: Any, step: str) -> None:
    """Barriers fall into the middle of what the source has polled: the rest of it is read again."""
    source, sink = stage.source(rate_limit=None, max_span_records=None), stage.slow_sink(0.001)
    buffers = BufferConfig(max_bytes=4096, frame_bytes=2048)
    with failpoints.crash(step, nth=5) as point:
        handle = stage.pipeline(source=source, sink=sink, buffers=buffers).run(spark=spark, timeout=300)
    assert point.fired
    assert handle.restarts == 1
    assert stage.findings() == EXACT


@pytest.mark.sample(1)
def test_crashes_in_a_row_leave_the_output_exact(stage: Stage, spark: Any) -> None:
    """Each attempt meets what the one before it left behind."""
    with failpoints.crash("committer.after_send_offsets", subtask=0, nth=2, times=3) as point:
        handle = stage.pipeline().run(spark=spark, timeout=300)
    assert point.fired
    assert handle.restarts == 3
    assert stage.findings() == EXACT


@pytest.mark.parametrize("seed", [1, pytest.param(0, marks=pytest.mark.matrix)])
def test_workers_killed_at_random_leave_the_output_exact(
    make_stage: Callable[..., Stage], spark: Any, seed: int
) -> None:
    rng = random.Random(seed)
    stage = make_stage(4000)
    handle = stage.pipeline(max_concurrent=1 + seed % 2).start(spark=spark)
    try:
        for kill in range(1, 4):
            before = completed(handle)
            eventually(lambda: completed(handle) > before or handle.status == "finished")  # noqa: B023
            threading.Event().wait(rng.uniform(0, 0.3))
            if handle.status != "finished":
                os.kill(rng.choice(list(handle.processes().values())), signal.SIGKILL)
                eventually(lambda: handle.restarts == kill)  # noqa: B023
        handle.wait(300)
    finally:
        handle.cancel()
    assert handle.restarts > 0
    assert stage.findings() == EXACT


# -- the driver is killed, or not alone -------------------------------------------------------------------------------


@pytest.mark.sample(1 / 4)
def test_of_two_drivers_the_later_one_owns_the_job_and_the_earlier_one_stops(stage: Stage) -> None:
    slow, fast = {"rate_limit": 5}, {"rate_limit": RATE}  # the slow one would take minutes, however loaded the machine
    earlier = kafka_driver.start(stage, source=slow)
    try:
        eventually(lambda: len(storage_of(stage).complete()) > 0)
    except AssertionError:
        earlier.kill()
        raise
    later = kafka_driver.start(stage, source=fast, take_over=True)
    stopped, finished = kafka_driver.end(earlier), kafka_driver.end(later)
    assert stopped["status"] == "failed"
    assert "newer owner" in stopped["failure"]
    assert (finished["status"], finished["restarts"]) == ("finished", 0)
    assert stage.findings() == EXACT


def test_a_driver_whose_job_was_taken_over_does_not_take_it_back_at_its_restart(stage: Stage, spark: Any) -> None:
    handle = stage.pipeline(source=stage.source(end=None), **NEVER).start(spark=spark)
    try:
        eventually(lambda: handle.metrics()["totals"].get("recordsIn", 0) > 0)
        later = fencing.take_ownership(storage_of(stage))
        os.kill(next(iter(handle.processes().values())), signal.SIGKILL)
        with pytest.raises(JobFailed, match=r"Fenced.*newer owner"):
            handle.wait(300)
    finally:
        handle.cancel()
    assert storage_of(stage).owners()[-1] == later


# -- the broker is gone for a while ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """One that may be killed, and that ends timed out transactions soon."""
    properties = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 200}
    with KafkaBroker.start(kind="native", **properties) as broker:
        yield broker


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    ("step", "nth", "parallelism"),
    [
        ("committer.after_send_offsets", 7, 2),
        pytest.param("committer.after_transaction", 7, 3, marks=pytest.mark.matrix),
        pytest.param("committer.mid_settle", 2, 1, marks=pytest.mark.matrix),
        pytest.param("committer.after_init", 2, 3, marks=pytest.mark.full),
        pytest.param("committer.after_produce", 7, 1, marks=pytest.mark.full),
    ],
)
def test_a_broker_that_restarts_between_crash_and_restore_leaves_the_output_exact(
    make_stage: Callable[..., Stage], own_broker: KafkaBroker, spark: Any, step: str, nth: int, parallelism: int
) -> None:
    stage = make_stage(1600, broker=own_broker)
    with failpoints.crash(step, nth=nth) as point, pytest.raises(JobFailed):
        stage.pipeline(restart=NO_RESTART).run(spark=spark, timeout=300)
    assert point.fired
    own_broker.kill()
    own_broker.restart()
    stage.pipeline(parallelism=parallelism).run(spark=spark, timeout=300)
    assert stage.findings() == EXACT


def test_a_broker_that_restarts_under_the_job_leaves_the_output_exact(
    make_stage: Callable[..., Stage], own_broker: KafkaBroker, spark: Any
) -> None:
    stage = make_stage(4000, broker=own_broker)
    handle = stage.pipeline(restart=RestartStrategy.fixed_delay(attempts=30, delay=0.2)).start(spark=spark)
    try:
        eventually(lambda: completed(handle) >= 2)
        own_broker.kill()
        own_broker.restart()
        handle.wait(300)
    finally:
        handle.cancel()
    assert stage.findings() == EXACT


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    ("step", "nth", "parallelism"),
    [
        ("committer.after_send_offsets", 5, 2),  # a busy machine comes to few more commits before the end
        pytest.param("committer.after_produce", 7, 3, marks=pytest.mark.matrix),
        pytest.param("committer.after_owner_check", 7, 1, marks=pytest.mark.full),
    ],
)
def test_downtime_beyond_the_transaction_timeout_leaves_the_output_exact(
    make_stage: Callable[..., Stage], own_broker: KafkaBroker, spark: Any, step: str, nth: int, parallelism: int
) -> None:
    stage = make_stage(1600, broker=own_broker)
    sink = stage.sink(config={"transaction.timeout.ms": 5000})
    with failpoints.crash(step, nth=nth), pytest.raises(JobFailed):
        stage.pipeline(sink=sink, restart=NO_RESTART).run(spark=spark, timeout=300)
    open_now = stage.findings().open_transactions
    eventually(lambda: stage.findings().open_transactions == 0)  # the broker has ended it
    stage.pipeline(sink=sink, parallelism=parallelism).run(spark=spark, timeout=300)
    assert open_now > 0
    assert stage.findings() == EXACT


# -- the marker ------------------------------------------------------------------------------------------------------


def _lose_marker(stage: Stage, subtask: int) -> None:
    group = f"{stage.name}-out-{subtask}"
    admin = AdminClient({"bootstrap.servers": stage.broker.bootstrap_servers})
    admin.delete_consumer_groups([group])[group].result(60)


def _fail_in_a_commit(stage: Stage, spark: Any) -> tuple[set[int], set[int]]:
    """Leaves a complete checkpoint that is not wholly committed; the ids that it holds, and those committed."""
    with failpoints.crash("committer.mid_produce", nth=2), pytest.raises(JobFailed):
        stage.pipeline(parallelism=1, restart=NO_RESTART).run(spark=spark, timeout=300)
    storage = storage_of(stage)
    held = staged_ids(storage, storage.load(storage.list_checkpoints()[-1]))
    return held, {record["id"] for record in stage.outputs()}


def test_a_marker_that_is_gone_stops_the_job_and_replay_commits_what_the_checkpoint_holds(
    stage: Stage, spark: Any
) -> None:
    held, out = _fail_in_a_commit(stage, spark)
    _lose_marker(stage, 0)
    with pytest.raises(JobFailed, match=r'(?s)MarkerLost.*on_marker_lost="replay"'):
        stage.pipeline(parallelism=1, restart=NO_RESTART).run(spark=spark, timeout=300)
    stage.pipeline(parallelism=1, sink=stage.sink(on_marker_lost="replay")).run(spark=spark, timeout=300)
    findings = stage.findings()
    assert held - out
    assert findings.duplicated_ids == held & out
    assert findings == Findings(duplicated=len(held & out))


def test_with_skip_what_the_checkpoint_holds_is_left_out_and_nothing_else(stage: Stage, spark: Any) -> None:
    held, out = _fail_in_a_commit(stage, spark)
    _lose_marker(stage, 0)
    stage.pipeline(parallelism=1, sink=stage.sink(on_marker_lost="skip")).run(spark=spark, timeout=300)
    findings = stage.findings()
    assert held - out
    assert findings.lost_ids == held - out
    assert findings == Findings(lost=len(held - out))


# -- restores that don't fit what is committed --------------------------------------------------------------------


def _ids_before_checkpoint(stage: Stage, index: int) -> set[int]:
    """The records in front of the barriers of the index-th retained checkpoint."""
    storage = storage_of(stage)
    metadata = storage.load(storage.list_checkpoints()[index])
    states = [storage.unspill(snapshot).state["source"] for snapshot in metadata.operator("in")]
    positions = {split[1]: split[3] for state in states for split in state["splits"]}
    ids: set[int] = set()
    for partition, position in positions.items():
        ids.update([r["id"] for r in stage.inputs if stage.partition_of(r) == partition][:position])
    return ids


@pytest.mark.parametrize(
    ("step", "nth"),
    [
        ("committer.after_send_offsets", 2),
        pytest.param("committer.mid_settle", 2, marks=pytest.mark.matrix),
        pytest.param("committer.before_settle", 1, marks=pytest.mark.full),
        pytest.param("committer.after_settle", 2, marks=pytest.mark.full),
    ],
)
def test_output_ahead_of_an_older_checkpoint_stops_the_job_and_a_rewind_writes_again_what_came_after_it(
    stage: Stage, spark: Any, step: str, nth: int
) -> None:
    # Aligned, so that what was written since the checkpoint is what was read since.
    stage.pipeline(retained=5, alignment="aligned").run(spark=spark, timeout=300)
    before = _ids_before_checkpoint(stage, 0)
    assert 0 < len(before) < len(stage.inputs)
    older = f"{stage.folder.as_uri()}/{stage.name}/{storage_of(stage).list_checkpoints()[0].path}"

    with pytest.raises(JobFailed, match=r"(?s)OutputAhead.*ahead of this checkpoint.*rewind=True"):
        stage.pipeline(retained=5, alignment="aligned", restart=NO_RESTART).run(older, spark=spark, timeout=300)
    assert stage.findings() == EXACT

    with failpoints.crash(step, nth=nth) as point:
        stage.pipeline(retained=5, alignment="aligned").run(older, spark=spark, rewind=True, timeout=90)
    again = {record["id"] for record in stage.inputs} - before
    findings = stage.findings()
    assert point.fired
    assert findings.duplicated_ids == again
    assert findings == Findings(duplicated=len(again))


def test_a_finished_job_that_is_started_again_writes_nothing(stage: Stage, spark: Any) -> None:
    for _ in range(2):
        stage.pipeline().run(spark=spark, timeout=300)
    assert stage.findings() == EXACT


@pytest.mark.parametrize(
    ("step", "nth"),
    [
        ("committer.after_send_offsets", 3),
        pytest.param("committer.mid_settle", 2, marks=pytest.mark.matrix),
        pytest.param("committer.after_settle", 2, marks=pytest.mark.full),
        pytest.param("committer.after_transaction", 3, marks=pytest.mark.full),
    ],
)
def test_restore_none_under_the_same_name_writes_everything_a_second_time(
    stage: Stage, spark: Any, step: str, nth: int
) -> None:
    stage.pipeline().run(spark=spark, timeout=300)
    with failpoints.crash(step, nth=nth) as point:
        stage.pipeline().run("none", spark=spark, timeout=300)
    assert point.fired
    assert stage.findings() == Findings(duplicated=len(stage.inputs))


def test_a_lost_checkpoint_folder_is_found_out_by_the_output(stage: Stage, spark: Any) -> None:
    stage.pipeline().run(spark=spark, timeout=300)
    stage.folder = stage.folder.with_name("elsewhere")
    with pytest.raises(JobFailed, match=r'(?s)EarlierOutput.*restore="none"'):
        stage.pipeline(restart=NO_RESTART).run(spark=spark, timeout=300)
    assert stage.findings() == EXACT


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        ("committer.between_transactions", 4096, 1 << 20),
        ("committer.mid_produce", 1 << 20, 4096),
        pytest.param("committer.mid_produce", 4096, 1 << 20, marks=pytest.mark.matrix),
        pytest.param("committer.mid_produce", 4096, 2048, marks=pytest.mark.matrix),
        pytest.param("committer.between_transactions", 4096, 2048, marks=pytest.mark.matrix),
        pytest.param("committer.after_transaction", 4096, 1 << 20, marks=pytest.mark.full),
    ],
)
def test_another_max_transaction_bytes_after_a_crash_repeats_and_loses_nothing(
    stage: Stage, spark: Any, step: str, before: int, after: int
) -> None:
    with failpoints.crash(step, nth=4) as point, pytest.raises(JobFailed):
        stage.pipeline(sink=stage.sink(max_transaction_bytes=before), restart=NO_RESTART).run(spark=spark, timeout=300)
    assert point.fired
    stage.pipeline(sink=stage.sink(max_transaction_bytes=after)).run(spark=spark, timeout=300)
    assert stage.findings() == EXACT
