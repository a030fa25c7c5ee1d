"""State: what operators declare, the backend that keeps what belongs to keys, and its snapshots.

Files: `descriptors` (what users write as class attributes) → `binding` → `handles` (what they get on an instance) →
`stores` (what a backend keeps for a state, as handles see it), `timers`, `ttl` → `keyed_backend` (what every backend
has) → `heap` and `rocksdb` (made by `make_backend`) → `snapshot_format`, `snapshot_writer`, `snapshot_reader` →
`changelog` (a
snapshot as a list of files with what has changed), `files` (lists of files, read). What belongs to no key: `broadcast`,
the same in all subtasks, and `operator_lists`, each subtask's own. Classes of values that change between two runs:
`contents` (what a snapshot notes of them) → `declared_type`, `evolution`.
"""

from checkpoint.state.binding import OF_SUBTASKS, DeclaresState, bind, descriptors_of
from checkpoint.state.broadcast import BroadcastHandle, BroadcastStates
from checkpoint.state.descriptor import StateDescriptor
from checkpoint.state.descriptors import (
    AggregatingState,
    BroadcastState,
    ListState,
    MapState,
    OperatorListState,
    OperatorUnionState,
    ReducingState,
    ValueState,
)
from checkpoint.state.errors import StateAccessError, StateRestoreError
from checkpoint.state.handles import AggregatingHandle, ListHandle, MapHandle, ReducingHandle, ValueHandle
from checkpoint.state.keyed_backend import KeyedBackend
from checkpoint.state.keyed_snapshot import KeyedSnapshot, WholeSnapshot
from checkpoint.state.make_backend import make_backend
from checkpoint.state.operator_lists import FrozenLists, OperatorListHandle, OperatorLists
from checkpoint.state.snapshot_format import (
    Compression,
    SnapshotFooter,
    SnapshotFormatError,
    StateBatch,
    StateRow,
    UnknownSnapshotVersion,
)
from checkpoint.state.snapshot_reader import read_batches, read_footer, read_snapshot
from checkpoint.state.snapshot_writer import SnapshotAbandoned
from checkpoint.state.ttl import TTL

__all__ = [
    "OF_SUBTASKS",
    "TTL",
    "AggregatingHandle",
    "AggregatingState",
    "BroadcastHandle",
    "BroadcastState",
    "BroadcastStates",
    "Compression",
    "DeclaresState",
    "FrozenLists",
    "KeyedBackend",
    "KeyedSnapshot",
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
    "WholeSnapshot",
    "bind",
    "descriptors_of",
    "make_backend",
    "read_batches",
    "read_footer",
    "read_snapshot",
]
