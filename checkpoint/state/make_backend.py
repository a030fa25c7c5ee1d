"""Which backend keeps keyed state."""

from __future__ import annotations

from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.keyed_backend import KeyedBackend


def make_backend(key_groups: range, max_parallelism: int, logs_changes: bool = False) -> KeyedBackend:
    """A backend without any state.

    Args:
        key_groups: the groups that the subtask owns.
        max_parallelism: number of all key groups.
        logs_changes: it knows what has changed since the last barrier (see `KeyedBackend.freeze_changes`).
    """
    return HeapBackend(key_groups, max_parallelism, logs_changes)
