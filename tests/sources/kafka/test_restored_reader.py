"""KafkaSource and checkpoints, against a real broker: what a restore reads again, and what it must not."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import ormsgpack
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.testing import KafkaBroker
from sources import END, SourceBatch
from sources.kafka import DataLoss

MakeTopic = Callable[..., str]
OpenSubtask = Callable[..., Any]


def numbered(n: int, start: int = 0) -> list[dict[str, int]]:
    return [{"id": i} for i in range(start, start + n)]


def ids(values: list[Any]) -> list[int]:
    return [value["id"] for value in values]


def stored(*states: Any) -> list[Any]:
    """As they come back from a checkpoint."""
    return [ormsgpack.unpackb(ormsgpack.packb(state)) for state in states]


@pytest.mark.parametrize("widths", [(1, 3), (3, 1), (2, 5), (4, 2, 3)])
def test_a_barrier_in_the_middle_of_a_batch_loses_and_doubles_nothing_at_any_parallelism(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, widths: tuple[int, ...]
) -> None:
    topic = make_topic(partitions=4)
    kafka.produce(topic, numbered(400), partition=lambda value: value["id"] % 4)
    options = {"topics": [topic], "end": "latest"}
    emitted: list[int] = []
    states: list[Any] | None = None
    for number, width in enumerate(widths):
        subtasks = [subtask(i, width, states, **options) for i in range(width)]
        if number == 0:
            kafka.produce(topic, numbered(40, start=400), partition=0)  # after the ends were fixed
        taken = []
        for one in subtasks:
            batch = one.poll(37, timeout=2)
            sent = len(batch) // 2 if isinstance(batch, SourceBatch) else 0
            emitted += ids(batch.values[:sent]) if sent else []
            taken.append(one.reader.snapshot(number, sent))
        states = stored(*taken)
    for i in range(2):
        emitted += ids(subtask(i, 2, states, **options).read_to_end())

    assert sorted(emitted) == list(range(400))
    for k in range(4):
        part = [i for i in emitted if i % 4 == k]
        assert part == sorted(part)


def test_records_polled_but_not_emitted_are_read_again(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(10))
    reading = subtask(topics=[topic])
    first = reading.next_batch(10)
    while len(first) < 2:
        first = reading.next_batch(10)

    state = reading.reader.snapshot(1, 1)

    again = subtask(topics=[topic], restored=stored(state))
    assert ids(again.read(1)) == [first.values[1]["id"]]


def test_skipped_records_do_not_shift_the_position_of_a_barrier(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, [b"{broken", b'{"id": 1}', b"{broken", b'{"id": 3}'])
    options = {"topics": [topic], "on_bad_record": "skip"}
    reading = subtask(**options, end="latest")
    values: list[Any] = []
    while (batch := reading.poll()) is not END:
        if batch is not None:
            values += batch.values
            state = reading.reader.snapshot(1, 1)
            break

    rest = subtask(restored=stored(state), **options, end="latest")
    assert ids(values[:1] + rest.read_to_end()) == [1, 3]


def test_an_ended_split_stays_ended_and_keeps_its_end(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(5))
    reading = subtask(topics=[topic], end="latest")
    assert len(reading.read_to_end()) == 5
    kafka.produce(topic, numbered(5, start=5))

    assert subtask(topics=[topic], end="latest", restored=stored(reading.reader.snapshot(1, 0))).read_to_end() == []


def test_a_job_that_has_ended_says_so_when_more_has_come_since(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(3))
    bounded = subtask(topics=[topic], end="latest")
    bounded.read_to_end()
    state = stored(bounded.reader.snapshot(1, 0))
    subtask(topics=[topic], end="latest", restored=state).read_to_end()
    assert not caplog.records
    kafka.produce(topic, numbered(3))
    assert subtask(topics=[topic], end="latest", restored=state).read_to_end() == []
    assert "what has come since is not read" in caplog.text
    assert len(subtask(topics=[topic], end={topic: 6}, restored=state).read_to_end()) == 3


def test_a_split_is_not_ended_while_its_last_records_are_not_emitted(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(5))
    reading = subtask(topics=[topic], end="latest")
    values: list[Any] = []
    while len(values) < 5:
        values += reading.next_batch().values
        state = reading.reader.snapshot(1, len(reading.batches[-1]) - 1)

    assert ids(subtask(topics=[topic], end="latest", restored=stored(state)).read_to_end()) == [4]


def test_a_partition_that_is_new_since_the_checkpoint_starts_at_its_beginning(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(3))
    states = stored(*[subtask(i, 2, topics=[topic], start="latest").reader.snapshot(1, 0) for i in range(2)])
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, numbered(2, start=3), partition=1)

    again = subtask(topics=[topic], start="latest", restored=states)

    assert ids(again.read(2)) == [3, 4]
    assert again.stays_silent()


def test_a_part_of_the_old_state_is_refused_since_partitions_would_be_read_again(
    make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic(partitions=2)
    states = [subtask(i, 2, topics=[topic]).reader.snapshot(1, 0) for i in range(2)]

    with pytest.raises(RuntimeError, match=r"subtasks \[1\] of 2.*state of all old ones"):
        subtask(topics=[topic], restored=stored(states[1]))


# -- data loss -------------------------------------------------------------------------------------------------------


def test_an_offset_below_retention_is_an_error_with_the_missing_range(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(20))
    reading = subtask(topics=[topic])
    reading.read(3, max_records=3)
    state = stored(reading.reader.snapshot(1, 3))
    stands = reading.positions(emitted=3)[topic, 0]
    _delete_before(kafka, topic, 10)

    with pytest.raises(DataLoss, match=rf"{topic}\[0\].*offsets {stands} to 9 \({10 - stands} offsets\) are gone"):
        subtask(topics=[topic], restored=state)


def test_data_loss_is_accepted_with_a_warning_on_request(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(20))
    state = stored(subtask(topics=[topic]).reader.snapshot(1, 0))
    _delete_before(kafka, topic, 10)

    with caplog.at_level(logging.WARNING):
        reading = subtask(topics=[topic], restored=state, on_data_loss="earliest")

    assert "offsets 0 to 9 (10 offsets) are gone" in caplog.text
    assert ids(reading.read(10)) == list(range(10, 20))


@pytest.mark.usefixtures("pauses_at_once")
def test_records_deleted_in_front_of_a_running_source_are_noticed(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    failing = subtask(topics=[topic])
    going_on = subtask(topics=[topic], on_data_loss="earliest")
    for reading in (failing, going_on):
        reading.reader.pause()  # nothing is fetched ahead
        assert reading.poll() is None
    kafka.produce(topic, numbered(20))
    _delete_before(kafka, topic, 10)
    for reading in (failing, going_on):
        reading.reader.resume()

    with pytest.raises(DataLoss, match="offsets 0 to 9"):
        failing.read(1)
    assert ids(going_on.read(10)) == list(range(10, 20))
    assert going_on.positions()[topic, 0] == 20


def test_an_offset_beyond_the_end_is_an_error(kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(3))

    with pytest.raises(DataLoss, match=r"is 4, but the topic ends at 3"):
        subtask(topics=[topic], start={topic: 4})


def test_a_topic_created_again_is_noticed_even_when_its_offsets_fit(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(3))
    reading = subtask(topics=[topic])
    reading.read(3)
    state = stored(reading.reader.snapshot(1, 1))
    _create_again(kafka, topic)
    kafka.produce(topic, numbered(9, start=100))

    with pytest.raises(DataLoss, match="was deleted and created again since the checkpoint"):
        subtask(topics=[topic], restored=state)
    assert ids(subtask(topics=[topic], restored=state, on_data_loss="earliest").read(9)) == list(range(100, 109))


@pytest.mark.parametrize("by", ["topics", "pattern"])
def test_a_topic_deleted_under_a_running_source_is_noticed(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, by: str
) -> None:
    topics = [make_topic("a"), make_topic("b")]
    options: dict[str, Any] = {"topics": topics} if by == "topics" else {"pattern": "|".join(topics)}
    failing = subtask(**options, discovery_interval=0.2)
    going_on = subtask(**options, discovery_interval=0.2, on_data_loss="earliest")
    kafka.delete_topic(topics[0])

    with pytest.raises(DataLoss, match=f"deleted under the running source.*no topic {topics[0]}"):
        failing.next_batch()
    kafka.produce(topics[1], numbered(3))
    assert ids(going_on.read(3)) == [0, 1, 2]


# -- the group -------------------------------------------------------------------------------------------------------


def test_offsets_of_completed_checkpoints_are_committed_to_the_group(
    kafka: KafkaBroker, make_topic: MakeTopic, unique_name: Callable[[str], str], subtask: OpenSubtask
) -> None:
    topic, group = make_topic(), unique_name("group")
    kafka.produce(topic, numbered(10))
    reading = subtask(topics=[topic], group_id=group)
    for checkpoint_id in (1, 2, 3):
        reading.read(2, max_records=2)
        assert reading.positions(checkpoint_id)[topic, 0] == 2 * checkpoint_id

    assert _committed(kafka, group, topic) is None  # nothing without a completion
    reading.reader.on_checkpoint_complete(2)
    _await(lambda: _committed(kafka, group, topic) == 4)
    reading.reader.on_checkpoint_complete(1)  # late: must not take the group back
    reading.reader.on_checkpoint_complete(2)
    reading.reader.on_checkpoint_aborted(3)
    reading.reader.on_checkpoint_complete(3)
    reading.close()  # waits for commits under way

    assert _committed(kafka, group, topic) == 4


def test_a_source_without_a_group_commits_nothing(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(1))
    reading = subtask(topics=[topic])
    reading.read(1)
    reading.positions(1)
    reading.reader.on_checkpoint_complete(1)

    assert _committed(kafka, "weir-p-in", topic) is None


# -- helpers ---------------------------------------------------------------------------------------------------------


def _delete_before(kafka: KafkaBroker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(60)


def _create_again(kafka: KafkaBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(60)
    _await(lambda: topic not in admin.list_topics(timeout=10).topics)
    kafka.create_topic(topic)


def _committed(kafka: KafkaBroker, group: str, topic: str) -> int | None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    (partition,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    consumer.close()
    return partition.offset if partition.offset >= 0 else None


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
