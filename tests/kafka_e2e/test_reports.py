"""What users of other systems have reported about Kafka sources and sinks, as inputs: the right behaviour is ours to
show."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deadlines import eventually
from kafka_job import EXACT, Record, RunningSum, Stage, record
from spark_fixture import SLOTS

from pipeline import JobFailed, RestartStrategy
from pipeline.handle import JobHandle
from pipeline.testing import KafkaBroker, failpoints

MIB = 1024 * 1024
NO_RESTART = RestartStrategy.none()


def completed(handle: JobHandle) -> int:
    return sum(row.status == "completed" for row in handle.checkpoints())


def marker(stage: Stage, subtask: int) -> int:
    """The newest checkpoint of which a sink subtask has committed its output; -1001 before the first."""
    group = f"{stage.name}-out-{subtask}"
    consumer = Consumer({"bootstrap.servers": stage.broker.bootstrap_servers, "group.id": group})
    try:
        return int(consumer.committed([TopicPartition(stage.out_topic, 0)], timeout=30)[0].offset)
    finally:
        consumer.close()


# -- sources ---------------------------------------------------------------------------------------------------------


def test_a_source_closed_for_longer_than_the_poll_interval_is_neither_evicted_nor_reads_again(
    make_stage: Callable[..., Stage], spark: Any
) -> None:
    """1,000 messages, a backlog of 100, max.poll.interval.ms of 2 s and a stall of 4 s."""
    stage = make_stage(1000)
    source = stage.source(
        rate_limit=None,
        group_id=f"{stage.name}-group",
        max_span_records=100,
        config={"max.poll.interval.ms": 2000, "session.timeout.ms": 2000, "heartbeat.interval.ms": 500},
    )
    sink = stage.slow_sink(0.0005)
    handle = stage.pipeline(source=source, sink=sink, interval=0.2).start(spark=spark)
    try:
        eventually(lambda: completed(handle) >= 2)
        sink.hold()
        closed_ms = "sourceGateClosedMs"
        stalled = {n: v[closed_ms] for n, v in handle.metrics()["subtasks"].items() if n.startswith("in")}
        eventually(
            lambda: all(handle.metrics()["subtasks"][n][closed_ms] >= before + 4000 for n, before in stalled.items())
        )
        sink.release()
        handle.wait(60)
    finally:
        handle.cancel()
    assert handle.restarts == 0
    assert stage.findings() == EXACT


def test_an_idle_topic_keeps_the_job_running_and_its_checkpoints_coming(
    make_stage: Callable[..., Stage], spark: Any
) -> None:
    """Epochs without records commit, too: the markers go on with the checkpoints."""
    stage = make_stage(0)
    handle = stage.pipeline(source=stage.source(end=None)).start(spark=spark)
    try:
        eventually(lambda: completed(handle) >= 4)
        newest = max(row.id for row in handle.checkpoints() if row.status == "completed")
        eventually(lambda: min(marker(stage, subtask) for subtask in (0, 1)) >= newest)
        assert handle.status == "running"
        stage.produce(10)
        eventually(lambda: len(stage.outputs()) == 10)
    finally:
        handle.cancel()
    assert handle.restarts == 0
    assert {row.status for row in handle.checkpoints()[:-1]} == {"completed"}
    assert stage.findings() == EXACT


def test_subtasks_without_a_partition_take_part_in_checkpoints(make_stage: Callable[..., Stage], spark: Any) -> None:
    stage = make_stage(400, partitions=1)
    handle = stage.pipeline(parallelism=3).run(spark=spark, timeout=60)
    assert completed(handle) >= 2
    for row in handle.checkpoints():
        if row.status == "completed":
            assert sum(subtask.name.startswith("in") for subtask in row.subtasks) == 3
    assert stage.findings() == EXACT


def test_offset_gaps_of_transactions_are_no_loss_and_do_not_keep_a_bounded_job_from_its_end(
    kafka: KafkaBroker, make_stage: Callable[..., Stage], spark: Any
) -> None:
    """Committed, aborted and again committed; the last offsets are markers without records behind them."""
    stage = make_stage(0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": stage.name})
    producer.init_transactions(30)
    for first, commit in ((0, True), (1000, False), (100, True), (2000, False)):
        producer.begin_transaction()
        for value in (record(id) for id in range(first, first + 100)):
            producer.produce(stage.source_topic, orjson.dumps(value), value["key"], partition=stage.partition_of(value))
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
            stage.inputs += [record(id) for id in range(first, first + 100)]
        else:
            producer.abort_transaction(30)
    with failpoints.crash("committer.mid_produce", nth=2):
        handle = stage.pipeline(source=stage.source(rate_limit=300)).run(spark=spark, timeout=60)
    assert handle.restarts == 1
    assert stage.findings() == EXACT


def test_a_checkpointed_offset_below_the_log_start_is_an_error_with_the_range_that_is_gone(
    stage: Stage, spark: Any
) -> None:
    with failpoints.crash("committer.mid_produce", nth=2), pytest.raises(JobFailed):
        stage.pipeline(restart=NO_RESTART).run(spark=spark, timeout=60)
    admin = AdminClient({"bootstrap.servers": stage.broker.bootstrap_servers})
    gone = [TopicPartition(stage.source_topic, 0, 790)]
    for future in admin.delete_records(gone).values():
        future.result(30)
    with pytest.raises(JobFailed, match=r"(?s)DataLoss.*\[0\].*begins at 790.*offsets \d+ to 789 .* are gone"):
        stage.pipeline(restart=NO_RESTART).run(spark=spark, timeout=60)


def test_large_messages_stay_within_the_budget(make_stage: Callable[..., Stage], spark: Any) -> None:
    """800 messages of 175 kB, while the job takes its time."""
    stage = make_stage(0, partitions=1)
    large = ({**record(id), "padding": "x" * 175_000} for id in range(800))
    stage.broker.produce(stage.source_topic, large, key="k0", partition=0)
    budget = 16 * MIB
    pipeline = stage.pipeline(
        source=stage.source(end=None, rate_limit=None, fetch_budget=budget), sink=stage.slow_sink(0.01), parallelism=1
    )
    handle = pipeline.start(spark=spark)
    try:
        eventually(lambda: bool(handle.processes()))
        process = psutil.Process(next(pid for name, pid in handle.processes().items() if name.startswith("in")))
        first = most = process.memory_info().rss
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            most = max(most, process.memory_info().rss)
            time.sleep(0.02)
        assert handle.metrics()["totals"]["recordsIn"] > 50
    finally:
        handle.cancel()
    # Beside the source's budget the subtask has that of its output, whose frames hold one record here.
    assert most - first < budget + 64 * MIB, f"{(most - first) / MIB:.0f} MiB"


# -- operators -------------------------------------------------------------------------------------------------------


class RaisesOnce(RunningSum):
    """Raises at one record, in the first attempt that meets it."""

    def __init__(self, folder: Path, id: int):
        self.raised = folder / "raised"
        self.id = id

    def process(self, value: Record, ctx: Any) -> Any:
        if value["id"] == self.id and not self.raised.exists():
            self.raised.touch()
            raise RuntimeError("a bad day")
        yield from super().process(value, ctx)


def test_a_message_whose_operator_raises_does_not_count_as_done(stage: Stage, spark: Any, tmp_path: Path) -> None:
    handle = stage.pipeline(operator=RaisesOnce(tmp_path, 700)).run(spark=spark, timeout=60)
    assert handle.restarts == 1
    assert stage.findings() == EXACT


# -- sinks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_full_producer_queue_is_backpressure(stage: Stage, spark: Any, delivery: str) -> None:
    sink = stage.sink(delivery=delivery, config={"queue.buffering.max.messages": 10})
    handle = stage.pipeline(sink=sink).run(spark=spark, timeout=60)
    assert handle.restarts == 0
    assert stage.findings() == EXACT


def test_a_full_producer_queue_is_backpressure_at_recovery_too(stage: Stage, spark: Any) -> None:
    sink = stage.sink(config={"queue.buffering.max.messages": 10})
    with failpoints.crash("committer.mid_produce", nth=3):
        handle = stage.pipeline(sink=sink).run(spark=spark, timeout=60)
    assert handle.restarts == 1
    assert stage.findings() == EXACT


# -- Spark -----------------------------------------------------------------------------------------------------------


def test_a_job_that_lacks_slots_says_so_at_once_with_both_numbers(stage: Stage, spark: Any) -> None:
    needed = 2 * SLOTS
    handle = stage.pipeline(parallelism=SLOTS).start(spark=spark)
    with pytest.raises(JobFailed, match=rf"(?s)NotEnoughSlots.*needs {needed} slots.*has {SLOTS}"):
        handle.wait(10)
