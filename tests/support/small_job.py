"""A small job for tests of what users do and get wrong: numbers the records of each key.

source → key_by → count → (what a test adds) → sink
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE

from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.storage import CheckpointStorage
from pipeline import (
    CheckpointConfig,
    JobFailed,
    JobHandle,
    KeyedOperator,
    Operator,
    Pipeline,
    RestartStrategy,
    ValueState,
)
from pipeline.streams import Stream
from pipeline.testing import TestingSink
from sinks import Sink
from sources import Source

NEVER: dict[str, Any] = {"interval": 3600.0, "first": "interval"}
"""Options of checkpoints for tests that ask for each one."""


class Count(KeyedOperator):
    """Numbers the records of each key."""

    count = ValueState(default=0)

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        self.count.value += 1
        yield {**value, "number": self.count.value}


class SlowCount(Count):
    """Takes a millisecond a record."""

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        time.sleep(0.001)
        yield from super().process(value, ctx)


class Remember(Operator):
    """Lets everything pass and keeps ids in a state of its own, too large to be inline after a few records. It hands
    the list itself to the snapshot and goes on changing it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        self.seen.append([value["id"], "x" * 10_000])
        yield {**value, "seen": len(self.seen)}

    def snapshot(self, checkpoint_id: int) -> Any:
        return self.seen

    def restore(self, state: Any) -> None:
        self.seen += state


def records(first: int, last: int, keys: int = 3) -> list[Any]:
    """Ids from `first` to below `last`."""
    return [{"id": i, "key": f"k{i % keys}"} for i in range(first, last)]


def small_job(
    name: str,
    folder: Path,
    source: Source,
    sink: Sink,
    *,
    parallelism: int = 1,
    operator: KeyedOperator | None = None,
    then: Callable[[Stream], Stream] = lambda stream: stream,
    restart: RestartStrategy | None = None,
    max_parallelism: int = 128,
    encrypt: bool = False,
    **checkpoints: Any,
) -> Pipeline:
    # Tests of storage look for files.
    options = {"uri": folder.as_uri(), "interval": 0.1, "alignment": "aligned", "inline_bytes": 0, **checkpoints}
    config = CheckpointConfig(**options)
    restart = restart or RestartStrategy.none()
    p = Pipeline(
        name, parallelism, max_parallelism=max_parallelism, checkpoints=config, restart=restart, encrypt=encrypt
    )
    then(p.source("in", source).key_by("key").process("count", operator or Count())).sink("out", sink)
    return p


def failure_of(pipeline: Pipeline, spark: Any, **start: Any) -> str:
    """Run the job, which has to fail, and return what it says."""
    handle = pipeline.start(spark=spark, **start)
    try:
        with pytest.raises(JobFailed) as caught:
            handle.wait(PATIENCE)
    finally:
        handle.cancel()
    assert handle.status == "failed"
    assert handle.failure == str(caught.value)
    return str(caught.value)


@contextmanager
def running(pipeline: Pipeline, spark: Any, **start: Any) -> Iterator[JobHandle]:
    """A started job, cancelled at the end unless it has ended."""
    handle = pipeline.start(spark=spark, **start)
    try:
        yield handle
    finally:
        handle.cancel()


def assert_exact(sink: TestingSink, expected: Iterable[Any]) -> None:
    """Every record came out once, numbered by its place among those of its key."""
    by_key: dict[str, list[Any]] = defaultdict(list)
    for record in expected:
        by_key[record["key"]].append(record["id"])
    wanted = sorted((id, number) for ids in by_key.values() for number, id in enumerate(ids, 1))
    assert sorted((record["id"], record["number"]) for record in sink.records) == wanted


def storage_of(pipeline: Pipeline) -> CheckpointStorage:
    assert pipeline.checkpoints is not None
    return CheckpointStorage(pipeline.checkpoints.uri, pipeline.name)


def checkpoints_of(pipeline: Pipeline) -> list[CheckpointRef]:
    """Complete ones, oldest first."""
    return storage_of(pipeline).list_checkpoints()


def folder_of(pipeline: Pipeline, ref: CheckpointRef) -> Path:
    return Path(storage_of(pipeline).location.removeprefix("file://")) / ref.path
