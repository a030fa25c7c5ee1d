"""A KafkaSink that writes with a schema registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_sink_helpers import FolderStaging, Job, batch

from pipeline.testing import SchemaRegistry
from sinks import Avro
from sinks.kafka.errors import RecordRefused
from sinks.kafka.segments import read_segment

JobMaker = Callable[..., Job]

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "k", "type": "string"}]}
KEY = {"type": "string"}


def staged(job: Job, committables: list[Any], name: str) -> list[Any]:
    staging = FolderStaging(job.folder)
    pieces = [rows for c in committables for file in c.files for rows in read_segment(staging.read(file))]
    return [item for rows in pieces for item in getattr(rows, name)]


def test_values_and_keys_are_written_with_the_schema_of_their_topic(
    make_job: JobMaker, make_topic: Callable[..., str]
) -> None:
    other = make_topic("other")
    with SchemaRegistry() as registry:
        value, key = Avro(registry.url, ORDER), Avro(registry.url, KEY)
        job = make_job(value_format=value, key_format=key)
        first = job.topic
        job.sink.validate()
        assert registry.schemas(f"{first}-value") == []  # that changes nothing
        job.options["topic"] = lambda record: other if record and record["id"] % 2 else first
        job.options["key"] = lambda record: record and record["k"]
        values = [{"id": i, "k": f"k{i}"} for i in range(4)]
        done = job.write(1, [*values, None])
        decode, decode_key = value.decoder("value"), key.decoder("key")
        written = staged(job, done, "values")
        assert [decode(one, first) for one in written[:4]] == values
        assert written[4] is None
        assert [decode_key(one, first) for one in staged(job, done, "keys")[:4]] == ["k0", "k1", "k2", "k3"]
        assert staged(job, done, "topics") == [first, other, first, other, first]
        for topic in (first, other):
            assert len(registry.schemas(f"{topic}-value")) == len(registry.schemas(f"{topic}-key")) == 1


def test_a_record_that_does_not_fit_is_named_and_a_registry_that_is_down_is_no_records_fault(
    make_job: JobMaker,
) -> None:
    with SchemaRegistry() as registry:
        job = make_job(value_format=Avro({"url": registry.url, "max.retries": 0}, ORDER))
        writer = job.writer()
        registry.fail_with = 503
        with pytest.raises(RuntimeError, match=r"schema registry at .* refuses") as down:
            writer.write_batch(batch([{"id": 1, "k": "a"}]))
        assert not isinstance(down.value, RecordRefused)
        with pytest.raises(RuntimeError, match=r"schema registry at .* refuses"):
            job.sink.validate()
        registry.fail_with = None
        writer.write_batch(batch([{"id": 1, "k": "a"}]))
        with pytest.raises(RecordRefused, match=r"'k': 'bad'.*, where the schema has long"):
            writer.write_batch(batch([{"id": 1, "k": "a"}, {"id": "x", "k": "bad"}]))
        writer.close()


def test_a_schema_that_the_subject_does_not_take_is_refused_before_the_job_starts(make_job: JobMaker) -> None:
    with SchemaRegistry() as registry:
        job = make_job(value_format=Avro(registry.url, ORDER))
        registry.register(f"{job.topic}-value", {"type": "record", "name": "Order", "fields": []})
        with pytest.raises(ValueError, match=rf"refuses the schema for subject '{job.topic}-value'"):
            job.sink.validate()
