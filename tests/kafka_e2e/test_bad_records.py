"""Bad records in whole jobs: a crash loses none of those that were on their way to the topic for dead letters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import CheckpointConfig, Pipeline, RestartStrategy
from pipeline.testing import KafkaBroker, failpoints
from sinks import KafkaSink
from sources import DeadLetter, KafkaSource


@pytest.mark.slow
def test_bad_records_behind_a_completed_checkpoint_survive_a_crash_before_they_are_delivered(
    kafka: KafkaBroker, spark: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The producer keeps each of them for longer than from one checkpoint to the crash behind it."""
    topic, dead, out = unique_name("in"), unique_name("dead"), unique_name("out")
    for name in (topic, dead, out):
        kafka.create_topic(name)
    values = [b'{"id":%d}' % i if i % 3 else b"{broken %d" % i for i in range(600)]
    kafka.produce(topic, values)
    pipeline = Pipeline(
        unique_name("job"),
        checkpoints=CheckpointConfig(tmp_path.as_uri(), interval=0.3),
        restart=RestartStrategy.fixed_delay(attempts=3, delay=0.1),
    )
    slowly = DeadLetter(dead, config={"linger.ms": 3000})
    source = KafkaSource(kafka.bootstrap_servers, [topic], end="latest", on_bad_record=slowly, rate_limit=200)
    pipeline.source("in", source).sink("out", KafkaSink(kafka.bootstrap_servers, topic=out))
    with failpoints.crash("source.before_snapshot", nth=5) as crash:
        handle = pipeline.start(spark=spark)
        handle.wait(300)
    assert crash.fired
    assert handle.restarts == 1

    assert [record.value for record in kafka.consume(out)] == [value for value in values if b"id" in value]
    assert {record.value for record in kafka.consume(dead)} == {value for value in values if b"broken" in value}
