"""State: what operators declare, the heap backend that keeps what belongs to keys, and its snapshots.

Files: `descriptors` (what users write as class attributes) → `handles` (what they get on an instance) → `groups`
(the dicts, copied on write) → `heap` (backend) → `snapshot` (file format). `broadcast` is what belongs to no key.
"""

from checkpoint.state.broadcast import BroadcastHandle, BroadcastStates
from checkpoint.state.descriptors import (
    BroadcastState,
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
    "BroadcastHandle",
    "BroadcastState",
    "BroadcastStates",
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
