"""The files of a subtask's snapshots."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal

from checkpoint.barriers.events import Barrier
from checkpoint.committables import SinkState
from checkpoint.in_flight.captured import CapturedState
from checkpoint.in_flight.channel_state import save
from checkpoint.in_flight.runs import FormatOf
from checkpoint.state import KeyedSnapshot
from checkpoint.storage import savepoints
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.inline_files import InlineFile
from checkpoint.storage.local_copies import LocalCopies
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.naming import SHARED, CheckpointRef, private_path, subtask_name
from checkpoint.storage.storage import CheckpointStorage


class SnapshotFiles:
    """Implements `task_checkpoints.StateFiles`; used by the threads of the snapshot pool."""

    def __init__(
        self,
        storage: CheckpointStorage,
        attempt: int,
        head: str,
        subtask: int,
        format_of: FormatOf,
        compression: Literal["lz4", "zstd", "none"],
        copies: LocalCopies | None,
        inline_limit: int = 0,
    ) -> None:
        """
        Args:
            attempt: its number.
            head: id of the vertex's first step.
            subtask: index within the vertex.
            format_of: gives the format of an edge.
            copies: what `storage` writes local copies to, if it does.
            inline_limit: bytes of a file of a checkpoint that is inline (see `checkpoint.storage.inline_files`).
        """
        self._storage = storage
        self._attempt = attempt
        self._head = head
        self._subtask = subtask
        self._format_of = format_of
        self._compression = compression
        self._copies = copies
        self._inline_limit = inline_limit

    def gather(self, barrier: Barrier, step: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        if barrier.target is None or not snapshot.files:
            return snapshot
        target = self._folder(barrier)
        held = SinkState.from_wire(snapshot.state["sink"])
        copies = {
            file: savepoints.copy_file(self._storage, file, target, self._path(barrier, step, f"staged-{i}"))
            for i, file in enumerate(held.files)
        }
        sink = held.with_files(copies).to_wire()
        return replace(snapshot, state={**snapshot.state, "sink": sink}, files=tuple(copies.values()))

    def spill(self, barrier: Barrier, step: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        return self._folder(barrier).spill(snapshot, self._path(barrier, step, "own", "msgpack"))

    def write_keyed_state(self, barrier: Barrier, step: str, snapshot: KeyedSnapshot) -> list[StateFile]:
        files = snapshot.files(partial(self._new_file, barrier, step), self._compression)
        if self._copies is not None and barrier.target is None:
            names = [listed.file.path.removeprefix(f"{SHARED}/") for listed in files if listed.file.shared]
            self._copies.list_log(CheckpointRef(barrier.checkpoint_id, self._attempt), names)
        return files

    def write_channel_state(self, barrier: Barrier, captured: CapturedState) -> FileHandle:
        folder, path = self._folder(barrier), self._path(barrier, self._head, "in-flight")
        return save(folder, path, captured, self._format_of, self._compression, self._limit(barrier))

    def completed(self, checkpoint_id: int) -> None:
        if self._copies is not None:
            self._copies.completed(CheckpointRef(checkpoint_id, self._attempt))

    def aborted(self, checkpoint_id: int) -> None:
        if self._copies is not None:
            self._copies.aborted(CheckpointRef(checkpoint_id, self._attempt))

    def _new_file(self, barrier: Barrier, step: str, name: str) -> InlineFile:
        return InlineFile(self._folder(barrier), self._path(barrier, step, name), self._limit(barrier))

    def _limit(self, barrier: Barrier) -> int:
        return self._inline_limit if barrier.target is None else 0

    def _folder(self, barrier: Barrier) -> CheckpointStorage:
        return self._storage if barrier.target is None else CheckpointStorage(barrier.target, None)

    def _path(self, barrier: Barrier, step: str, *names: str) -> str:
        ref = CheckpointRef(barrier.checkpoint_id, self._attempt)
        return private_path(ref, subtask_name(step, self._subtask), *names)
