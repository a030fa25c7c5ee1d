"""State: what operators declare, the heap backend that keeps what belongs to keys, and its snapshots.

Files: `descriptors` (what users write as class attributes) → `handles` (what they get on an instance) → `groups`
(the dicts, copied on write) → `heap` (backend) → `snapshot` (file format). What belongs to no key: `broadcast`, the
same in all subtasks, and `operator_lists`, each subtask's own.
"""

from checkpoint.state.broadcast import BroadcastHandle, BroadcastStates
from checkpoint.state.descriptors import (
    OF_SUBTASKS,
    AggregatingState,
    BroadcastState,
    DeclaresState,
    ListState,
    MapState,
    OperatorListState,
    OperatorUnionState,
    ReducingState,
    StateDescriptor,
    ValueState,
    bind,
    descriptors_of,
)
from checkpoint.state.errors import StateAccessError, StateRestoreError
from checkpoint.state.handles import AggregatingHandle, ListHandle, MapHandle, ReducingHandle, ValueHandle
from checkpoint.state.heap import HeapBackend, HeapSnapshot
from checkpoint.state.operator_lists import FrozenLists, OperatorListHandle, OperatorLists
from checkpoint.state.snapshot import (
    SnapshotAbandoned,
    SnapshotFooter,
    SnapshotFormatError,
    StateBatch,
    StateRow,
    UnknownSnapshotVersion,
    read_batches,
    read_footer,
    read_snapshot,
)

__all__ = [
    "OF_SUBTASKS",
    "AggregatingHandle",
    "AggregatingState",
    "BroadcastHandle",
    "BroadcastState",
    "BroadcastStates",
    "DeclaresState",
    "FrozenLists",
    "HeapBackend",
    "HeapSnapshot",
    "ListHandle",
    "ListState",
    "MapHandle",
    "MapState",
    "OperatorListHandle",
    "OperatorListState",
    "OperatorLists",
    "OperatorUnionState",
    "ReducingHandle",
    "ReducingState",
    "SnapshotAbandoned",
    "SnapshotFooter",
    "SnapshotFormatError",
    "StateAccessError",
    "StateBatch",
    "StateDescriptor",
    "StateRestoreError",
    "StateRow",
    "UnknownSnapshotVersion",
    "ValueHandle",
    "ValueState",
    "bind",
    "descriptors_of",
    "read_batches",
    "read_footer",
    "read_snapshot",
]
