"""The heap backend keeps the contract of keyed backends, whether it knows its changes or not."""

from __future__ import annotations

import pytest
from keyed_backend_contract import KeyedBackendContract
from keyed_ttl_contract import KeyedTtlContract

from checkpoint.state.heap.backend import HeapBackend


class LoggedHeapBackend(HeapBackend):
    def __init__(self, key_groups: range, max_parallelism: int) -> None:
        super().__init__(key_groups, max_parallelism, logs_changes=True)


class TestHeapBackend(KeyedBackendContract):
    make = HeapBackend


class TestTimeToLive(KeyedTtlContract):
    make = HeapBackend


class TestLoggedHeapBackend(KeyedBackendContract):
    make = LoggedHeapBackend


@pytest.mark.usefixtures("small_pages")
class TestSmallPages(KeyedBackendContract):
    make = HeapBackend


@pytest.mark.usefixtures("small_pages")
class TestLoggedSmallPages(KeyedBackendContract):
    make = LoggedHeapBackend


class TestLoggedTimeToLive(KeyedTtlContract):
    make = LoggedHeapBackend
