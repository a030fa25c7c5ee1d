"""What the heap backend takes beside keys, values and dicts."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from keyed_backend_contract import MAX, OnlyTotal, Running, fill, written

from checkpoint.codec import decode_key
from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.heap.logged_maps import HeapChanges

KEYS = 5_000
PER_KEY = 5
"""Bytes that don't matter. An entry of a dict takes 27 at least."""


class Logged(HeapBackend):
    def __init__(self, key_groups: range, max_parallelism: int) -> None:
        super().__init__(key_groups, max_parallelism, logs_changes=True)
        self.settle(changed=False)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def taken() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def count(running: Running) -> None:
    for key in range(KEYS):
        running.at(key).total.value = -1
    running.backend.clear_current_key()


def write(changes: HeapChanges) -> None:
    for _ in changes.batches([]):
        pass
    changes.release()


@pytest.mark.usefixtures("traced")
def test_nothing_is_kept_of_what_changes_before_the_first_barrier() -> None:
    alive, sizes = [], []
    for make in (HeapBackend, Logged):
        before = taken()
        alive.append(Running(make, cls=OnlyTotal))
        count(alive[-1])
        sizes.append(taken() - before)
    assert abs(sizes[1] - sizes[0]) < KEYS * PER_KEY


@pytest.mark.usefixtures("traced")
def test_nothing_is_kept_of_snapshots_of_changes_that_are_written() -> None:
    running = Running(Logged, cls=OnlyTotal)
    backend: Any = running.backend
    count(running)
    write(backend.freeze_changes())  # imports what it takes
    before = taken()
    for _ in range(2):
        count(running)
        write(backend.freeze_changes())
        assert taken() - before < KEYS * PER_KEY


@pytest.mark.parametrize("make", [HeapBackend, Logged])
def test_states_share_the_keys_that_are_restored(make: type[HeapBackend]) -> None:
    running = Running(make)
    fill(running)
    backend: Any = Running(make).restore(written(running.backend.freeze())).backend
    for index in range(MAX):
        keys: dict[Any, set[int]] = {}
        for name in backend.states:
            for key in backend._maps[name][index].data:
                keys.setdefault(decode_key(key), set()).add(id(key))
        assert all(len(objects) == 1 for objects in keys.values())
    assert not backend._restored[1]
