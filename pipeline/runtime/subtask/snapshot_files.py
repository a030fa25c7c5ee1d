"""The files of a subtask's snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from checkpoint.elements import EdgeName
from checkpoint.in_flight.captured import CapturedState
from checkpoint.in_flight.channel_state import save
from checkpoint.state import HeapSnapshot
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path, subtask_name
from checkpoint.storage.storage import CheckpointStorage


class SnapshotFiles:
    """Implements `task_checkpoints.SnapshotFiles`; used by the threads of the snapshot pool."""

    def __init__(
        self,
        storage: CheckpointStorage,
        epoch: int,
        head: str,
        subtask: int,
        carries_keys: Callable[[EdgeName], bool],
        compression: Literal["lz4", "zstd", "none"],
    ) -> None:
        """
        Args:
            epoch: of this attempt's claim.
            head: id of the vertex's first step.
            subtask: index within the vertex.
            carries_keys: whether the frames of an edge have key and key group.
        """
        self._storage = storage
        self._epoch = epoch
        self._head = head
        self._subtask = subtask
        self._carries_keys = carries_keys
        self._compression = compression

    def spill(self, checkpoint_id: int, step: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        return self._storage.spill(snapshot, self._path(checkpoint_id, step, "own", "msgpack"))

    def write_keyed_state(self, checkpoint_id: int, step: str, snapshot: HeapSnapshot) -> list[FileHandle]:
        file = self._storage.create(self._path(checkpoint_id, step, "state"))
        try:
            snapshot.write(file.write, self._compression)
            return [file.close()]
        except BaseException:
            file.abort()
            raise

    def write_channel_state(self, checkpoint_id: int, captured: CapturedState) -> FileHandle:
        path = self._path(checkpoint_id, self._head, "in-flight")
        return save(self._storage, path, captured, self._carries_keys, self._compression)

    def _path(self, checkpoint_id: int, step: str, *names: str) -> str:
        ref = CheckpointRef(checkpoint_id, self._epoch)
        return private_path(ref, subtask_name(step, self._subtask), *names)
