"""A small job whose sink stages its output in the checkpoint folder, as the Kafka sink does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from small_job import records, small_job

from checkpoint.codec import decode, encode
from pipeline import Pipeline
from pipeline.testing import TestingSource
from sinks import Committer, Sink, SinkWriter
from sinks.sink import Committable, CommitterContext, RecordContext, Staging, WriterContext

RECORDS = records(0, 600)


def staged_job(name: str, folder: Path, **options: Any) -> Pipeline:
    """Takes long enough for several checkpoints, each with output of its own. All that it leaves is in `folder`."""
    source = TestingSource(RECORDS, directory=folder / "source", batch_size=5)
    options = {"then": lambda stream: stream.map(_slowly), "alignment": "unaligned", "retained": 2, **options}
    return small_job(name, folder / "checkpoints", source, StagedSink(folder / "sink"), **options)


def _slowly(value: Any) -> Any:
    time.sleep(0.002)
    return value


class StagedSink(Sink):
    """Commits into a folder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)

    @property
    def records(self) -> list[Any]:
        """The values committed so far."""
        return [value for file in sorted(self._directory.glob("*.out")) for value in decode(file.read_bytes())]

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        return _Writer(ctx.staging)

    def create_committer(self, ctx: CommitterContext) -> Committer:
        return _Committer(self._directory, ctx)


class _Writer(SinkWriter):
    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._values: list[Any] = []

    def write(self, value: Any, ctx: RecordContext) -> None:
        self._values.append(value)

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        values, self._values = self._values, []
        if not values:
            return []
        file = self._staging.create("out")
        file.write(encode(values))
        return [({"rows": len(values)}, [file.close()])]


class _Committer(Committer):
    def __init__(self, directory: Path, ctx: CommitterContext) -> None:
        self._directory = directory
        self._ctx = ctx

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        self._ctx.check_owner()
        for one in committables:
            # The name says what it is for good, so that it is written once, however often it is committed.
            target = self._directory / f"{self._ctx.writer}-{one.name.epoch:06}-{one.name.index}.out"
            unfinished = target.with_suffix(".part")
            unfinished.write_bytes(self._ctx.staging.read(one.files[0]))
            unfinished.rename(target)
