"""Fixtures of the tests of whole jobs, Kafka to Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_job import Stage
from spark_fixture import spark

from pipeline.testing import KafkaBroker

__all__ = ["spark"]


@pytest.fixture
def make_stage(kafka: KafkaBroker, unique_name: Callable[[str], str], tmp_path: Path) -> Callable[..., Stage]:
    """`make_stage(1600, partitions=2)`: topics with so many records of input, and a job's name and folder."""

    def make(n: int = 0, partitions: int = 2, broker: KafkaBroker | None = None) -> Stage:
        stage = Stage(broker or kafka, unique_name("job"), unique_name("in"), unique_name("out"), tmp_path / "chk")
        stage.create_topics(partitions)
        stage.produce(n)
        return stage

    return make


@pytest.fixture
def stage(make_stage: Callable[..., Stage]) -> Stage:
    """1,600 records in two partitions."""
    return make_stage(1600)
