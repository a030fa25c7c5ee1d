"""What an attempt gets from its job, for tests of its parts without Spark."""

from __future__ import annotations

from typing import Any

from option_values import checkpoint_config

from checkpoint.storage import fencing
from checkpoint.storage.shared_files import SharedFiles
from checkpoint.storage.storage import CheckpointStorage
from pipeline import BufferConfig, RestartStrategy
from pipeline.plan import Plan
from pipeline.runtime.driver.attempt_context import AttemptContext
from pipeline.runtime.driver.cleanup import Cleanup
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.point_queries import JobQueries
from pipeline.runtime.driver.start.start_point import StartPoint
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointHistory
from pipeline.runtime.driver.status.waits import Waits

JOB = "job"


def attempt_context(plan: Plan, folder: str, commit_only: bool = False, **options: Any) -> AttemptContext:
    """The context of a job's first attempt, which owns `folder`.

    Args:
        commit_only: it has been stopped already.
        options: of `CheckpointConfig`; without an interval unless it is given.
    """
    storage = CheckpointStorage(folder, JOB)
    storage.prepare()
    ownership = fencing.take_ownership(storage)
    fencing.record_restored(storage, ownership, None)
    start = StartPoint(
        storage=storage,
        ownership=ownership,
        plan=b"",
        point=None,
        claimed=True,
        lineage=("L1", None),
        rewind=False,
        retained=(),
        shared=SharedFiles(),
        cleanup=Cleanup(storage, ownership, ()),
        largest_id=0,
        probe=None,
    )
    return AttemptContext.of(
        job_options(plan),
        checkpoint_config(**{"interval": None, "compression": "none", **options}),
        start,
        CheckpointHistory(),
        first=True,
        commit_only=commit_only,
        spark=None,
        host="127.0.0.1",
        waits=Waits(JOB),
        queries=JobQueries(str),
    )


def job_options(plan: Plan, **options: Any) -> JobOptions:
    """`options`: those of `JobOptions` that aren't as usual."""
    usual = {
        "name": JOB,
        "max_parallelism": 128,
        "checkpoints": None,
        "restart": RestartStrategy.none(),
        "buffers": BufferConfig(),
        "restore": "latest",
        "claim": None,
        "rewind": False,
        "allow_unclaimed": False,
        "ignore_in_flight": None,
        "spark": None,
    }
    return JobOptions(plan=plan, **{**usual, **options})
