"""The heap backend keeps the contract of keyed backends."""

from __future__ import annotations

from keyed_backend_contract import KeyedBackendContract
from keyed_ttl_contract import KeyedTtlContract

from checkpoint.state.heap.backend import HeapBackend


class TestHeapBackend(KeyedBackendContract):
    make = HeapBackend


class TestTimeToLive(KeyedTtlContract):
    make = HeapBackend
