"""Jobs with format objects: on record batches from the source on, and with a schema registry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from kafka_job import EXACT, RunningSum, Stage, expected, records

from pipeline import CheckpointConfig, Pipeline, RestartStrategy
from pipeline.testing import SchemaRegistry, failpoints
from sources import ArrowJson, Avro

TWO = pa.scalar(2, pa.int32())
SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string()), ("amount", pa.int32()), ("magic", pa.int64())])


def with_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.schema != SCHEMA:
        raise AssertionError(f"a batch came with {batch.schema}")
    return batch.append_column("twice", pc.multiply(batch["amount"], TWO))


def without_twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.schema.field("twice").type != pa.int32():
        raise AssertionError(f"a batch came with {batch.schema}")
    if not pc.all(pc.equal(batch["twice"], pc.multiply(batch["amount"], TWO))).as_py():
        raise AssertionError("a column is not the one that was made")
    return batch.drop_columns(["twice"])


def test_a_crash_of_a_job_on_record_batches_leaves_the_output_exact(stage: Stage, spark: Any) -> None:
    p = Pipeline(
        stage.name,
        parallelism=2,
        checkpoints=CheckpointConfig(stage.folder.as_uri(), interval=0.2, timeout=60.0),
        restart=RestartStrategy.fixed_delay(attempts=5, delay=0.05),
    )
    (
        p.source("in", stage.source(value_format=ArrowJson(SCHEMA)))
        .map_batches(with_types)
        .map_batches(without_twice)
        .key_by("key")
        .process("sum", RunningSum())
        .sink("out", stage.sink())
    )
    with failpoints.crash("subtask.after_acknowledge", nth=9) as point:
        handle = p.run(spark=spark, timeout=300)
    assert point.fired
    assert handle.restarts == 1
    assert stage.findings() == EXACT


def test_a_job_reads_and_writes_with_a_schema_registry(stage: Stage, spark: Any) -> None:
    fields = [{"name": name, "type": "string" if name == "key" else "long"} for name in SCHEMA.names]
    more = [{"name": name, "type": "long"} for name in ("number", "total")]
    given = records(300)
    with SchemaRegistry() as registry:
        source = Avro(registry.url, {"type": "record", "name": "In", "fields": fields})
        sink = Avro(registry.url, {"type": "record", "name": "Out", "fields": fields + more})
        topic = f"{stage.source_topic}-avro"
        stage.broker.create_topic(topic, 1)
        encode = source.encoder("value")
        stage.broker.produce(topic, [encode(record, topic) for record in given])
        avro = replace(stage, source_topic=topic, partitions=1)
        avro.pipeline(source=avro.source(value_format=source, rate_limit=None), sink=avro.sink(value_format=sink)).run(
            spark=spark, timeout=300
        )
        decode = sink.decoder("value")
        found = [decode(record.value, stage.out_topic) for record in stage.broker.consume(stage.out_topic)]
    assert {record["id"]: record for record in found} == expected(given)
    assert len(found) == len(given)
