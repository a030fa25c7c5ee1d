"""What users of other systems have reported about Kafka sources, as inputs of a reader without a job around it. Which
report is where: `tests/kafka_e2e/test_reports.py`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from deadlines import eventually

from pipeline.testing import KafkaBroker
from sources import END, SourceBatch
from sources.kafka import DataLoss

MakeTopic = Callable[..., str]
OpenSubtask = Callable[..., Any]
MIB = 1024 * 1024


def numbered(n: int, start: int = 0) -> list[dict[str, int]]:
    return [{"id": i} for i in range(start, start + n)]


def ids(values: list[Any]) -> list[int]:
    return [value["id"] for value in values]


# -- closed for a while ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("pauses_at_once")
def test_a_source_paused_for_longer_than_the_poll_interval_goes_on_where_it_was(
    kafka: KafkaBroker, make_topic: MakeTopic, unique_name: Callable[[str], str], subtask: OpenSubtask
) -> None:
    """confluent-kafka-python#629, confluent-kafka-dotnet#785."""
    topic = make_topic()
    kafka.produce(topic, numbered(1000))
    limits = {"max.poll.interval.ms": 500, "session.timeout.ms": 500, "heartbeat.interval.ms": 100}
    reading = subtask(topics=[topic], group_id=unique_name("group"), config=limits)
    seen = ids(reading.read(100, max_records=100))
    reading.reader.pause()
    until = time.monotonic() + 1.2
    while time.monotonic() < until:  # the pause itself; the task polls on all the while
        assert reading.poll() is None
    reading.reader.resume()
    seen += ids(reading.read(900))

    assert seen == list(range(1000))
    assert reading.stays_silent()


@pytest.mark.parametrize("mib", [64, pytest.param(1024, marks=[pytest.mark.stress, pytest.mark.timeout(900)])])
def test_a_source_that_is_closed_again_and_again_fetches_at_most_a_fifth_more_than_it_delivers(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, monkeypatch: pytest.MonkeyPatch, mib: int
) -> None:
    """librdkafka#2703: `pause()` throws what is fetched ahead away. Counted by the client itself; no closing is too
    short for a pause."""
    monkeypatch.setattr("sources.kafka.client_pauses.PAUSE_AFTER_S", 0.0)
    topic = make_topic()
    kafka.produce(topic, (os.urandom(8192) for _ in range(mib * 128)))
    reading = subtask(
        topics=[topic],
        value_format="bytes",
        end="latest",
        fetch_budget=8 * MIB,
        config={"statistics.interval.ms": 50},
    )
    delivered = closings = 0
    while (batch := reading.poll(100)) is not END:
        if batch is None:
            continue
        delivered += batch.size
        reading.batches.clear()
        if delivered >= closings * MIB:
            closings += 1
            reading.reader.pause()
            for _ in range(3):
                assert reading.poll(timeout=0.005) is None
            reading.reader.resume()
    assert delivered == mib * MIB
    assert closings >= mib
    # Statistics come with polls, which a source that has ended no longer makes.
    eventually(lambda: reading.reader._consumer.poll(0.05) is not None or _fetched(reading) >= delivered)
    assert _fetched(reading) <= 1.2 * delivered


def _fetched(reading: Any) -> float:
    found: float = reading.metrics.counters.get("bytesFetched", 0)
    return found


# -- batches and sizes -----------------------------------------------------------------------------------------------


