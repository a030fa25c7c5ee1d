"""What an attempt gets from its job, for tests of its parts without Spark."""

from __future__ import annotations

from typing import Any

from option_values import checkpoint_config

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
    spec = JobSpec(
        pipeline=JOB,
        plan=b"",
        max_parallelism=128,
        buffers=BufferConfig(),
        checkpoint_uri=folder,
        checkpoints=checkpoint_config(**{"interval": None, **options}),
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
        restored=None,
        restored_storage=storage,
        claimed=True,
        commit_only=commit_only,
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
