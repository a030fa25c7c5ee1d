"""`Stage`: a small job over three parts of a source with a pause behind each of the first two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import NEVER, checkpoints_of, records, running, small_job

from checkpoint.storage.naming import CheckpointRef
from pipeline import JobFailed, Pipeline
from pipeline.testing import TestingSink, TestingSource, failpoints

PAUSE = TestingSource.PAUSE


class Stage:
    """A job over three parts of a source with a pause behind each of the first two, and where its files are."""

    def __init__(self, tmp_path: Path, name: str) -> None:
        self.name, self.folder = name, tmp_path / "checkpoints"
        self.parts = [records(0, 10), records(10, 20), records(20, 30)]
        first, second, third = self.parts
        self.script = [*first, PAUSE(), *second, PAUSE(), *third]
        self.source = TestingSource(self.script, directory=tmp_path / "source")
        self.sink = TestingSink(tmp_path / "sink")

    def job(self, **options: Any) -> Pipeline:
        options = {**NEVER, "retained": 3, **options}
        return small_job(self.name, self.folder, self.source, self.sink, **options)

    def run_two_parts(self, spark: Any, commit_second: bool = True, **options: Any) -> list[CheckpointRef]:
        """Two complete checkpoints, behind one part each. Either both are committed and the job is cancelled, or the
        second commit fails, and the job with it."""
        job = self.job(**options)
        if not commit_second:
            failpoints.fail("committer.before_commit", nth=2)
        with running(job, spark) as handle:
            self.source.wait_until_paused(PATIENCE)
            handle.checkpoint(PATIENCE)
            eventually(lambda: len(self.sink.records) == 10)
            self.source.release()
            self.source.wait_until_paused(PATIENCE)
            handle.checkpoint(PATIENCE)
            if commit_second:
                eventually(lambda: len(self.sink.records) == 20)
            else:
                with pytest.raises(JobFailed, match=r"injected at committer\.before_commit"):
                    handle.wait(PATIENCE)
        failpoints.clear()
        return checkpoints_of(job)

    def finish(self, spark: Any, job: Pipeline | None = None, **start: Any) -> Any:
        """Run to the end."""
        self.source.release()
        self.source.release()
        return (job or self.job()).run(spark=spark, timeout=PATIENCE, **start)

    @property
    def everything(self) -> list[Any]:
        return [record for part in self.parts for record in part]
