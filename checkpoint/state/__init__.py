"""Keyed state: what operators declare, the heap backend that keeps it, and its snapshots.

Files: `descriptors` (what users write as class attributes) → `handles` (what they get on an instance) → `groups`
(the dicts, copied on write) → `heap` (backend) → `snapshot` (file format).
"""

from checkpoint.state.descriptors import (
    DeclaresState,
    ListState,
    MapState,
    ReducingState,
    StateDescriptor,
    ValueState,
    bind,
    descriptors_of,
)
from checkpoint.state.errors import StateAccessError, StateRestoreError
from checkpoint.state.handles import ListHandle, MapHandle, ReducingHandle, ValueHandle
from checkpoint.state.heap import HeapBackend, HeapSnapshot
from checkpoint.state.snapshot import (
    SnapshotAbandoned,
    SnapshotFooter,
    SnapshotFormatError,
    StateRow,
    read_footer,
    read_snapshot,
)

__all__ = [
    "DeclaresState",
    "HeapBackend",
    "HeapSnapshot",
    "ListHandle",
    "ListState",
    "MapHandle",
    "MapState",
    "ReducingHandle",
    "ReducingState",
    "SnapshotAbandoned",
    "SnapshotFooter",
    "SnapshotFormatError",
    "StateAccessError",
    "StateDescriptor",
    "StateRestoreError",
    "StateRow",
    "ValueHandle",
    "ValueState",
    "bind",
    "descriptors_of",
    "read_footer",
    "read_snapshot",
]
