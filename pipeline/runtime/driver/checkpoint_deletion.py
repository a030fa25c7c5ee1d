"""Deletes the files of checkpoints, one after the other, beside the attempt's thread."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from checkpoint.storage import fencing, savepoints
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.naming import CheckpointRef, subtask_name
from checkpoint.storage.savepoints import SavepointFolder
from pipeline.runtime.driver.attempt_context import AttemptContext
from pipeline.runtime.driver.attempt_events import AttemptEvent, Deleted, Fenced
from pipeline.runtime.system import System

_LOG = logging.getLogger(f"weir.{__name__}")


class CheckpointDeletion:
    """Deletes for one attempt, for as long as it owns the job. All methods return at once."""

    def __init__(self, context: AttemptContext, inbox: queue.SimpleQueue[AttemptEvent], system: System):
        """`inbox`: where `Deleted` and `Fenced` are put."""
        self._c = context
        self._inbox = inbox
        self._executor = system.executor(1, "weir-delete")
        self._refs = {ref.id: ref for ref in context.start.retained}
        """Checkpoints of earlier attempts."""
        self._folders: dict[int, SavepointFolder] = {}
        """Folders of all savepoints of this attempt, since subtasks may report to one that is over."""
        self._copying: set[int] = set()
        """Savepoints in progress."""
        self._spared: list[FileHandle] = []
        """Shared files that no checkpoint needs any more, but a savepoint in progress may still be copying."""

    def close(self) -> None:
        """What has not begun is left to the next attempt."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def savepoint_begins(self, id: int, folder: SavepointFolder) -> None:
        self._folders[id] = folder
        self._copying.add(id)

    def savepoint_ends(self, id: int) -> None:
        """It is complete or has failed. Nothing happens if it has ended before."""
        self._copying.discard(id)
        if self._spared and not self._copying:
            spared, self._spared = self._spared, []
            self._submit("shared files", lambda: self._delete_shared(spared))

    def checkpoint(self, id: int, unused: Iterable[FileHandle] = ()) -> Future[None]:
        """Delete a checkpoint that is no longer retained, or that may have become durable though it failed.

        `Deleted(id)` comes at the end, with an error or without.

        Args:
            unused: the shared files that only this checkpoint refers to.
        """
        c, folder = self._c, self._folders.get(id)
        ref = self._refs.pop(id, CheckpointRef(id, c.start.ownership.attempt))
        shared = list(unused)
        if self._copying:
            self._spared += shared
            shared = []

        def delete() -> None:
            try:
                fencing.check(c.start.storage, c.start.ownership)
                if folder is not None:
                    savepoints.discard(c.start.storage, folder, ref)
                else:
                    c.start.storage.delete_checkpoint(ref)
                self._delete_shared(shared)
            except fencing.Fenced as error:
                self._inbox.put(Fenced(str(error)))
            except Exception:
                _LOG.exception("checkpoint %d could not be deleted; what is left of it is for gc", id)
            self._inbox.put(Deleted(id))

        return self._executor.submit(delete)

    def private_files(self, id: int, subtasks: Sequence[int]) -> None:
        """Delete what subtasks wrote for a checkpoint that won't complete; never anything under `shared/`."""
        c = self._c
        storage = self._folders[id].storage if id in self._folders else c.start.storage
        names = [
            subtask_name(step.id, subtask - c.plan.vertex_of(subtask).first_subtask)
            for subtask in subtasks
            for step in c.plan.vertex_of(subtask).steps
        ]

        def delete() -> None:
            fencing.check(c.start.storage, c.start.ownership)
            for name in names:
                storage.delete_private(id, c.start.ownership.attempt, name)

        if names:
            self._submit(f"files of checkpoint {id}", delete)

    def left_by_earlier_attempts(self, void: bool) -> None:
        """See `Cleanup`."""
        self._submit("what earlier attempts left", lambda: self._c.start.cleanup.run(void))

    def _submit(self, what: str, delete: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                delete()
            except fencing.Fenced as error:
                self._inbox.put(Fenced(str(error)))
            except Exception as error:
                _LOG.warning("%s could not all be deleted, the rest is for gc: %s", what, error)

        self._executor.submit(guarded)

    def _delete_shared(self, files: Iterable[FileHandle]) -> None:
        for handle in files:
            fencing.check(self._c.start.storage, self._c.start.ownership)
            self._c.start.storage.delete_file(handle)
