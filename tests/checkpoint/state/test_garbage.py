"""Large state and Python's cyclic garbage collector: no collection looks at it, and state is freed all the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import StateBatch, StateRestoreError, ValueState, garbage, read_batches
from checkpoint.state.heap.backend import HeapBackend

GROUPS = 4
KEYS = 40


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "LARGE_STATE", KEYS)
    monkeypatch.setattr(garbage, "LARGE_MAP", 1)
    yield
    gc.unfreeze()


class Job:
    def __init__(self) -> None:
        self.backend = HeapBackend(range(GROUPS), GROUPS)
        descriptor: ValueState[Any] = ValueState()
        descriptor.name = "seen"
        self.handle = self.backend.value_handle(descriptor, "Op", None, None)

    def put(self, key: int, value: Any) -> None:
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, GROUPS))
        self.handle.value = value

    def looked_at(self) -> int:
        """How many dicts of state a full collection looks at."""
        ours = {id(one.data) for one in self.backend._maps["seen"]}
        return sum(id(thing) in ours for thing in gc.get_objects())


def filled(keys: int = KEYS) -> Job:
    job = Job()
    for key in range(keys):
        job.put(key, [key])
    return job


def test_no_collection_looks_at_the_dicts_that_are_copied_after_a_barrier() -> None:
    job = filled()
    assert job.looked_at() == GROUPS
    snapshot = job.backend.freeze()
    for key in range(KEYS):
        job.put(key, [key, "new"])  # copies the dicts that the snapshot reads
    assert job.looked_at() == 0
    snapshot.release()


def test_small_dicts_are_left_to_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "LARGE_MAP", KEYS + 1)
    job = filled()
    snapshot = job.backend.freeze()
    for key in range(KEYS):
        job.put(key, [key, "new"])
    assert job.looked_at() == GROUPS
    snapshot.release()


def test_while_everything_is_to_be_looked_at_nothing_is_left_out() -> None:
    job = filled()
    snapshot = job.backend.freeze()
    garbage.look_at_all(True)
    try:
        for key in range(KEYS):
            job.put(key, [key, "new"])
        assert job.looked_at() == GROUPS
    finally:
        garbage.look_at_all(False)
    snapshot.release()


def test_nor_does_one_look_at_restored_state() -> None:
    pieces: list[bytes] = []
    filled().backend.freeze().write(lambda piece: pieces.append(bytes(piece)))
    gc.unfreeze()
    job = Job()
    job.backend.restore(read_batches(b"".join(pieces)))
    assert job.looked_at() == 0
    assert gc.isenabled()


def test_the_collector_is_on_again_after_a_restore_that_failed() -> None:
    job = Job()
    with pytest.raises(StateRestoreError):
        job.backend.restore([StateBatch(0, "unknown", [b"k"], None, [1])])
    assert gc.isenabled()


def test_a_collector_that_the_user_has_turned_off_stays_off() -> None:
    gc.disable()
    try:
        Job().backend.restore([])
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_state_is_freed_when_it_is_replaced() -> None:
    job = filled()
    things = [{key} for key in range(KEYS)]  # sets can be watched
    watched = [weakref.ref(thing) for thing in things]
    for key, thing in enumerate(things):
        job.put(key, thing)
    things.clear()
    del thing
    job.backend.freeze().release()
    for key in range(KEYS):
        job.put(key, None)
    assert [one() for one in watched] == [None] * KEYS
