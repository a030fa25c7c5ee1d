"""Which backend keeps keyed state."""

from __future__ import annotations

from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.keyed_backend import KeyedBackend
from checkpoint.state_backends import StateBackend, rocksdb_of


def make_backend(
    key_groups: range, max_parallelism: int, logs_changes: bool = False, state_backend: StateBackend = "heap"
) -> KeyedBackend:
    """A backend without any state.

    Args:
        key_groups: the groups that the subtask owns.
        max_parallelism: number of all key groups.
        logs_changes: it knows what has changed since the last barrier (see `KeyedBackend.freeze_changes`).
        state_backend: the option of checkpoints or of the step.
    """
    rocksdb = rocksdb_of(state_backend)
    if rocksdb is None:
        return HeapBackend(key_groups, max_parallelism, logs_changes)
    # Here, so that jobs without it don't load its library.
    from checkpoint.state.rocksdb.backend import RocksDbBackend

    return RocksDbBackend(key_groups, max_parallelism, rocksdb, logs_changes)
