"""The heap backend keeps the contract of keyed backends."""

from __future__ import annotations

from keyed_backend_contract import KeyedBackendContract

from checkpoint.state.heap.backend import HeapBackend


class TestHeapBackend(KeyedBackendContract):
    make = HeapBackend
