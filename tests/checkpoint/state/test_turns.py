"""Any turns of keys leave in each backend what they leave in plain dicts."""

from __future__ import annotations

import pytest
from turns_model import Make, Run

from checkpoint.state import KeyedBackend
from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.paging import lists, maps, rows
from checkpoint.state.rocksdb import groups
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state.rocksdb.database import Database


class InTurn:
    """Makes a backend of the one kind, then one of the other."""

    def __init__(self) -> None:
        self._made = 0

    def __call__(self, key_groups: range, max_parallelism: int) -> KeyedBackend:
        self._made += 1
        return (HeapBackend if self._made % 2 else RocksDbBackend)(key_groups, max_parallelism)


@pytest.mark.parametrize("make", [HeapBackend, RocksDbBackend, InTurn()], ids=["heap", "rocksdb", "in turn"])
@pytest.mark.parametrize("memory", [None, 2_000], ids=["much", "next to none"])
@pytest.mark.parametrize("most", [256, 4, 1])
def test_any_turns_leave_what_they_leave_in_plain_dicts(
    make: Make, memory: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`most`: entries of a list or map that lies in no pages."""
    monkeypatch.setattr(rows, "MOST", most)
    monkeypatch.setattr(maps, "PAGE", max(1, most // 2))
    monkeypatch.setattr(lists, "PAGE", max(1, most // 2))
    if memory is not None:
        monkeypatch.setattr(Database, "values_budget", lambda database: memory)
        monkeypatch.setattr(groups, "MOST_CHANGED", 5)
    for seed in range(8):
        Run(make, seed).steps(150)
