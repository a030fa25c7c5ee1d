"""What an attempt gets from the job, and what it lets the job's handle see."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from checkpoint import failpoints
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.config import CheckpointConfig
from checkpoint.storage.savepoints import SavepointFolder
from pipeline.plan import Plan
from pipeline.runtime.deployment import JobSpec
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.point_queries import JobQueries
from pipeline.runtime.driver.start.start_phases import StartPhases
from pipeline.runtime.driver.start.start_point import StartPoint
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointHistory
from pipeline.runtime.driver.status.waits import Waits
from pipeline.runtime.liveness import LIMITS
from pipeline.runtime.versions import versions


@dataclass(frozen=True)
class AttemptContext:
    """What an attempt gets from the job."""

    job: JobOptions
    spec: JobSpec
    """What its subtasks get."""
    start: StartPoint
    commit_only: bool
    """The job has been stopped already: commit what is restored, and end."""
    spark: Any
    """A `SparkContext`."""
    host: str
    """Where executors reach the driver."""
    first_checkpoint: int
    """The id of this attempt's first checkpoint: ids are never given again."""
    history: CheckpointHistory
    """The job's, over all attempts."""
    waits: Waits
    """The job's, over all attempts."""
    queries: JobQueries
    """The job's, over all attempts."""

    @property
    def plan(self) -> Plan:
        return self.job.plan

    @classmethod
    def of(
        cls,
        job: JobOptions,
        config: CheckpointConfig,
        start: StartPoint,
        history: CheckpointHistory,
        *,
        first: bool,
        **others: Any,
    ) -> AttemptContext:
        """
        Args:
            config: the job's, or what stands for it if it has none.
            first: nothing of the job has run yet.
        """
        spec = JobSpec(
            pipeline=job.name,
            plan=start.plan,
            max_parallelism=job.max_parallelism,
            buffers=job.buffers,
            checkpoint_uri=start.storage.uri,
            checkpoints=config,
            attempt=start.ownership.attempt,
            ownership=start.ownership.to_wire(),
            versions=versions(),
            probe=start.probe.to_wire() if start.probe else None,
            failpoints=failpoints.active(),
            limits=LIMITS,
            show_keys=job.show_keys,
            first_attempt=first,
        )
        first_checkpoint = 1 + max(start.largest_id, history.largest_id)
        return cls(job=job, spec=spec, start=start, first_checkpoint=first_checkpoint, history=history, **others)


Answer = Callable[[int | Exception], None]
"""Gets the id of a checkpoint once it is complete, or an error."""


class NotTriggered(RuntimeError):
    """No checkpoint was begun for a request, and none will be."""


@dataclass(frozen=True)
class CheckpointRequest:
    """What a user asks for."""

    kind: CheckpointKind = CheckpointKind.CHECKPOINT
    target: SavepointFolder | None = None
    """The folder of a savepoint; `None` for a checkpoint."""
    stop: bool = False
    """The job ends behind it."""
    drain: bool = False
    """End all input before the stop."""
    unaligned: bool = False
    """Its barriers overtake what is in flight, whatever the checkpoints' options say."""
    or_not_begin: bool = False
    """A job that has not begun by then need not begin for it."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass
class Progress:
    """What the job's handle shows; written by the attempt, read by anyone."""

    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By subtask name."""
    pids: dict[str, int] = field(default_factory=dict)
    start: StartPhases = field(default_factory=StartPhases)
    deployed_at: float | None = None
    running_at: float | None = None
    first_commit_at: float | None = None
    committed: int = 0
    """Checkpoints up to this id are committed by every sink."""
    failed_at: float | None = None
    """When the first sign of the failure came that ended the attempt."""
    began: float = 0.0
    """When the attempt did, in seconds since 1970."""
    on_running: Callable[[], None] = lambda: None
    """Called by the attempt's thread when all subtasks run."""