def test_a_single_record_is_handed_over_at_once_however_long_the_poll_may_take(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    """confluent-kafka-python#407: `consume(100, timeout)` waits for a hundred."""
    topic = make_topic()
    reading = subtask(topics=[topic])
    for id in range(3):
        kafka.produce(topic, [{"id": id}])
        started = time.monotonic()
        while (batch := reading.poll(max_records=100, timeout=60.0)) is None:
            pass  # the end of the partition was what came
        assert ids(batch.values) == [id]
        assert time.monotonic() - started < 55


def test_a_record_larger_than_any_fetch_and_the_whole_budget_comes_through(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    """A limit that was raised upstream would stop a reader for good."""
    topic = make_topic(config={"max.message.bytes": 16 * MIB})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": 16 * MIB})
    for size in (10, 12 * MIB, 10):
        producer.produce(topic, b"x" * size, partition=0)
    assert producer.flush(30) == 0

    values = subtask(topics=[topic], value_format="bytes", fetch_budget=8 * MIB, end="latest").read_to_end()

    assert [len(value) for value in values] == [10, 12 * MIB, 10]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, codec: str) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec, "linger.ms": 20})
    for i in range(200):
        producer.produce(topic, b'{"id": %d}' % i, partition=0)
    assert producer.flush(30) == 0

    assert ids(subtask(topics=[topic], end="latest").read_to_end()) == list(range(200))


# -- ends ------------------------------------------------------------------------------------------------------------


