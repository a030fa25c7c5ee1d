"""What an attempt gets from the job, and what it lets the job's handle see."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from checkpoint.kinds import CheckpointKind
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.ownership import Ownership
from checkpoint.storage.probe import Probe
from checkpoint.storage.savepoints import SavepointFolder
from checkpoint.storage.shared_files import SharedFiles
from checkpoint.storage.storage import CheckpointStorage
from pipeline.graph import Plan
from pipeline.runtime.deployment import JobSpec
from pipeline.runtime.driver.checkpoint_stats import CheckpointHistory
from pipeline.runtime.driver.cleanup import Cleanup
from pipeline.runtime.driver.start_phases import StartPhases
from pipeline.runtime.driver.waits import Waits


@dataclass(frozen=True)
class AttemptContext:
    """What an attempt gets from the job."""

    spec: JobSpec
    plan: Plan
    spark: Any
    storage: CheckpointStorage
    ownership: Ownership
    restored: CheckpointMetadata | None
    restored_storage: CheckpointStorage
    """Where the files of `restored` are."""
    claimed: bool
    """Whether output that `restored` holds and that is not committed is this job's to commit."""
    commit_only: bool
    """The job has been stopped already: commit what `restored` holds, and end."""
    lineage: tuple[str, tuple[str, int] | None]
    rewind: bool
    ignore_earlier_output: bool
    allow_unclaimed: bool
    probe: Probe | None
    retained: tuple[CheckpointRef, ...]
    shared: SharedFiles
    cleanup: Cleanup
    first_id: int
    history: CheckpointHistory
    host: str
    metadata_options: dict[str, Any]
    waits: Waits
    """The job's, over all attempts."""


Answer = Callable[[int | Exception], None]
"""Gets the id of a checkpoint once it is complete, or an error."""


class NotTriggered(RuntimeError):
    """No checkpoint was begun for a request, and none will be."""


@dataclass(frozen=True)
class CheckpointRequest:
    """What a user asks for."""

    kind: CheckpointKind = CheckpointKind.CHECKPOINT
    target: SavepointFolder | None = None
    """Of a savepoint: its folder."""
    stop: bool = False
    """The job ends behind it."""
    drain: bool = False
    """Of a stop: all input ends first."""
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
