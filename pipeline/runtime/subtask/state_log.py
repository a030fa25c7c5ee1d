"""The log of changes of a subtask's keyed state (see `checkpoint.state.changelog`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from threading import Condition

from checkpoint.state import Compression, KeyedBackend
from checkpoint.state.changelog.snapshot import LogFolder, LoggedState
from checkpoint.storage.handles import StateFile
from checkpoint.storage.naming import shared_path
from checkpoint.storage.storage import CheckpointStorage
from pipeline.runtime.subtask.task_metrics import TaskMetrics


def open_log(
    backend: KeyedBackend,
    restored: Sequence[StateFile],
    own: bool,
    storage: CheckpointStorage,
    attempt: int,
    subtask: str,
    compression: Compression,
    merges: Executor,
    metrics: TaskMetrics,
    condition: Callable[[], Condition],
) -> LoggedState:
    """The log that a subtask goes on with. What was restored from files that it can't go on with counts as changed, so
    that the first checkpoint writes it all.

    Args:
        backend: restored, and otherwise as it was made.
        restored: the files that it was restored from, oldest first.
        own: they lie in the job's folder.
        storage: the job's folder.
        attempt: its number.
        subtask: in names of files (see `naming.subtask_name`).
        merges: merges files.
    """
    goes_on = own and backend.restored_as_it_was and all(listed.file.shared for listed in restored)
    backend.settle(changed=not goes_on)
    folder = LogFolder(storage, lambda: storage.create(shared_path(attempt, f"{subtask}-state")), compression)

    def merged(size: int, done: bool) -> None:
        metrics.count("mergedStateBytes", size)
        metrics.count("failedStateMerges", 0 if done else 1)

    return LoggedState(
        backend.operator,
        backend.key_groups,
        backend.max_parallelism,
        folder,
        merges,
        restored if goes_on else (),
        merged,
        condition,
    )
