"""A checkpoint that is given up while its `_metadata` is being written may become durable all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline import CheckpointConfig, Pipeline
from pipeline.testing import KafkaBroker, failpoints
from sinks import KafkaSink
from sources import SequenceSource

RECORDS = 150


def test_what_it_staged_still_goes_out_with_the_next_checkpoint(
    kafka: KafkaBroker,
    make_topic: Callable[..., str],
    unique_name: Callable[[str], str],
    tmp_path: Path,
    spark: Any,
) -> None:
    topic = make_topic("out")
    # Expires while it is being written; min pause keeps the next one, which would refer to the same segments, away
    # until the late write is noticed and the checkpoint is deleted.
    failpoints.stall("coordinator.before_metadata", 3.0, nth=2)
    config = CheckpointConfig(tmp_path.as_uri(), interval=0.5, timeout=2, min_pause=2, tolerable_failures=5)
    pipeline = Pipeline(unique_name("job"), checkpoints=config)
    source = SequenceSource(RECORDS, rate=25)
    pipeline.source("in", source).sink("out", KafkaSink(kafka.bootstrap_servers, topic=topic))
    handle = pipeline.run(spark=spark, timeout=300)
    assert [row.status for row in handle.checkpoints()].count("failed") == 1
    assert handle.restarts == 0
    assert sorted(record.json()["id"] for record in kafka.consume(topic)) == list(range(RECORDS))
