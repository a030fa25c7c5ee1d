"""Records become segments, and what Kafka would refuse is refused while the record is in progress."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka_sink_helpers import FolderStaging, Job, NoMetrics, batch, records

from checkpoint.outage import FORGOTTEN_S, Outage
from checkpoint.waiting import Waiting
from pipeline.testing.kafka import KafkaBroker
from sinks import KafkaSink, SinkBatch, WriterContext
from sinks.kafka import writers
from sinks.kafka.errors import BrokerUnavailable, RecordRefused, TopicRefused
from sinks.kafka.rows import KafkaRows
from sinks.kafka.segments import read_segment
from sinks.kafka.writers import DirectWriter

JobMaker = Callable[..., Job]


def staged(job: Job, committables: list[Any]) -> list[KafkaRows]:
    staging = FolderStaging(job.folder)
    return [rows for c in committables for file in c.files for rows in read_segment(staging.read(file))]


def column(pieces: list[KafkaRows], name: str) -> list[Any]:
    return [item for rows in pieces for item in (getattr(rows, name) or [None] * len(rows))]


# -- segments ------------------------------------------------------------------------------------------------


def test_an_epoch_becomes_one_segment_with_its_records_in_order(make_job: JobMaker) -> None:
    job = make_job()
    committables = job.write(3, records(0, 10), records(10, 5))
    assert [(c.name.epoch, c.name.index, c.payload["rows"]) for c in committables] == [(3, 0, 15)]
    rows = staged(job, committables)
    assert [json.loads(v) for v in column(rows, "values")] == records(0, 15)
    assert column(rows, "keys") == [r["k"].encode() for r in records(0, 15)]
    assert {r.topic for r in rows} == {job.topic}


def test_an_empty_epoch_has_no_segment(make_job: JobMaker) -> None:
    assert make_job().write(1) == []
    assert make_job().write(1, []) == []


def test_segments_are_sealed_at_their_size_and_lose_nothing(make_job: JobMaker) -> None:
    job = make_job(max_transaction_bytes=2_000)
    committables = job.write(1, records(0, 100), records(100, 1), records(101, 99))
    assert len(committables) > 5
    assert all(c.payload["bytes"] <= 2_000 for c in committables)
    assert [c.name.index for c in committables] == list(range(len(committables)))
    assert [json.loads(v)["id"] for v in column(staged(job, committables), "values")] == list(range(200))


def test_a_record_larger_than_a_segment_has_one_of_its_own(make_job: JobMaker) -> None:
    job = make_job(max_transaction_bytes=2_000)
    committables = job.write(1, [*records(0, 2), {"k": "big", "id": "x" * 5_000}, *records(2, 2)])
    assert [c.payload["rows"] for c in committables] == [2, 1, 2]


def test_what_was_not_prepared_is_dropped_at_close(make_job: JobMaker) -> None:
    job = make_job()
    writer = job.writer()
    writer.write_batch(batch(records(0, 10)))
    writer.close()
    assert list(job.folder.iterdir()) == []


def test_every_column_comes_through_a_segment(make_job: JobMaker) -> None:
    job = make_job(
        partitions=3,
        headers=lambda r: {"id": str(r["id"]), "none": None} if r["id"] else None,
        timestamp="t",
        partitioner=lambda r, n: r["id"] % n,
    )
    now = int(time.time() * 1000)
    rows = staged(job, job.write(1, [{"k": None, "id": i, "t": now - i} for i in range(4)]))
    assert column(rows, "keys") == [None] * 4
    assert column(rows, "partitions") == [0, 1, 2, 0]
    assert column(rows, "timestamps") == [now - i for i in range(4)]
    assert column(rows, "headers")[0] is None
    assert column(rows, "headers")[2] == [("id", b"2"), ("none", None)]


def test_the_streams_timestamps_can_be_used(make_job: JobMaker) -> None:
    job = make_job(timestamp="record")
    writer = job.writer()
    now = int(time.time() * 1000)
    writer.write_batch(SinkBatch(records(0, 2), [now, None], [None, None]))
    [(_, files)] = writer.prepare_commit(1)
    assert [r.timestamps for r in read_segment(FolderStaging(job.folder).read(files[0]))] == [[now, None]]


def test_topics_may_be_chosen_for_each_record(make_job: JobMaker, make_topic: Callable[..., str]) -> None:
    job, other = make_job(), make_topic("other")
    first = job.topic
    job.options["topic"] = lambda r: other if r["id"] % 2 else first
    assert column(staged(job, job.write(1, records(0, 4))), "topics") == [first, other, first, other]


@pytest.mark.parametrize(
    ("options", "value", "key", "encoded"),
    [
        ({"value_format": "str", "key": lambda v: v[:1]}, "größe", b"g", "größe".encode()),
        ({"value_format": "bytes", "key": 0, "key_format": "json"}, b"\x00\xff", b"0", b"\x00\xff"),
        ({"key": 1}, [1, "b"], b"b", b'[1,"b"]'),
        ({"key": "n"}, {"n": 5}, b"5", b'{"n":5}'),
        ({"key": None}, None, None, None),
    ],
)
def test_formats(make_job: JobMaker, options: dict[str, Any], value: Any, key: bytes, encoded: bytes) -> None:
    job = make_job(**options)
    rows = staged(job, job.write(1, [value]))
    assert (column(rows, "keys"), column(rows, "values")) == ([key], [encoded])


# -- refusals ------------------------------------------------------------------------------------------------


def refused(job: Job, value: Any, match: str) -> str:
    writer = job.writer()
    writer.write_batch(batch(records(0, 3)))
    with pytest.raises(RecordRefused, match=match) as caught:
        writer.write_batch(batch([*records(3, 3), value]))
    assert "'out'" in str(caught.value)
    assert len(str(caught.value)) < 1000
    writer.close()
    return str(caught.value)


def test_a_record_over_the_topics_limit_is_refused_and_shown_shortened(make_job: JobMaker) -> None:
    job = make_job(topic_config={"max.message.bytes": 2_000})
    message = refused(job, {"k": "a", "id": "x" * 5_000}, r"max.message.bytes of topic '.*' allows 2000")
    assert "{'k': 'a', 'id': 'xxxx" in message
    assert "xxx…" in message


@pytest.mark.parametrize("headers", [None, lambda _: {"name": "value", "b": None}])
def test_the_size_limit_is_the_brokers_to_the_byte(kafka: KafkaBroker, make_job: JobMaker, headers: Any) -> None:
    job = make_job(
        topic_config={"max.message.bytes": 5_000}, value_format="bytes", key=lambda _: b"key", headers=headers
    )
    writer = job.writer()
    fits = 0
    for size in range(4_800, 5_000):
        try:
            writer.write_batch(batch([b"x" * size]))
            fits = size
        except RecordRefused:
            break
    assert 4_850 < fits < 4_950
    job.options["delivery"] = "at_least_once"
    direct = job.writer()
    direct.write_batch(batch([b"x" * fits]))
    direct.prepare_commit(1)
    assert [len(r.value or b"") for r in kafka.consume(job.topic)] == [fits]
    # One byte more, past Weir's check: the broker refuses it.
    job.alter_topic("max.message.bytes", "1000000")
    unchecked = job.writer()
    job.alter_topic("max.message.bytes", "5000")
    unchecked.write_batch(batch([b"x" * (fits + 1)]))
    with pytest.raises(RecordRefused, match="MSG_SIZE_TOO_LARGE"):
        unchecked.prepare_commit(1)


def test_a_limit_that_was_raised_meanwhile_is_seen(kafka: KafkaBroker, make_job: JobMaker) -> None:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    job = make_job(topic_config={"max.message.bytes": 2_000})
    writer = job.writer()
    entry = ConfigEntry("max.message.bytes", "10000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, job.topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(60)
    writer.write_batch(batch([{"k": "a", "id": "x" * 5_000}]))
    assert len(writer.prepare_commit(1)) == 1


def test_a_timestamp_out_of_the_topics_range_is_refused(make_job: JobMaker) -> None:
    job = make_job(topic_config={"message.timestamp.before.max.ms": 60_000}, timestamp=lambda r: r.get("t"))
    now = int(time.time() * 1000)
    refused(job, {"k": "a", "t": now - 120_000}, r"in the past, and message.timestamp.before.max.ms .* allows 60000")
    refused(job, {"k": "a", "t": now + 7_200_000}, r"in the future, and message.timestamp.after.max.ms")
    refused(job, {"k": "a", "t": 0}, "must be positive")
    refused(job, {"k": "a", "t": 1.5}, "milliseconds since 1970")


def test_a_topic_that_stamps_records_itself_takes_any_timestamp(make_job: JobMaker) -> None:
    job = make_job(topic_config={"message.timestamp.type": "LogAppendTime"}, timestamp=lambda _: 1)
    assert job.write(1, records(0, 1))[0].payload["rows"] == 1


def test_a_record_for_an_unknown_topic_is_refused(make_job: JobMaker) -> None:
    job = make_job()
    topic = job.topic
    job.options["topic"] = lambda r: r.get("topic", topic)
    refused(job, {"k": "a", "topic": "no-such-topic"}, r"topic 'no-such-topic' doesn't exist at .*create it")
    refused(job, {"k": "a", "topic": "no such"}, "not a valid name")
    refused(job, {"k": "a", "topic": "__consumer_offsets"}, "internal")
    refused(job, {"k": "a", "topic": 7}, "not the name of a topic")


@pytest.mark.parametrize("end", ["\0", "\ud800", "é", "t" * 250])
def test_a_name_that_no_topic_can_have_is_refused(make_job: JobMaker, end: str) -> None:
    job = make_job()
    topic = job.topic
    job.options["topic"] = lambda r: topic + (end if r.get("bad") else "")
    refused(job, {"k": "a", "bad": True}, "not a valid name")


def test_a_topic_that_came_into_being_meanwhile_is_seen(make_job: JobMaker, kafka: KafkaBroker) -> None:
    job = make_job()
    later = f"{job.topic}-later"
    topic = job.topic
    job.options["topic"] = lambda r: r.get("topic", topic)
    writer = job.writer()
    writer.write_batch(batch(records(0, 1)))
    kafka.create_topic(later)
    writer.write_batch(batch([{"k": "a", "topic": later}]))
    assert writer.prepare_commit(1)[0][0]["rows"] == 2


def test_a_record_for_an_unknown_partition_is_refused(make_job: JobMaker, kafka: KafkaBroker) -> None:
    job = make_job(partitions=2, partitioner=lambda r, n: r.get("p", 0))
    refused(job, {"k": "a", "p": 2}, r"partition 2, but topic .* has only the partitions 0 to 1")
    refused(job, {"k": "a", "p": -1}, "partition -1")
    refused(job, {"k": "a", "p": "0"}, "not an int")
    writer = job.writer()
    kafka.add_partitions(job.topic, 3)
    writer.write_batch(batch([{"k": "a", "p": 2}]))


def test_a_record_without_key_for_a_compacted_topic_is_refused(make_job: JobMaker) -> None:
    job = make_job(topic_config={"cleanup.policy": "compact"})
    refused(job, {"k": None}, "compacted")


@pytest.mark.parametrize(
    ("options", "value", "match"),
    [
        ({}, {"k": "a", "x": "\ud800"}, "lone surrogates"),
        ({}, {"k": "a", "x": object()}, "its value: .*can't be written as JSON"),
        ({}, {"other": 1}, r"key='k': KeyError: 'k'"),
        ({"value_format": "str", "key": None}, 5, 'value_format="str" takes str, not int'),
        ({"value_format": "str", "key": None}, "\udc80", "surrogates"),
        ({"value_format": "bytes", "key": None}, "text", "takes bytes, not str"),
        ({"headers": lambda r: {"h": r["k"]}}, {"k": 5}, "header 'h' is bytes, str or None"),
        ({"headers": lambda r: {r["k"]: b""}}, {"k": "a\0b"}, r"its headers: .*'a\\x00b' has a NUL"),
        ({"headers": lambda r: {chr(r["k"]): b""}}, {"k": 0xD800}, "its headers: .*surrogates"),
        ({"key": lambda r: 1 // r["k"]}, {"k": 0}, "ZeroDivisionError"),
        ({"key": "k"}, None, r"record None .*key='k': .*a tombstone.* has no fields\. Give key as a function"),
        ({"timestamp": "t", "key": None}, None, r"timestamp='t': .*a tombstone.*Give timestamp as a function"),
        ({"key": "k"}, 5, "key='k': TypeError: 'int' object is not subscriptable"),
    ],
)
def test_a_record_that_cannot_be_encoded_is_refused(
    make_job: JobMaker, options: dict[str, Any], value: Any, match: str
) -> None:
    job = make_job(**options)
    with pytest.raises(RecordRefused, match=match):
        job.writer().write_batch(batch([value]))


def test_an_unknown_topic_and_an_unreachable_broker_are_found_at_the_start(make_job: JobMaker) -> None:
    job = make_job()
    job.options["topic"] = "no-such-topic"
    for start in (job.sink.validate, job.writer):
        with pytest.raises(TopicRefused, match="no-such-topic"):
            start()


def test_an_unreachable_broker_is_an_error_that_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.kafka.validation.LOOKUP_TIMEOUT", 1.0)
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1 .*Check that it runs"):
        KafkaSink("127.0.0.1:1", topic="t").validate()


# -- options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"delivery": "exactly-once"}, r"delivery must be one of 'exactly_once', 'at_least_once', 'none'"),
        ({"value_format": "avro"}, "value_format must be one of"),
        ({"key_format": 1}, "key_format must be one of"),
        ({"on_marker_lost": "ignore"}, "on_marker_lost must be one of"),
        ({"max_transaction_bytes": 0}, "at least 1"),
        ({"max_transaction_bytes": "64m"}, "whole number of bytes"),
        ({"key": 1.5}, "key must be"),
        ({"headers": {"a": "b"}}, "headers must be a function"),
        ({"partitioner": "murmur2"}, "partitioner must be a function"),
        ({"topic": ""}, "topic must be"),
        ({"servers": None}, "servers must be"),
        ({"servers": "kafka://localhost:9092"}, "servers must be addresses such as"),
        ({"transactional_id_prefix": ""}, "transactional_id_prefix must be"),
        ({"config": {"transactional.id": "x"}}, "transactional_id_prefix"),
        ({"config": {"bootstrap.servers": "x"}}, "servers"),
        ({"config": {"enable.idempotence": False}}, "enable.idempotence"),
        ({"config": {"acks": 1}}, "acks=1"),
        ({"config": {"acks": "1"}, "delivery": "at_least_once"}, "acks='1'"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        KafkaSink(**{"servers": "localhost:9092", "topic": "t", **options})


def test_acks_may_be_chosen_where_nothing_is_promised() -> None:
    assert KafkaSink("localhost:9092", "t", delivery="none", config={"acks": 1}).config == {"acks": 1}


def test_settings_that_the_client_or_the_brokers_do_not_take_are_found_by_validate(make_job: JobMaker) -> None:
    for config, match in (
        ({"no.such.setting": 1}, "no.such.setting"),
        ({"transaction.timeout.ms": 3_600_000}, "900000"),
    ):
        job = make_job(config=config)
        with pytest.raises(ValueError, match=match):
            job.sink.validate()
    make_job(config={"transaction.timeout.ms": 30_000, "compression.type": "lz4"}).sink.validate()


# -- direct delivery -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["at_least_once", "none"])
def test_direct_delivery_writes_at_once_and_has_no_committer(
    kafka: KafkaBroker, make_job: JobMaker, delivery: str
) -> None:
    job = make_job(delivery=delivery)
    assert job.sink.create_committer(None) is None  # type: ignore[arg-type]
    assert job.sink.needs_checkpoints is False
    writer = job.writer()
    writer.write_batch(batch(records(0, 2_500)))
    assert list(writer.prepare_commit(1)) == []
    writer.close()
    assert [r.json()["id"] for r in kafka.consume(job.topic)] == list(range(2_500))


def test_at_least_once_has_delivered_when_the_barrier_leaves(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job(delivery="at_least_once", config={"linger.ms": 60_000, "queue.buffering.max.ms": 60_000})
    writer = job.writer()
    writer.write_batch(batch(records(0, 10)))
    writer.prepare_commit(1)
    assert len(kafka.consume(job.topic)) == 10


def test_a_full_queue_is_backpressure(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job(delivery="at_least_once", config={"queue.buffering.max.messages": 10})
    writer = job.writer()
    writer.write_batch(batch(records(0, 500)))
    writer.prepare_commit(1)
    assert [r.json()["id"] for r in kafka.consume(job.topic)] == list(range(500))


def test_batches_fit_the_smallest_limit_of_the_topics_met(
    kafka: KafkaBroker, make_job: JobMaker, make_topic: Callable[..., str]
) -> None:
    """What the producer before has not sent yet goes out first."""
    job = make_job(delivery="at_least_once", config={"linger.ms": 60_000})
    small = make_topic("small", 1, {"max.message.bytes": 3_000})
    large = job.topic
    job.options["topic"] = lambda r: small if r["id"] >= 500 else large
    writer = job.writer()
    writer.write_batch(batch(records(0, 500)))
    writer.write_batch(batch(records(500, 500)))
    writer.prepare_commit(1)
    for topic, ids in ((large, range(500)), (small, range(500, 1_000))):
        assert [r.json()["id"] for r in kafka.consume(topic)] == list(ids)


def test_a_direct_write_that_the_broker_refuses_fails_at_the_barrier(make_job: JobMaker) -> None:
    job = make_job(delivery="at_least_once", config={"topic.metadata.propagation.max.ms": 0})
    writer = job.writer()
    job.delete_topic()
    writer.write_batch(batch(records(0, 1)))
    with pytest.raises(RecordRefused, match=rf"topic '{job.topic}'"):
        writer.prepare_commit(1)
    writer.close()


def test_the_definition_names_a_subtask_by_its_own_ids(make_job: JobMaker) -> None:
    job = make_job()
    writer = job.sink.create_writer(WriterContext("p", "totals", 3, 4, FolderStaging(job.folder), NoMetrics()))
    writer.write_batch(batch(records(0, 1)))
    [(_, [file])] = writer.prepare_commit(1)
    assert "totals-3" in file.path


# -- brokers that are away, or refuse ------------------------------------------------------------------------


def test_a_refusal_of_long_ago_says_nothing_of_an_outage_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(writers, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(writers, "refuse_missing", lambda *arguments: None)
    waiting = Waiting(lambda: now)
    encoder: Any = None
    ctx: Any = SimpleNamespace(sink_id="out", subtask=0)
    outage = Outage(waiting, "the brokers", None, lambda: now)
    writer = DirectWriter(encoder, ctx, "kafka:9092", {}, "none", outage)

    def stalls(seconds: int) -> None:
        nonlocal now
        for _ in range(seconds):
            now += 1
            writer._on_stall(["t"])

    writer._on_client_error(KafkaError(KafkaError._AUTHENTICATION, "no such user"))
    now += FORGOTTEN_S
    stalls(100)
    assert [kind for _, _, kind in waiting.report()] == ["brokers"]
    writer._on_client_error(KafkaError(KafkaError._AUTHENTICATION, "no such user"))
    stalls(5)
    assert [kind for _, _, kind in waiting.report()] == ["credentials"]
    with pytest.raises(KafkaException, match="no such user"):
        stalls(10)