def test_a_bounded_read_ends_with_nothing_where_there_is_nothing(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    """geomesa#7334: one empty partition keeps a bounded read from its end. Also where it starts at its end."""
    partly, empty = make_topic("a", partitions=3), make_topic("b")
    kafka.produce(partly, numbered(5), partition=1)

    assert ids(subtask(topics=[partly, empty], end="latest").read_to_end()) == list(range(5))
    assert subtask(topics=[partly, empty], start="latest", end="latest").read_to_end() == []
    assert subtask(topics=[empty], end="latest").read_to_end() == []


def test_an_end_inside_of_a_gap_that_compaction_left_is_reached(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    """spark#21917, hudi#8258: the records in front of the end are compacted away."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    _alter(admin, ConfigResource(ResourceType.BROKER, _a_node(admin)), "log.cleaner.backoff.ms", "100")
    topic = make_topic(
        config={
            "cleanup.policy": "compact",
            "segment.ms": 1,
            "min.cleanable.dirty.ratio": 0.001,
            "min.compaction.lag.ms": 0,
        }
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    begun = round(time.time() * 1000) - 1000
    for i in range(20):  # each in a segment of its own, since it is later; the last one is never compacted
        key = "first" if i == 0 else "again and again"
        producer.produce(topic, b'{"id": %d}' % i, key, timestamp=begun + 10 * i)
        assert producer.flush(10) == 0
    eventually(lambda: len(kafka.consume(topic)) <= 3)
    left = [record.offset for record in kafka.consume(topic)]
    assert left == [0, 18, 19]

    for end in (10, 18):
        reading = subtask(topics=[topic], end={topic: end})
        assert ids(reading.read_to_end()) == [0]
        assert reading.positions() == {(topic, 0): end}
    reading = subtask(topics=[topic], end="latest")
    assert ids(reading.read_to_end()) == left
    assert reading.positions() == {(topic, 0): 20}


def test_a_bounded_read_that_is_restored_ends_where_it_would_have_ended(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    """flink-connector-kafka#71: restored, it never ends. And partitions that came after the start are beyond its end,
    whether it was restored in between or not."""
    topic = make_topic()
    kafka.produce(topic, numbered(5))
    reading = subtask(topics=[topic], end="latest")
    seen = ids(reading.read(2, max_records=2))
    state = reading.reader.snapshot(1, 2)
    kafka.add_partitions(topic, 2)
    for partition in (0, 1):
        kafka.produce(topic, numbered(5, start=100), partition=partition)

    assert ids(reading.read_to_end()) == [2, 3, 4]
    assert seen + ids(subtask(topics=[topic], end="latest", restored=[state]).read_to_end()) == [0, 1, 2, 3, 4]


# -- what is gone, or new --------------------------------------------------------------------------------------------


def test_committed_offsets_outside_of_the_log_are_an_error_that_says_what_is_missing(
    kafka: KafkaBroker, make_topic: MakeTopic, unique_name: Callable[[str], str], subtask: OpenSubtask
) -> None:
    """quix-streams#1114: the group's offset is below retention, and the job is alive and idle. Or beyond the end."""
    topic, group = make_topic(), unique_name("group")
    kafka.produce(topic, numbered(20))
    _commit(kafka, group, TopicPartition(topic, 0, 5))
    _delete_before(kafka, topic, 12)

    with pytest.raises(DataLoss, match=rf"{topic}\[0\].*is 5, but .* begins at 12: offsets 5 to 11 \(7 offsets\)"):
        subtask(topics=[topic], start="group", group_id=group)
    going_on = subtask(topics=[topic], start="group", group_id=group, on_data_loss="earliest")
    assert ids(going_on.read(8)) == list(range(12, 20))

    _commit(kafka, group, TopicPartition(topic, 0, 25))
    with pytest.raises(DataLoss, match=r"is 25, but the topic ends at 20"):
        subtask(topics=[topic], start="group", group_id=group)


@pytest.mark.parametrize(("records", "discovery_interval"), [(3, None), (40, None), (40, 0.2)])
def test_a_topic_deleted_and_created_again_under_a_running_source_is_noticed(
    kafka: KafkaBroker,
    make_topic: MakeTopic,
    subtask: OpenSubtask,
    monkeypatch: pytest.MonkeyPatch,
    records: int,
    discovery_interval: float | None,
) -> None:
    """confluent-kafka-python#1787: nothing comes any more, and nobody says so. With more records than had been read the
    old position even lies in the new log."""
    topic = make_topic()
    kafka.produce(topic, numbered(20))
    monkeypatch.setattr("sources.kafka.discovery.DISCOVERY_S", 0.2)
    reading = subtask(topics=[topic], discovery_interval=discovery_interval)
    reading.read(20)
    kafka.delete_topic(topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)
    kafka.create_topic(topic)
    kafka.produce(topic, numbered(records, start=100))

    # What is seen depends on how soon it is looked for.
    with pytest.raises(DataLoss, match=rf"(?s){topic}.*created again|deleted under.*no topic {topic}"):
        reading.read(1000)


def test_partitions_that_are_added_again_and_again_are_each_read_once(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    """flink-connector-kafka#305: a partition that is found twice is read twice."""
    topic = make_topic()
    subtasks = [subtask(i, 2, topics=[topic], discovery_interval=0.1) for i in range(2)]
    seen: list[int] = []

    def read() -> bool:
        for one in subtasks:
            if isinstance(batch := one.poll(), SourceBatch):
                seen.extend(ids(batch.values))
        return len(seen) >= 40

    for total in (2, 3, 5):
        kafka.add_partitions(topic, total)
        read()
    kafka.produce(topic, numbered(40), partition=lambda value: value["id"] % 5)
    eventually(read)
    assert all(one.stays_silent() for one in subtasks)
    assert sorted(seen) == list(range(40))
    assert sum(len(one.positions()) for one in subtasks) == 5


def test_a_partition_without_records_has_an_offset_to_commit(
    kafka: KafkaBroker, make_topic: MakeTopic, unique_name: Callable[[str], str], subtask: OpenSubtask
) -> None:
    """flink#15161: of partitions that nothing was read from yet, offsets were committed that were none."""
    topic, group = make_topic(partitions=2), unique_name("group")
    kafka.produce(topic, numbered(3), partition=0)
    _delete_before(kafka, topic, 3)
    kafka.produce(topic, numbered(3, start=3), partition=1)
    reading = subtask(topics=[topic], group_id=group)
    reading.read(3)
    positions = reading.positions()
    reading.reader.on_checkpoint_complete(1)
    reading.close()  # waits for commits under way

    assert positions == {(topic, 0): 3, (topic, 1): 3}
    assert _committed(kafka, group, topic, 2) == [3, 3]


# -- helpers ---------------------------------------------------------------------------------------------------------


def _a_node(admin: AdminClient) -> str:
    return str(next(iter(admin.list_topics(timeout=10).brokers)))


def _alter(admin: AdminClient, resource: ConfigResource, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    admin.incremental_alter_configs([resource])[resource].result(60)


def _delete_before(kafka: KafkaBroker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(60)


def _commit(kafka: KafkaBroker, group: str, *offsets: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()


def _committed(kafka: KafkaBroker, group: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=30)
    consumer.close()
    return [one.offset for one in found]
