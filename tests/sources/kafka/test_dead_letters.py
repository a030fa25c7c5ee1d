"""Bad records of a KafkaSource that go to a topic of their own: whole, with their story, and never lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ormsgpack
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from pipeline.testing import KafkaBroker
from sources import END, DeadLetter, KafkaSource, SourceBatch
from sources.kafka import BadRecord
from sources.kafka.letters import Letter

MakeTopic = Callable[..., str]
OpenSubtask = Callable[..., Any]

BAD = b"{broken"
HELD_BACK = {"linger.ms": 200_000}
"""The producer sends nothing before a test is over."""


def stored(*states: Any) -> list[Any]:
    """As they come back from a checkpoint."""
    return [ormsgpack.unpackb(ormsgpack.packb(state)) for state in states]


def letter(offset: int, topic: str = "t", partition: int = 0, value: bytes | None = BAD) -> Letter:
    return Letter(topic, partition, offset, 1_700_000_000_000, None, value, (("h", None),), "not JSON", "E")


def test_a_bad_record_is_written_as_it_was_with_its_story_in_headers(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic, dead = make_topic("in", partitions=2), make_topic("dead")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("h", None)]
    producer.produce(topic, BAD, b"\x00key", partition=1, headers=headers, timestamp=1_700_000_000_000)
    producer.produce(topic, b'{"id": 1}', partition=1)
    producer.produce(topic, b"\xff", partition=0)
    assert producer.flush(10) == 0

    reading = subtask(topics=[topic], on_bad_record=dead, end="latest")
    assert reading.read_to_end() == [{"id": 1}]  # ends once all of them are delivered

    first, second = sorted(_messages(kafka, dead), key=lambda m: m.value() or b"")
    assert (first.key(), first.value()) == (b"\x00key", BAD)
    written = first.headers()
    assert written is not None
    assert written[:2] == [("h", b"1"), ("h", None)]
    told = dict(written[2:])
    assert b"unexpected character" in (told.pop("weir.error.reason") or b"")
    assert (told.pop("weir.error.class") or b"").endswith(b"JSONDecodeError")
    assert told == {
        "weir.pipeline": b"p",
        "weir.source.id": b"in",
        "weir.source.topic": topic.encode(),
        "weir.source.partition": b"1",
        "weir.source.offset": b"0",
        "weir.source.timestamp": b"1700000000000",
    }
    assert (second.key(), second.value()) == (None, b"\xff")
    assert reading.metrics.counters["recordsDeadLettered"] == 2
    assert reading.metrics.counters.get("recordsSkipped", 0) == 0


def test_what_is_not_delivered_is_in_the_snapshot_and_goes_out_after_a_restore_at_any_parallelism(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic, dead = make_topic("in", partitions=3), make_topic("dead")
    kafka.produce(topic, [BAD + b"%d" % i for i in range(30)], partition=lambda value: int(value[len(BAD) :]) % 3)
    held_back = DeadLetter(dead, config=HELD_BACK)
    reading = subtask(topics=[topic], on_bad_record=held_back)
    while sum(reading.positions(emitted=0).values()) < 30:
        assert reading.poll() is None
    state = reading.reader.snapshot(1, 0)
    assert len(state["dead_letters"]) == 30
    _abandon(reading)

    again = [subtask(i, 2, stored(state), topics=[topic], on_bad_record=dead) for i in range(2)]
    while any(one.reader.snapshot(2, 0)["dead_letters"] for one in again):
        assert all(one.poll() is None for one in again)

    values = [message.value() for message in _messages(kafka, dead)]
    assert sorted(values) == sorted(BAD + b"%d" % i for i in range(30))
    assert sum(one.metrics.counters.get("recordsDeadLettered", 0) for one in again) == 30


def test_a_snapshot_never_waits_for_a_delivery(kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    topic, dead = make_topic("in"), make_topic("dead")
    kafka.produce(topic, [BAD])
    reading = subtask(topics=[topic], on_bad_record=DeadLetter(dead, config=HELD_BACK))
    while not (state := reading.reader.snapshot(1, 0))["dead_letters"]:
        assert reading.poll() is None

    assert state["splits"][0][3] == 1  # the position is behind the record, which is in the state
    _abandon(reading)


def test_a_full_producer_is_backpressure(kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    topic, dead = make_topic("in"), make_topic("dead")
    kafka.produce(topic, [BAD + b"%d" % i for i in range(60)] + [b'{"id": 1}'])
    one_at_a_time = DeadLetter(dead, config={"queue.buffering.max.messages": 1, "linger.ms": 0})
    reading = subtask(topics=[topic], on_bad_record=one_at_a_time, end="latest")

    assert reading.read_to_end(max_records=50) == [{"id": 1}]
    assert [message.value() for message in _messages(kafka, dead)] == [BAD + b"%d" % i for i in range(60)]


def test_nothing_more_is_fetched_while_too_much_is_under_way(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic, dead = make_topic("in"), make_topic("dead")
    kafka.produce(topic, (BAD + b"x" * 100_000 for _ in range(100)))
    held_back = DeadLetter(dead, config={**HELD_BACK, "batch.size": 100_000_000})
    reading = subtask(topics=[topic], on_bad_record=held_back, fetch_budget=4 * 1024 * 1024, value_format="json")
    while not reading.reader._bad_records.full:
        assert reading.poll() is None
    position = reading.positions(emitted=0)
    assert reading.stays_silent()
    assert reading.positions(emitted=0) == position
    assert sum(one.size for one in reading.reader._bad_records.pending) < 1024 * 1024
    _abandon(reading)


def test_a_delivery_that_fails_stops_the_source_with_what_to_do(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic, dead = make_topic("in"), make_topic("dead", config={"max.message.bytes": 1000})
    kafka.produce(topic, [BAD + b"x" * 2000])
    reading = subtask(topics=[topic], on_bad_record=dead)

    with pytest.raises(RuntimeError, match=rf"dead letter of {topic}\[0\] offset 0 .* to the topic {dead}: .*Raise"):
        reading.next_batch()


def test_a_record_as_large_as_its_topic_allows_can_become_a_dead_letter(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic("in", config={"max.message.bytes": 5_000_000})
    dead = make_topic("dead", config={"max.message.bytes": 5_001_000})
    large = BAD + b"x" * 4_999_000
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": 5_000_000})
    producer.produce(topic, large)
    assert producer.flush(10) == 0

    assert subtask(topics=[topic], on_bad_record=dead, end="latest").read_to_end() == []
    assert [message.value() for message in _messages(kafka, dead)] == [large]


def test_a_topic_that_is_called_skip_needs_the_long_form(
    kafka: KafkaBroker, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> None:
    topic = make_topic("in")
    assert KafkaSource("b:1", topics=["t"], on_bad_record="skip").options.dead_letters is None
    assert KafkaSource("b:1", topics=["t"], on_bad_record=DeadLetter("skip")).options.dead_letters is not None
    missing = unique_name("skp")
    with pytest.raises(ValueError, match=f'{missing}.* is neither "fail" nor "skip".*doesn\'t exist'):
        KafkaSource(kafka.bootstrap_servers, topics=[topic], on_bad_record=missing).validate()
    with pytest.raises(ValueError, match=r"__consumer_offsets.* is internal to Kafka"):
        KafkaSource(kafka.bootstrap_servers, topics=[topic], on_bad_record="__consumer_offsets").validate()


def test_letters_of_a_checkpoint_are_not_lost_by_another_policy(make_topic: MakeTopic, subtask: OpenSubtask) -> None:
    topic = make_topic()
    state = subtask(topics=[topic]).reader.snapshot(1, 0)
    state["dead_letters"] = [letter(offset, topic).to_wire() for offset in (3, 5)]

    with pytest.raises(BadRecord, match=rf"2 bad records .* the first is {topic}\[0\] offset 3 \(not JSON\)"):
        subtask(topics=[topic], restored=stored(state))
    skipping = subtask(topics=[topic], restored=stored(state), on_bad_record="skip")
    assert skipping.metrics.counters == {"recordsSkipped": 2}
    assert skipping.reader.snapshot(2, 0)["dead_letters"] == []


def test_a_letter_comes_back_from_a_checkpoint_as_it_was() -> None:
    for one in (letter(1), letter(2, value=None)):
        assert Letter.from_wire(stored(one.to_wire())[0]) == one


@pytest.mark.parametrize("reason", ["\ud800", "x" * 5000, ""])
def test_any_reason_can_be_kept_in_a_checkpoint(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, reason: str
) -> None:
    topic = make_topic()
    kafka.produce(topic, [BAD])
    reading = subtask(topics=[topic], value_format="bytes")
    (message,) = [context._message for context in reading.next_batch().context]
    kept = Letter.of(message, ValueError(reason))

    assert Letter.from_wire(stored(kept.to_wire())[0]) == kept
    assert len(kept.reason) <= 1000


def test_good_and_bad_records_of_a_batch_cut_by_a_barrier_are_all_accounted_for(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    """Every good record is emitted once; every bad one is written, those behind the barrier maybe twice."""
    topic, dead = make_topic("in"), make_topic("dead")
    values = [b'{"id": %d}' % i if i % 2 else BAD + b"%d" % i for i in range(40)]
    kafka.produce(topic, values)
    options = {"topics": [topic], "on_bad_record": dead}
    emitted: list[int] = []
    states: list[Any] | None = None
    for _ in range(4):
        reading = subtask(restored=states, **options, end={topic: 40})
        batch = reading.poll(11, timeout=5)
        sent = len(batch) // 2 if isinstance(batch, SourceBatch) else 0
        emitted += [value["id"] for value in batch.values[:sent]] if sent else []
        states = stored(reading.reader.snapshot(1, sent))
        reading.close()
    last = subtask(restored=states, **options, end={topic: 40})
    emitted += [value["id"] for value in last.read_to_end()]
    assert last.poll() is END

    assert emitted == [i for i in range(40) if i % 2]
    assert {m.value() for m in _messages(kafka, dead)} == {v for v in values if v.startswith(BAD)}


# -- helpers ---------------------------------------------------------------------------------------------------------


def _messages(kafka: KafkaBroker, topic: str) -> list[Message]:
    """All messages of its only partition."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "dead-letters"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Message] = []
        deadline = time.monotonic() + 20
        while len(messages) < high:
            assert time.monotonic() < deadline
            messages += consumer.consume(high - len(messages), 0.1)
        return messages
    finally:
        consumer.close()


def _abandon(reading: Any) -> None:
    """As in a crash: what the producer has not sent yet it never sends."""
    reading.reader._bad_records._producer.purge()
    reading.close()
