"""A KafkaSource with format objects: batches of columns, and records of a schema registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pipeline.testing import KafkaBroker, SchemaRegistry
from sources import ArrowJson, Avro, KafkaSource
from sources.kafka import BadRecord

MakeTopic = Callable[..., str]
OpenSubtask = Callable[..., Any]

IDS = ArrowJson(pa.schema([("id", pa.int64())]))
TIMED = ArrowJson(pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms", "UTC"))]))
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def values_of(batches: list[Any]) -> list[Any]:
    return [row for batch in batches for row in batch.values.to_pylist()]


def test_arrow_json_hands_over_record_batches_with_what_belongs_to_each_row(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic(partitions=2)
    kafka.produce(
        topic,
        [{"id": i, "more": "x"} for i in range(100)],
        key=lambda v: f"k{v['id']}",
        partition=lambda v: v["id"] % 2,
    )
    reading = subtask(topics=[topic], value_format=IDS, key_format="str", track_splits=True)
    rows = 0
    while rows < 100:
        batch = reading.next_batch()
        assert isinstance(batch.values, pa.RecordBatch)
        assert batch.values.schema == IDS.schema
        for row, context, split in zip(batch.values.to_pylist(), batch.context, batch.splits, strict=True):
            assert context.kafka_key == f"k{row['id']}"
            assert split == (topic, row["id"] % 2)
            assert context.offset == row["id"] // 2
        assert len(batch.timestamps) == len(batch)
        rows += len(batch)


def test_a_barrier_in_the_middle_of_a_batch_stands_behind_the_rows_emitted(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    kafka.produce(topic, [b'{"id": 0}', b"{bad", b'{"id": 2}', b'{"id": 3}', b'{"id": 4}'])
    reading = subtask(topics=[topic], value_format=IDS, on_bad_record="skip", end="latest")
    batches = []
    while sum(map(len, batches)) < 4:
        batches.append(reading.next_batch())
    last = len(batches[-1])
    assert reading.positions(emitted=last) == {(topic, 0): 5}
    for back in range(1, min(3, last) + 1):
        state = reading.reader.snapshot(1, last - back)
        again = subtask(topics=[topic], value_format=IDS, on_bad_record="skip", end="latest", restored=[state])
        reread = []
        while (batch := again.poll()) is None or hasattr(batch, "values"):
            reread += [] if batch is None else batch.values.to_pylist()
        assert reread == values_of(batches)[4 - back :]


@pytest.mark.parametrize(
    "bad",
    [
        b"{bad",
        b"[1]",
        b'{"id": "1"}',
        b'{"id": 1.5}',
        b'{"id": "\xff"}',
        b"",
        None,
        b'{"id": 1, "at": 1700000000000000}',
    ],
)
def test_bad_rows_are_found_one_by_one(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, bad: bytes | None
) -> None:
    topic, dead = make_topic("in"), make_topic("dead")
    good = [b'{"id": %d}' % i for i in range(20)]
    kafka.produce(topic, [bad, *good[:7], bad, bad, *good[7:], bad])
    reading = subtask(topics=[topic], value_format=TIMED, on_bad_record=dead, end="latest", start={(topic, 0): 0})
    rows = []
    while (batch := reading.poll()) is None or hasattr(batch, "values"):
        rows += [] if batch is None else batch.values.to_pylist()
    assert rows == [{"id": i, "at": None} for i in range(20)]
    written = kafka.consume(dead)
    assert [record.value for record in written] == [bad] * 4
    assert [dict(record.headers)["weir.source.offset"] for record in written] == [b"0", b"8", b"9", b"23"]

    failing = subtask(topics=[topic], value_format=TIMED)
    with pytest.raises(BadRecord, match=rf"{topic}\[0\] offset 0: the value is not ArrowJson"):
        failing.next_batch()


def test_avro_values_and_keys_are_decoded_with_the_registry(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    with SchemaRegistry() as registry:
        avro = Avro(registry.url, ORDER)
        value, key = avro.encoder("value"), avro.encoder("key")
        kafka.produce(topic, [value({"id": i}, topic) for i in range(3)], key=lambda v: key({"id": 7}, topic))
        kafka.produce(topic, [None, b"\x00\x00\x00\x00\x63x", b"plain"])
        options: dict[str, Any] = {"topics": [topic], "value_format": Avro(registry.url), "key_format": avro}
        KafkaSource(kafka.bootstrap_servers, **options).validate()
        with pytest.raises(ValueError, match="config of Avro is not what"):
            KafkaSource(
                kafka.bootstrap_servers, **options | {"key_format": Avro(registry.url, config={"no": 1})}
            ).validate()
        reading = subtask(**options, on_bad_record="skip", end="latest")
        assert reading.read_to_end() == [{"id": 0}, {"id": 1}, {"id": 2}, None]
        assert reading.metrics.counters["recordsSkipped"] == 2
        assert reading.batches[0].context[0].kafka_key == {"id": 7}


def test_records_are_never_skipped_because_the_registry_is_down(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask
) -> None:
    topic = make_topic()
    with SchemaRegistry() as registry:
        avro = Avro({"url": registry.url, "max.retries": 0}, ORDER)
        kafka.produce(topic, [avro.encoder("value")({"id": 1}, topic)])
        reading = subtask(topics=[topic], value_format=avro, on_bad_record="skip", end="latest")
        registry.fail_with = 503
        with pytest.raises(RuntimeError, match=r"schema registry at .* refuses"):
            reading.next_batch()
        assert reading.metrics.counters["recordsSkipped"] == 0
        with pytest.raises(RuntimeError, match=r"schema registry at .* refuses"):
            KafkaSource(kafka.bootstrap_servers, topics=[topic], value_format=avro).validate()
