"""What users of other systems have reported about Kafka sources and sinks, as inputs: the right behaviour is ours to
show. Those that need no whole job are tried elsewhere; this is where to find each:

pathway's test_backpressure (a full backlog stops the polling: evicted, read again)
    here: test_a_source_closed_for_longer_than_the_poll_interval_is_neither_evicted_nor_reads_again
confluent-kafka-python#629, confluent-kafka-dotnet#785 (paused for longer than max.poll.interval.ms)
    sources/kafka/test_reports: test_a_source_paused_for_longer_than_the_poll_interval_goes_on_where_it_was
    sources/kafka/test_backpressure: test_a_stall_beyond_the_poll_interval_neither_evicts_nor_redelivers
librdkafka#2703 (a pause throws the prefetch away)
    sources/kafka/test_reports: test_a_source_that_is_closed_again_and_again_fetches_at_most_a_fifth_more…
    sources/kafka/test_backpressure: test_an_hour_of_alternating_load_fetches_at_most_a_fifth_more_than_it_delivers
confluent-kafka-python#759 (20,000 messages of 175 kB, all of them resident)
    here: test_large_messages_stay_within_the_budget
    sources/kafka/test_backpressure: test_memory_stays_within_the_budget_while_one_large_record_at_a_time_is_polled
confluent-kafka-python#407 (a batch waits until it is full)
    sources/kafka/test_reports: test_a_single_record_is_handed_over_at_once_however_long_the_poll_may_take
    sources/kafka/test_backpressure: test_at_ten_messages_a_second_none_waits_for_a_full_batch
confluent-kafka-python#172, #1409 (a client made before a fork hangs)
    sources/kafka/test_reader: test_a_reader_made_before_a_fork_is_refused_instead_of_hanging
    sources/kafka/test_options: test_a_client_made_before_the_fork_is_refused
confluent-kafka-python#16, risingwave#16640 (a full queue kills the job, and again at recovery)
    here: test_a_full_producer_queue_is_backpressure, …_at_recovery_too
ArroyoSystems/arroyo#224 (crash after the checkpoint, before the commit)
    test_exactly_once: test_a_crash_at_any_step_leaves_the_output_exact; test_crash_matrix
kafka-flow#850, seatunnel#11471, flink-connector-kafka#100 (a bounded read whose last offset is a marker)
    sources/kafka/test_reader: test_a_bounded_read_ends_although_the_last_offset_is_a_marker, …_records_were_aborted
    sources/kafka/test_reports: test_an_end_inside_of_a_gap_that_compaction_left_is_reached
    here: test_offset_gaps_of_transactions_are_no_loss_and_do_not_keep_a_bounded_job_from_its_end
flink#22126, KAFKA-18401 (a transaction without records)
    here: test_an_idle_topic_keeps_the_job_running_and_its_checkpoints_coming
    sinks/kafka/test_committer: test_an_empty_epoch_advances_the_marker_and_keeps_the_last_segment
ArroyoSystems/arroyo#1109 (idle topic)
    here: test_an_idle_topic_keeps_the_job_running_and_its_checkpoints_coming
flink#17327 (more subtasks than partitions)
    here: test_subtasks_without_a_partition_take_part_in_checkpoints
bytewax#353 (backpressure tied to the epoch's length)
    here: test_memory_is_bounded_while_the_next_checkpoint_is_an_hour_away
risingwave#2625, #6571 (the longer a checkpoint takes, the more the next one spans)
    test_gate: test_a_slow_sink_gets_short_spans_from_first_to_last
spark#21917, hudi#8258 (offset gaps taken for data loss)
    here: test_offset_gaps_of_transactions_are_no_loss_and_do_not_keep_a_bounded_job_from_its_end
    sources/kafka/test_reader: test_positions_step_over_markers
quix-streams#1114 (the committed offset is below retention)
    here: test_a_checkpointed_offset_below_the_log_start_is_an_error_with_the_range_that_is_gone
    sources/kafka/test_reports: test_committed_offsets_outside_of_the_log_are_an_error_that_says_what_is_missing
spark#28257 (a job that lacks slots hangs)
    here: test_a_job_that_lacks_slots_says_so_at_once_with_both_numbers
robinhood/faust#604 (an operator raises, and the message counts as done)
    here: test_a_message_whose_operator_raises_does_not_count_as_done, …_for_the_group_either

Further ones, in sources/kafka/test_reports: a topic created again under a running source (confluent-kafka-python#1787),
partitions found twice (flink-connector-kafka#305), a bounded read that is restored (flink-connector-kafka#71), an empty
partition of a bounded read (geomesa#7334), offsets of partitions that nothing was read from (flink#15161), a record
larger than any fetch, every compression. In sinks/kafka/test_reports: a topic deleted before the commit, records
without key, names that Kafka's client does not take.
"""

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
from small_job import NEVER
from spark_fixture import SLOTS

