"""One Spark context for all jobs of a test run: starting a JVM takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.runtime.driver.spark.spark_job import local_context

SLOTS = 32


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local `SparkContext` with 32 slots. PySpark allows one in a process, so every folder of tests that imports
    this fixture into its conftest gets the same; whoever made it stops it."""
    from pyspark import SparkContext

    active = SparkContext._active_spark_context
    if active is not None:
        yield active
        return
    context = local_context(SLOTS, "weir tests")
    yield context
    context.stop()
