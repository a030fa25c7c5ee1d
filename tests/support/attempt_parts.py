"""What an attempt gets from its job, for tests of its parts without Spark."""

from __future__ import annotations

from typing import Any

from checkpoint.coordination.coordinator_options import CoordinatorOptions
from checkpoint.storage import fencing
from checkpoint.storage.shared_files import SharedFiles
from checkpoint.storage.storage import CheckpointStorage
from pipeline import BufferConfig
from pipeline.graph import Plan
from pipeline.runtime.deployment import JobSpec
from pipeline.runtime.driver.attempt_context import AttemptContext
from pipeline.runtime.driver.checkpoint_stats import CheckpointHistory
from pipeline.runtime.driver.cleanup import Cleanup
from pipeline.runtime.driver.waits import Waits
from pipeline.runtime.liveness import LIMITS
from pipeline.runtime.versions import versions

JOB = "job"


def attempt_context(plan: Plan, folder: str, **options: Any) -> AttemptContext:
    """The context of a job's first attempt, which owns `folder`.

    Args:
        options: of `CoordinatorOptions`; without an interval unless it is given.
    """
    storage = CheckpointStorage(folder, JOB)
    storage.prepare()
    ownership = fencing.take_ownership(storage)
    fencing.record_restored(storage, ownership, None)
    coordinator = CoordinatorOptions(**{"interval": None, **options})
    spec = JobSpec(
        pipeline=JOB,
        plan=b"",
        max_parallelism=128,
        buffers=BufferConfig(),
        checkpoint_uri=folder,
        compression="none",
        local_recovery=False,
        interval=coordinator.interval,
        timeout=coordinator.timeout,
        min_pause=coordinator.min_pause,
        max_concurrent=coordinator.max_concurrent,
        slow_storage_span=0.0,
        alignment_timeout=0.0,
        savepoint_alignment_timeout=None,
        exactly_once=True,
        attempt=ownership.attempt,
        ownership=ownership.to_wire(),
        versions=versions(),
        probe=None,
        failpoints=[],
        limits=LIMITS,
        first_attempt=True,
    )
    return AttemptContext(
        spec=spec,
        plan=plan,
        spark=None,
        storage=storage,
        ownership=ownership,
        options=coordinator,
        restored=None,
        restored_storage=storage,
        claimed=True,
        commit_only=False,
        lineage=("L1", None),
        rewind=False,
        ignore_earlier_output=False,
        allow_unclaimed=False,
        probe=None,
        retained=(),
        shared=SharedFiles(),
        cleanup=Cleanup(storage, ownership, ()),
        first_id=1,
        history=CheckpointHistory(),
        host="127.0.0.1",
        metadata_options={},
        waits=Waits(JOB),
    )
