"""One standalone cluster for all of these tests; each has drivers, and so executors, of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from spark_cluster import SparkCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers of four slots each."""
    with SparkCluster(tmp_path_factory.mktemp("spark") / "cluster") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a job keeps its checkpoints; known to exist."""
    path = tmp_path / "checkpoints"
    path.mkdir()
    return path
