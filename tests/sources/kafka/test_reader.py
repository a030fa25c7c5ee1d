"""KafkaSource against a real broker: what is read, from where, to where, and in which form."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deadlines import eventually

from pipeline.testing import KafkaBroker
from sources import END, KafkaSource
from sources.kafka import BadRecord, KafkaUnavailable, discovery

MakeTopic = Callable[..., str]
OpenSubtask = Callable[..., Any]


def ids(topic_values: list[Any]) -> list[int]:
    return [value["id"] for value in topic_values]


def numbered(n: int, start: int = 0) -> list[dict[str, int]]:
    return [{"id": i} for i in range(start, start + n)]


# -- reading ---------------------------------------------------------------------------------------------------------


def test_reads_all_partitions_in_order_and_ends_at_the_high_watermark(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic(partitions=3)
    kafka.produce(topic, numbered(300), key=lambda value: str(value["id"]))
    reading = subtask(topics=[topic], end="latest")
    kafka.produce(topic, numbered(10, start=300))  # beyond the end

    values = reading.read_to_end(max_records=50)

    assert sorted(ids(values)) == list(range(300))
    by_partition: dict[int, list[int]] = {}
    for batch in reading.batches:
        for value, context in zip(batch.values, batch.context, strict=True):
            by_partition.setdefault(context.partition, []).append(value["id"])
    assert len(by_partition) == 3
    assert all(seen == sorted(seen) for seen in by_partition.values())
    assert reading.poll() is END


def test_every_partition_belongs_to_exactly_one_subtask_even_with_more_subtasks_than_partitions(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic(partitions=3)
    kafka.produce(topic, numbered(60), key=lambda value: str(value["id"]))
    subtasks = [subtask(i, 5, topics=[topic], end="latest") for i in range(5)]

    read = [ids(one.read_to_end()) for one in subtasks]
    states = [one.reader.snapshot(1, 0) for one in subtasks]

    assert sorted(i for part in read for i in part) == list(range(60))
    assert sorted(len(state["splits"]) for state in states) == [0, 0, 1, 1, 1]


def test_an_idle_subtask_of_an_unbounded_source_goes_on_and_can_be_checkpointed(
    make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    subtasks = [subtask(i, 2, topics=[topic]) for i in range(2)]

    assert all(one.stays_silent() for one in subtasks)
    assert sorted(list(one.positions().items()) for one in subtasks) == [[], [((topic, 0), 0)]]


def test_an_idle_topic_neither_ends_nor_stops_checkpoints(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    reading = subtask(topics=[topic])

    assert reading.stays_silent()
    assert reading.positions() == {(topic, 0): 0}  # the assigned offset, before any message
    kafka.produce(topic, numbered(1))
    assert ids(reading.read(1)) == [0]


def test_a_pattern_matches_whole_names(kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    first, second = make_topic("a"), make_topic("b")
    kafka.produce(first, [{"id": 1}])
    kafka.produce(second, [{"id": 2}])

    assert sorted(ids(subtask(pattern=f"{first}|{second}", end="latest").read_to_end())) == [1, 2]
    assert ids(subtask(pattern=f"{first}|{second[:-1]}", end="latest").read_to_end()) == [1]


def test_a_partition_added_later_is_found_and_read_from_its_beginning(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    reading = subtask(topics=[topic], start="latest", discovery_interval=0.1)
    reading.reader.pause()  # one found while the source is closed waits for it to open
    kafka.add_partitions(topic, 2)
    _produce(kafka, topic, b'{"id": 7}', partition=1)
    while (topic, 1) not in reading.positions():
        assert reading.poll() is None
    reading.reader.resume()

    assert ids(reading.read(1)) == [7]
    assert reading.positions()[topic, 1] == 1


def test_a_topic_created_later_is_found_by_its_pattern_and_read_from_its_beginning(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    first = make_topic("a")
    reading = subtask(pattern=re.escape(first) + "(-more)?", start="latest", discovery_interval=0.1)
    assert reading.positions() == {(first, 0): 0}
    kafka.create_topic(f"{first}-more")
    kafka.create_topic(f"{first}-moreover")
    for topic in (f"{first}-more", f"{first}-moreover"):
        kafka.produce(topic, [{"id": 7}])

    assert ids(reading.read(1)) == [7]
    assert reading.positions() == {(first, 0): 0, (f"{first}-more", 0): 1}


# -- transactions ----------------------------------------------------------------------------------------------------


def test_a_bounded_read_ends_although_the_last_offset_is_a_marker(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    producer = _transactional(kafka, topic)
    _in_transaction(producer, topic, 10, commit=True)
    eventually(lambda: kafka.end_offsets(topic) == {0: 11})  # markers come a moment after the commit

    reading = subtask(topics=[topic], end="latest")

    assert ids(reading.read_to_end()) == list(range(10))
    assert reading.positions() == {(topic, 0): 11}


def test_a_bounded_read_ends_although_the_last_records_were_aborted(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    producer = _transactional(kafka, topic)
    _in_transaction(producer, topic, 10, commit=True)
    _in_transaction(producer, topic, 10, commit=False)
    eventually(lambda: kafka.end_offsets(topic) == {0: 22})

    reading = subtask(topics=[topic], end="latest")

    assert ids(reading.read_to_end()) == list(range(10))
    assert reading.positions() == {(topic, 0): 22}


def test_a_bounded_read_waits_for_a_transaction_that_was_open_at_its_start(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    producer = _transactional(kafka, topic)
    producer.begin_transaction()
    _fill(producer, topic, 5)

    reading = subtask(topics=[topic], end="latest")
    assert reading.stays_silent()
    producer.commit_transaction()

    assert ids(reading.read_to_end()) == list(range(5))


def test_a_topic_emptied_by_deletion_ends_at_once(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(5))
    _delete_before(kafka, topic, 5)

    reading = subtask(topics=[topic], end="latest")

    assert reading.read_to_end() == []
    assert reading.positions() == {(topic, 0): 5}


def test_positions_step_over_markers(kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    """Offset arithmetic would say 2 after the second record, and find "lag" where there is none."""
    topic = make_topic()
    producer = _transactional(kafka, topic)
    for _ in range(2):
        _in_transaction(producer, topic, 1, commit=True)

    reading = subtask(topics=[topic])
    reading.read(2)
    while reading.positions() != {(topic, 0): 4}:
        assert reading.poll() is None


@pytest.mark.parametrize(("level", "expected"), [("read_committed", [1, 2, 3]), ("read_uncommitted", [3])])
def test_latest_starts_in_front_of_an_open_transaction_whose_records_may_become_visible(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, level: str, expected: list[int]
) -> None:
    topic = make_topic()
    kafka.produce(topic, [{"id": 0}])
    producer = _transactional(kafka, topic)
    producer.begin_transaction()
    for i in (1, 2):
        producer.produce(topic, b'{"id": %d}' % i, partition=0)
    assert producer.flush(10) == 0
    reading = subtask(topics=[topic], start="latest", config={"isolation.level": level})
    kafka.produce(topic, [{"id": 3}])
    producer.commit_transaction(30)

    assert ids(reading.read(len(expected))) == expected


# -- starts and ends -------------------------------------------------------------------------------------------------


def test_latest_starts_behind_what_is_there(kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(5))
    reading = subtask(topics=[topic], start="latest")
    kafka.produce(topic, numbered(2, start=5))

    assert ids(reading.read(2)) == [5, 6]


def test_explicit_offsets_name_partitions_or_topics_and_the_rest_starts_at_the_beginning(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    first, second = make_topic("a", partitions=2), make_topic("b")
    for topic, partition in ((first, 0), (first, 1), (second, 0)):
        for i in range(4):
            _produce(kafka, topic, b'{"id": %d}' % i, partition=partition)

    reading = subtask(
        topics=[first, second],
        start={(first, 1): 3, second: 2},
        end={(first, 0): 2, first: 4, second: 3},  # the first offset that is not read
    )
    reading.read_to_end()

    read = [
        (context.topic, context.partition, context.offset) for batch in reading.batches for context in batch.context
    ]
    assert sorted(read) == sorted([(first, 0, 0), (first, 0, 1), (first, 1, 3), (second, 0, 2)])


def test_an_explicit_end_that_does_not_exist_yet_is_waited_for(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, numbered(3))
    reading = subtask(topics=[topic], end={topic: 5})

    assert ids(reading.read(3)) == [0, 1, 2]
    assert reading.stays_silent()
    kafka.produce(topic, numbered(3, start=3))
    assert ids(reading.read_to_end()) == [3, 4]


def test_a_timestamp_starts_and_ends_at_the_first_record_of_that_time(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    base = int(time.time() * 1000) - 10_000
    for i in range(5):
        _produce(kafka, topic, b'{"id": %d}' % i, timestamp=base + i * 100)

    reading = subtask(topics=[topic], start={"timestamp": base + 50}, end={"timestamp": base + 300})

    assert ids(reading.read_to_end()) == [1, 2]
    assert reading.batches[0].timestamps[0] == base + 100


def test_group_starts_at_committed_offsets_and_elsewhere_at_the_beginning(
    kafka: KafkaBroker, make_topic: MakeTopic, unique_name: Callable[[str], str], subtask: OpenSubtask
) -> None:
    topic, group = make_topic(partitions=2), unique_name("group")
    for partition in (0, 1):
        for i in range(3):
            _produce(kafka, topic, b'{"id": %d}' % (10 * partition + i), partition=partition)
    _commit(kafka, group, TopicPartition(topic, 0, 2))

    reading = subtask(topics=[topic], start="group", group_id=group, end="latest")

    assert sorted(ids(reading.read_to_end())) == [2, 10, 11, 12]


@pytest.mark.parametrize("option", ["start", "end"])
def test_offsets_of_partitions_that_do_not_exist_are_refused(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, option: str
) -> None:
    topic = make_topic()
    offsets = {option: {(topic, 5): 0, topic: 0}}

    with pytest.raises(ValueError, match=rf"{option} names .*5.*doesn't exist"):
        KafkaSource(kafka.bootstrap_servers, topics=[topic], **offsets).validate()
    with pytest.raises(ValueError, match=rf"{option} names .*5.*doesn't exist"):
        subtask(topics=[topic], **offsets)


def test_an_explicit_end_must_name_every_partition(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic(partitions=3)
    says = rf"end names no offset for {topic}\[1\], {topic}\[2\], which would never end"

    with pytest.raises(ValueError, match=says):
        KafkaSource(kafka.bootstrap_servers, topics=[topic], end={(topic, 0): 3}).validate()
    with pytest.raises(ValueError, match=says):
        subtask(topics=[topic], end={(topic, 0): 3})  # as a partition may come between the two looks
    KafkaSource(kafka.bootstrap_servers, topics=[topic], end={(topic, 0): 3, topic: 0}).validate()


# -- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value_format", "sent", "expected"),
    [
        ("json", b'{"a": [1, 2.5, "\xc3\xa4"]}', {"a": [1, 2.5, "ä"]}),
        ("str", b"\xc3\xa4", "ä"),
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("json", None, None),
        ("str", None, None),
        ("bytes", None, None),
    ],
)
def test_values_are_decoded_and_tombstones_are_none(
    kafka: KafkaBroker,
    make_topic: MakeTopic,
    subtask: OpenSubtask,
    value_format: str,
    sent: bytes | None,
    expected: object,
) -> None:
    topic = make_topic()
    _produce(kafka, topic, sent, key=b"k")

    assert subtask(topics=[topic], value_format=value_format, end="latest").read_to_end() == [expected]


def test_a_record_tells_where_it_comes_from(kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    topic = make_topic(partitions=2)
    _produce(kafka, topic, b"{}", partition=1, key="schlüssel".encode(), headers=[("h", b"1"), ("h", None)])
    batch = subtask(topics=[topic], key_format="str").next_batch()
    context = batch.context[0]

    assert (context.topic, context.partition, context.offset) == (topic, 1, 0)
    assert context.kafka_key == "schlüssel"
    assert context.headers == [("h", b"1"), ("h", None)]
    assert batch.size == len(b"{}") + len("schlüssel".encode())


def test_records_tell_their_partition_where_watermarks_are_made_by_partition(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic(partitions=3)
    kafka.produce(topic, [{"n": i} for i in range(40)], key=lambda v: str(v["n"]).encode())
    one = subtask(topics=[topic], value_format="json", end="latest", track_splits=True)
    everything = {(topic, k) for k in range(3)}
    assert set(one.reader.splits()) == everything
    seen = set()
    while (batch := one.poll()) is not END:
        if batch is not None:
            assert batch.splits == [(row.topic, row.partition) for row in batch.context]
            assert set(batch.splits) <= set(one.reader.splits())
            seen |= set(batch.splits)
    assert seen == everything
    assert one.reader.splits() == []


def test_partitions_of_records_are_not_looked_up_where_nobody_asks(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, [b"x"])
    assert subtask(topics=[topic], value_format="bytes").next_batch().splits is None


def test_a_key_of_another_format_is_an_error_when_it_is_looked_at(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    _produce(kafka, topic, b"{}", key=b"\xff")
    context = subtask(topics=[topic], key_format="str").next_batch().context[0]

    with pytest.raises(BadRecord, match=rf"{topic}\[0\] offset 0: the key is not str"):
        _ = context.kafka_key


def test_an_undecodable_value_stops_the_source_in_front_of_it(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, [b'{"id": 0}', b'{"id": 1}', b"{broken" + b"x" * 1000])
    reading = subtask(topics=[topic])

    with pytest.raises(BadRecord) as caught:
        reading.read(3)

    text = str(caught.value)
    assert f"{topic}[0] offset 2" in text
    assert "{broken" in text
    assert 'on_bad_record="skip"' in text
    assert len(text) < 700
    assert reading.positions(emitted=0)[topic, 0] <= 2


def test_undecodable_values_are_skipped_and_counted_on_request(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, [b'{"id": 0}', b"{broken", b'{"id": 2}', b"\xff"])
    reading = subtask(topics=[topic], on_bad_record="skip", end="latest")

    assert reading.metrics.counters == {"recordsSkipped": 0}, "so that its growth shows"
    assert ids(reading.read_to_end()) == [0, 2]
    assert reading.metrics.counters == {"recordsSkipped": 2}
    assert [context.offset for context in reading.batches[0].context] in ([0], [0, 2])


# -- what is refused -------------------------------------------------------------------------------------------------


def test_an_unknown_topic_is_refused_on_the_driver(kafka: KafkaBroker, unique_name: Callable[[str], str]) -> None:
    missing = unique_name("missing")

    with pytest.raises(ValueError, match=f"no topic {missing} at .*doesn't exist"):
        KafkaSource(kafka.bootstrap_servers, topics=[missing]).validate()
    with pytest.raises(ValueError, match=r"no topic .* matches the pattern"):
        KafkaSource(kafka.bootstrap_servers, pattern=missing).validate()


def test_an_unreachable_broker_is_named_with_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.kafka.source.VALIDATE_TIMEOUT_S", 1.0)

    with pytest.raises(KafkaUnavailable, match=r"127\.0\.0\.1:1 .*refused.*advertised\.listeners"):
        KafkaSource("127.0.0.1:1", topics=["t"]).validate()


def test_a_definition_is_sent_to_workers_and_a_reader_is_not(make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    topic = make_topic()
    source = pickle.loads(pickle.dumps(KafkaSource("127.0.0.1:1", topics=[topic])))

    assert repr(source) == f"KafkaSource('127.0.0.1:1', topics=('{topic}',))"
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        pickle.dumps(subtask(topics=[topic]).reader)


def test_a_reader_made_before_a_fork_is_refused_instead_of_hanging(make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    reader = subtask(topics=[make_topic()]).reader
    receive, send = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            reader.poll(1, 0)
            send.send("polled")
        except RuntimeError as e:
            send.send(str(e))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)

    assert receive.poll(10)
    assert "before a fork" in receive.recv()


# -- helpers ---------------------------------------------------------------------------------------------------------


def _produce(kafka: KafkaBroker, topic: str, value: bytes | None, **where: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, value, **where)
    assert producer.flush(10) == 0


def _transactional(kafka: KafkaBroker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    return producer


def _fill(producer: Producer, topic: str, n: int) -> None:
    for i in range(n):
        producer.produce(topic, b'{"id": %d}' % i, partition=0)
    assert producer.flush(10) == 0


def _in_transaction(producer: Producer, topic: str, n: int, commit: bool) -> None:
    producer.begin_transaction()
    _fill(producer, topic, n)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def _delete_before(kafka: KafkaBroker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(60)


def _commit(kafka: KafkaBroker, group: str, *offsets: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()


def test_new_partitions_are_looked_for_by_default(unique_name: Callable[[str], str]) -> None:
    for options, seconds in (
        ({}, 30.0),
        ({"discovery_interval": 5}, 5.0),
        ({"discovery_interval": None}, None),
        ({"end": "latest"}, None),
    ):
        source = KafkaSource("nowhere:1", topics=["t"], **options)  # type: ignore[arg-type]
        assert source.options.look_every == seconds


@pytest.mark.parametrize("end", [None, "latest"])
def test_partitions_that_are_not_read_are_told_of_and_counted_in_the_lag(
    kafka: KafkaBroker,
    make_topic: MakeTopic,
    subtask: OpenSubtask,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    end: Any,
) -> None:
    monkeypatch.setattr(discovery, "DISCOVERY_S", 0.2)
    topic = make_topic(partitions=1)
    kafka.produce(topic, numbered(140))
    reading = subtask(topics=[topic], discovery_interval=None, end=end, rate_limit=None if end is None else 1)
    if end is None:
        reading.read(140)
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, numbered(60, start=140), partition=1)

    def told() -> bool:
        reading.poll(1)
        return f"{topic}[1] has appeared and is not read" in caplog.text

    eventually(told)
    assert ("discovery_interval=None" in caplog.text) == (end is None)
    if end is None:
        eventually(lambda: reading.poll() or reading.metrics.gauges.get("recordsLag") == 60)
