"""Fixtures of the sinks' tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.testing.kafka import KafkaBroker

sys.path.insert(0, str(Path(__file__).parent))  # for kafka_sink_helpers, which also runs as a program

from kafka_sink_helpers import Job

JobMaker = Callable[..., Job]


@pytest.fixture
def make_job(
    kafka: KafkaBroker, make_topic: Callable[..., str], unique_name: Callable[[str], str], tmp_path: Path
) -> JobMaker:
    """`make_job(partitions=2, topic_config={…}, **options of the sink)`: a job that writes to a topic of its own."""

    def make(partitions: int = 1, topic_config: dict[str, object] | None = None, **options: Any) -> Job:
        folder = tmp_path / "shared"
        folder.mkdir(exist_ok=True)
        topic = make_topic("out", partitions, topic_config)
        return Job(kafka.bootstrap_servers, topic, unique_name("job"), folder, options=options)

    return make


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[KafkaBroker]:
    """A broker that may be killed."""
    with KafkaBroker.start(kind="native") as broker:
        yield broker