from pipeline import BufferConfig, JobFailed, RestartStrategy
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


@pytest.mark.parametrize(("poll_interval", "stall"), [(2, 4), pytest.param(8, 15, marks=pytest.mark.matrix)])
def test_a_source_closed_for_longer_than_the_poll_interval_is_neither_evicted_nor_reads_again(
    make_stage: Callable[..., Stage], spark: Any, poll_interval: int, stall: int
) -> None:
    """1,000 messages, a backlog of 100."""
    stage = make_stage(1000)
    source = stage.source(
        rate_limit=None,
        group_id=f"{stage.name}-group",
        max_span_records=100,
        config={"max.poll.interval.ms": 1000 * poll_interval, "session.timeout.ms": 2000, "heartbeat.interval.ms": 500},
    )
    sink = stage.slow_sink(0.0005)
    buffers = BufferConfig(debloat=False)  # else the source waits for room in its channels, with an open gate
    handle = stage.pipeline(source=source, sink=sink, buffers=buffers, interval=0.2).start(spark=spark)
    try:
        eventually(lambda: completed(handle) >= 2)
        sink.hold()
        closed_ms = "sourceGateClosedMs"
        stalled = {n: v[closed_ms] for n, v in handle.metrics()["subtasks"].items() if n.startswith("in")}
        eventually(
            lambda: all(
                handle.metrics()["subtasks"][n][closed_ms] >= before + 1000 * stall for n, before in stalled.items()
            ),
            timeout=30 + 2 * stall,
        )
        sink.release()
        handle.wait(300)
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
    handle = stage.pipeline(parallelism=3).run(spark=spark, timeout=300)
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
        handle = stage.pipeline(source=stage.source(rate_limit=300)).run(spark=spark, timeout=300)
    assert handle.restarts == 1
    assert stage.findings() == EXACT


def test_a_checkpointed_offset_below_the_log_start_is_an_error_with_the_range_that_is_gone(
    stage: Stage, spark: Any
) -> None:
    with failpoints.crash("committer.mid_produce", nth=2), pytest.raises(JobFailed):
        stage.pipeline(restart=NO_RESTART).run(spark=spark, timeout=300)
    admin = AdminClient({"bootstrap.servers": stage.broker.bootstrap_servers})
    gone = [TopicPartition(stage.source_topic, 0, 790)]
    for future in admin.delete_records(gone).values():
        future.result(60)
    with pytest.raises(JobFailed, match=r"(?s)DataLoss.*\[0\].*begins at 790.*offsets \d+ to 789 .* are gone"):
        stage.pipeline(restart=NO_RESTART).run(spark=spark, timeout=300)


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


