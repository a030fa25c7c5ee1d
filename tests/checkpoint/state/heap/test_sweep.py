"""What is over is removed from the heap, piece by piece."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import TTL, DeclaresState, ListState, MapState, ValueState, bind
from checkpoint.state.heap import sweep as sweeping
from checkpoint.state.heap import ttl_stores
from checkpoint.state.heap.backend import HeapBackend

MAX = 16


class Timed(DeclaresState):
    total = ValueState(default=0, ttl=1)
    items = ListState[Any](ttl=1)
    seen = MapState[Any, Any](ttl=1)
    late = ValueState(default=0, ttl=TTL(1, time="event"))
    kept = ValueState(default=0)


class Running:
    def __init__(self) -> None:
        self.backend = HeapBackend(range(MAX), MAX)
        self.op = Timed()
        bind(self.op, self.backend)
        self.wall(0)

    def at(self, key: Any) -> Timed:
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, MAX))
        return self.op

    def wall(self, milliseconds: int) -> None:
        self.backend.processing_clock.read(milliseconds)

    def held(self, state: str) -> int:
        """Entries in memory, of all keys."""
        total = 0
        for group in self.backend._maps[state]:
            for kept in group.data.values():
                total += len(kept[0]) if state in ("items", "seen") else 1
        return total


def test_keys_that_never_come_again_are_removed_and_counted() -> None:
    running = Running()
    for key in range(500):
        op = running.at(key)
        op.total.value = key
        op.items.extend([1, 2])
        op.seen.update(a=1, b=2)
        op.kept.value = key
    running.wall(900)
    running.at(7).seen["b"] = 3
    running.at(7).items.append(3)
    running.wall(1000)
    for _ in range(50):
        running.backend.remove_expired()
    assert {name: running.held(name) for name in ("total", "items", "seen", "kept")} == {
        "total": 0,
        "items": 1,
        "seen": 1,
        "kept": 500,
    }
    assert running.backend.expired == 500 + 1000 + 999
    assert (running.at(7).items.get(), dict(running.at(7).seen)) == ([3], {"b": 3})


def test_one_step_looks_at_a_bounded_number_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_MOST", 100)
    running = Running()
    for key in range(5000):
        running.at(key).total.value = key
    running.wall(100_000)
    steps = []
    while running.held("total"):
        before = running.held("total")
        running.backend.remove_expired()
        steps.append(before - running.held("total"))
        assert len(steps) < 100
    assert max(steps) <= 100
    assert len(steps) >= 50
    assert running.backend.expired == 5000


def test_little_is_looked_at_while_nothing_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running()
    for key in range(3000):
        running.at(key).total.value = key
    looked = 0
    original = ttl_stores.HeapTtlValues.sweep

    def counting(self: Any, group: Any, key: bytes) -> Any:
        nonlocal looked
        looked += 1
        return original(self, group, key)

    monkeypatch.setattr(ttl_stores.HeapTtlValues, "sweep", counting)
    for at in range(1, 1000):
        running.wall(at)
        running.backend.remove_expired()
    assert 3000 <= looked <= 9 * 3000


@pytest.mark.parametrize("event_time_stops", [False, True])
def test_by_event_time_it_is_removed_as_well(event_time_stops: bool) -> None:
    running = Running()
    for key in range(3000):
        running.at(key).late.value = key
    clock = running.backend.event_clock
    for at in [5000] if event_time_stops else [10, 500, 1009, 1010, 1200, 1400]:
        clock.passed(at)
        for _ in range(5):
            running.backend.remove_expired()
    if event_time_stops:
        clock.passed(6000)
        for _ in range(300):
            running.backend.remove_expired()
    assert running.held("late") == 0


def test_a_large_list_is_cut_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ttl_stores, "LARGE", 100)
    monkeypatch.setattr(ttl_stores, "_PART", 10)
    running = Running()
    running.at("k").items.extend(range(500))
    running.wall(500)
    running.at("k").items.extend(range(100))
    running.wall(1000)
    store = running.backend._ttl["items"]
    group = running.backend._maps["items"][running.backend._current.index]
    for left in range(590, 100, -10):
        assert store.sweep(group, encode_key("k")) == (10, 1, True)
        assert running.held("items") == left
    while store.sweep(group, encode_key("k")).removed:
        pass
    assert running.at("k").items.get() == list(range(100))


def test_a_large_map_is_gone_round_piece_by_piece_whatever_lives_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ttl_stores, "LARGE", 100)
    monkeypatch.setattr(ttl_stores, "_PART", 10)
    running = Running()
    seen = running.at("k").seen
    seen.update({i: i for i in range(500)})
    running.wall(500)
    for i in range(200):
        seen[i] = -i
    running.wall(1000)
    store = running.backend._ttl["seen"]
    group = running.backend._maps["seen"][running.backend._current.index]
    removed = [store.sweep(group, encode_key("k")).removed for _ in range(100)]
    assert sum(removed) == 300
    assert max(removed) == 10
    assert running.held("seen") == 200
    assert list(seen.items()) == [(i, -i) for i in range(200)]
    snapshot, stamps = running.backend.freeze(), group.data[encode_key("k")][0]
    store.sweep(group, encode_key("k"))
    assert group.data[encode_key("k")][0] is stamps, "nothing is copied to find that nothing is over"
    snapshot.release()


def test_memory_of_what_was_removed_is_given_back() -> None:
    running = Running()
    for key in range(2000):
        running.at(key).total.value = key
    groups = running.backend._maps["total"]
    before = sum(group.data.__sizeof__() for group in groups)
    running.wall(1000)
    for _ in range(50):
        running.backend.remove_expired()
    assert sum(group.data.__sizeof__() for group in groups) < before / 10


def test_what_is_removed_while_a_snapshot_is_open_is_copied_on_write() -> None:
    running = Running()
    for key in range(200):
        running.at(key).items.append([key])
    frozen = running.backend.freeze()
    seen = [group.data for group in running.backend._maps["items"]]
    running.wall(1000)
    for _ in range(50):
        running.backend.remove_expired()
    assert running.held("items") == 0
    assert sum(map(len, seen)) == 200, "the snapshot's dicts are as they were"
    frozen.release()
