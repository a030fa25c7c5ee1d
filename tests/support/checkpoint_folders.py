"""Job folders as runs leave them, made without running one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.committables import Committable, CommittableName
from checkpoint.elements import EdgeName
from checkpoint.storage import fencing
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path, shared_path
from checkpoint.storage.ownership import Ownership
from checkpoint.storage.storage import CheckpointStorage

TRIGGERED = 1_700_000_000.0
"""2023-11-14 22:13:20 UTC."""


@dataclass
class JobFolder:
    """A job's folder and what its owners do in it."""

    storage: CheckpointStorage
    ownership: Ownership = field(init=False)
    """The newest owner's."""

    def __post_init__(self) -> None:
        self.storage.prepare()
        self.start(None)

    def start(self, restored: CheckpointRef | None) -> Ownership:
        """A new owner restores a checkpoint, or begins with nothing."""
        self.ownership = fencing.take_ownership(self.storage)
        fencing.record_restored(self.storage, self.ownership, restored)
        return self.ownership

    def segment(self, content: bytes = b"segment") -> FileHandle:
        return self.storage.write_file(shared_path(self.ownership.attempt, "out"), content)

    def begin(self, id: int) -> FileHandle:
        """A checkpoint of which a subtask has written its state."""
        path = private_path(CheckpointRef(id, self.ownership.attempt), "totals-0", "state")
        return self.storage.write_file(path, b"state of %d" % id)

    def complete(
        self, id: int, *staged: FileHandle, source: Any = None, kind: CheckpointKind = CheckpointKind.CHECKPOINT
    ) -> CheckpointRef:
        """A checkpoint with keyed state, a source's position, and one committable for each staged file."""
        keyed = self.begin(id)
        pending = [
            Committable(CommittableName(id, i), {"rows": 10, "bytes": 100, "message_limit": 9}, (file,)).to_wire()
            for i, file in enumerate(staged)
        ]
        operators = {
            "in": OperatorSnapshot({"source": source}),
            "totals": OperatorSnapshot(keyed_state=(StateFile(keyed),)),
            "out": OperatorSnapshot({"sink": {"pending": [[0, pending]], "committers": []}}, files=staged),
        }
        metadata = metadata_of(CheckpointRef(id, self.ownership.attempt), operators, kind=kind)
        return self.storage.write_metadata(id, self.ownership.attempt, metadata)


def metadata_of(
    ref: CheckpointRef,
    operators: Mapping[str, OperatorSnapshot] | None = None,
    *,
    channel_state: tuple[FileHandle, ...] = (),
    rows: Mapping[EdgeName, int] | None = None,
    **fields: Any,
) -> CheckpointMetadata:
    """Metadata of a checkpoint, of one vertex with one subtask unless `vertices` says otherwise."""
    subtask = SubtaskSnapshot(operators or {}, channel_state=channel_state, in_flight_rows=rows or {})
    values = {
        "kind": CheckpointKind.CHECKPOINT,
        "pipeline": "orders",
        "lineage": "l1",
        "lineage_parent": None,
        "max_parallelism": 128,
        "weir_version": "0.1.0",
        "trigger_time": TRIGGERED + ref.id,
        "duration": 0.25,
        "options": {"interval": 1.0},
        "vertices": {"totals": VertexSnapshot((subtask,))},
        **fields,
    }
    return CheckpointMetadata(id=ref.id, attempt=ref.attempt, **values)