def test_memory_is_bounded_while_the_next_checkpoint_is_an_hour_away(
    make_stage: Callable[..., Stage], spark: Any
) -> None:
    """40,000 records of 4 kB with nothing to hold them up but budgets."""
    stage = make_stage(0, partitions=1)
    n = 40_000
    padded = ({**record(id), "padding": "x" * 4096} for id in range(n))
    stage.broker.produce(stage.source_topic, padded, key=lambda r: r["key"], partition=0)
    source = stage.source(end=None, rate_limit=None, span_window=False)  # whose gate asks for no checkpoint
    pipeline = stage.pipeline(source=source, parallelism=1, **NEVER)
    handle = pipeline.start(spark=spark)
    try:
        eventually(lambda: handle.running_since is not None)
        processes = {name: psutil.Process(pid) for name, pid in handle.processes().items()}
        first = {name: process.memory_info().rss for name, process in processes.items()}
        most = dict(first)

        def done() -> bool:
            for name, process in processes.items():
                most[name] = max(most[name], process.memory_info().rss)
            subtasks = handle.metrics()["subtasks"]
            return bool(sum(m["recordsIn"] for name, m in subtasks.items() if name.startswith("sum")) == n)

        eventually(done)
        assert handle.restarts == 0
        assert not handle.checkpoints()
    finally:
        handle.cancel()
    # The source's budget is 16 MiB, and the channels and the segment under way have theirs; the input has 160 MiB.
    growth = {name: (most[name] - first[name]) / MIB for name in most}
    assert max(growth.values()) < 16 + 64, growth


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
    handle = stage.pipeline(operator=RaisesOnce(tmp_path, 700)).run(spark=spark, timeout=300)
    assert handle.restarts == 1
    assert stage.findings() == EXACT


def test_a_message_whose_operator_raises_does_not_count_as_done_for_the_group_either(
    stage: Stage, spark: Any, tmp_path: Path
) -> None:
    """Offsets are committed to the group by what has come out of the job, not by what has come in."""
    group = f"{stage.name}-group"
    fatal = 1500
    with pytest.raises(JobFailed, match="a bad day"):
        stage.pipeline(
            source=stage.source(group_id=group), operator=RaisesOnce(tmp_path, fatal), restart=NO_RESTART
        ).run(spark=spark, timeout=300)
    partition = stage.partition_of(record(fatal))
    place = [r["id"] for r in stage.inputs if stage.partition_of(r) == partition].index(fatal)
    consumer = Consumer({"bootstrap.servers": stage.broker.bootstrap_servers, "group.id": group})
    try:
        committed = consumer.committed([TopicPartition(stage.source_topic, partition)], timeout=30)[0].offset
    finally:
        consumer.close()
    out = {value["id"] for value in stage.outputs()}
    assert 0 < committed <= place
    assert fatal not in out
    stage.pipeline(source=stage.source(group_id=group), operator=RaisesOnce(tmp_path, fatal)).run(
        spark=spark, timeout=300
    )
    assert stage.findings() == EXACT


# -- sinks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_full_producer_queue_is_backpressure(stage: Stage, spark: Any, delivery: str) -> None:
    sink = stage.sink(delivery=delivery, config={"queue.buffering.max.messages": 10})
    handle = stage.pipeline(sink=sink).run(spark=spark, timeout=300)
    assert handle.restarts == 0
    assert stage.findings() == EXACT


def test_a_full_producer_queue_is_backpressure_at_recovery_too(stage: Stage, spark: Any) -> None:
    sink = stage.sink(config={"queue.buffering.max.messages": 10})
    with failpoints.crash("committer.mid_produce", nth=3):
        handle = stage.pipeline(sink=sink).run(spark=spark, timeout=300)
    assert handle.restarts == 1
    assert stage.findings() == EXACT


# -- Spark -----------------------------------------------------------------------------------------------------------


def test_a_job_that_lacks_slots_says_so_at_once_with_both_numbers(stage: Stage, spark: Any) -> None:
    needed = 2 * SLOTS
    handle = stage.pipeline(parallelism=SLOTS).start(spark=spark)
    with pytest.raises(JobFailed, match=rf"(?s)NotEnoughSlots.*needs {needed} slots.*has {SLOTS}"):
        handle.wait(300)
