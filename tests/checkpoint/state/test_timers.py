"""Timers of keys: when they fire, and that they are kept like any other state."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from checkpoint.codec import encode_key
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.key_groups import key_group, range_of
from checkpoint.state import (
    DeclaresState,
    KeyedBackend,
    StateAccessError,
    StateBatch,
    StateRestoreError,
    ValueState,
    WholeSnapshot,
    bind,
    make_backend,
    read_batches,
    read_snapshot,
)
from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.rocksdb import timers as rocksdb_timers
from checkpoint.state.timers import EVENT_TIMERS, PROCESSING_TIMERS, Timer
from checkpoint.state_backends import StateBackend

MAX = 16


KINDS: tuple[StateBackend, ...] = ("heap", "rocksdb")
_kind: StateBackend = "heap"


@pytest.fixture(params=KINDS, autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test is made with each backend."""
    monkeypatch.setattr(sys.modules[__name__], "_kind", request.param)
    monkeypatch.setattr(rocksdb_timers, "NEAR", 4)
    monkeypatch.setattr(rocksdb_timers, "_MOST_CHANGED", 7)
    return str(request.param)


def backend(groups: range = range(MAX)) -> KeyedBackend:
    return make_backend(groups, MAX, state_backend=_kind)


def at_key(one: KeyedBackend, key: Any) -> KeyedBackend:
    encoded = encode_key(key)
    one.set_current_key(encoded, key_group(encoded, MAX))
    return one


def timer(at: int, key: Any) -> Timer:
    encoded = encode_key(key)
    return Timer(at, encoded, key_group(encoded, MAX))


def register(one: KeyedBackend, *timers: tuple[int, Any]) -> KeyedBackend:
    for at, key in timers:
        at_key(one, key).event_timers.register(at)
    one.clear_current_key()
    return one


def fire(one: KeyedBackend, now: int) -> list[Timer]:
    fired = []
    while (next_ := one.event_timers.pop(now)) is not None:
        fired.append(next_)
    return fired


def written(snapshot: WholeSnapshot) -> bytes:
    pieces = bytearray()
    snapshot.write(pieces.extend)
    return bytes(pieces)


def restored(*files: bytes, groups: range = range(MAX)) -> KeyedBackend:
    one = backend(groups)
    for file in files:
        one.restore(read_batches(file, groups))
    return one


# -- firing ---------------------------------------------------------------------------------------------------


def test_timers_fire_in_order_of_time_once_their_time_has_come() -> None:
    one = register(backend(), (30, "a"), (10, "b"), (20, "a"), (40, "a"))
    assert not one.event_timers.due(9)
    assert one.event_timers.due(10)
    assert fire(one, 30) == [timer(10, "b"), timer(20, "a"), timer(30, "a")]
    assert fire(one, 30) == []
    assert len(one.event_timers) == 1


@pytest.mark.parametrize("at", [-(2**63), -1, 0, 1, 2**31, MAX_WATERMARK])
def test_any_64_bit_time_can_be_set(at: int) -> None:
    one = register(backend(), (at, "a"))
    assert one.event_timers.next == at
    assert not at > -(2**63) or not one.event_timers.due(at - 1)
    assert fire(one, at) == [timer(at, "a")]


def test_a_key_has_one_timer_a_time() -> None:
    one = register(backend(), (10, "a"), (10, "a"), (10, "b"))
    assert sorted(fire(one, 10)) == sorted([timer(10, "a"), timer(10, "b")])


def test_equal_keys_of_different_types_have_their_own_timers() -> None:
    one = register(backend(), (10, 1), (10, 1.0), (10, True))
    assert len(fire(one, 10)) == 3


def test_a_timer_set_while_another_fires_and_due_already_fires_in_the_same_round() -> None:
    one = register(backend(), (10, "a"))
    assert one.event_timers.pop(20) == timer(10, "a")
    register(one, (10, "a"), (15, "a"), (21, "a"))
    assert fire(one, 20) == [timer(10, "a"), timer(15, "a")]


def test_a_deleted_timer_does_not_fire_unless_it_is_set_again() -> None:
    one = register(backend(), (10, "a"), (20, "a"))
    timers = at_key(one, "a").event_timers
    timers.delete(10)
    timers.delete(10)
    timers.delete(11)
    assert not timers.due(10)
    timers.register(10)
    timers.delete(20)
    assert fire(one, 30) == [timer(10, "a")]


def test_a_timer_is_deleted_for_the_current_key_only() -> None:
    one = register(backend(), (10, "a"), (10, "b"))
    at_key(one, "a").event_timers.delete(10)
    assert fire(one, 10) == [timer(10, "b")]


def test_event_and_processing_timers_are_apart() -> None:
    one = at_key(backend(), "a")
    one.event_timers.register(10)
    one.processing_timers.register(20)
    assert not one.processing_timers.due(19)
    assert fire(one, 100) == [timer(10, "a")]
    assert one.processing_timers.pop(20) == timer(20, "a")


def test_a_timer_put_off_with_every_record_leaves_no_more_behind_than_a_bounded_index() -> None:
    one = at_key(backend(), "session")
    for at in range(100_000):
        one.event_timers.register(at)
        one.event_timers.delete(at - 1)
    assert len(one.event_timers._store._index) < 25_000
    assert fire(one, 100_000) == [timer(99_999, "session")]


# -- errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["register", "delete"])
def test_a_timer_needs_a_current_key(method: str) -> None:
    with pytest.raises(StateAccessError, match="no current key"):
        getattr(backend().event_timers, method)(1)


@pytest.mark.parametrize("at", [1.0, "1", None, True])
@pytest.mark.parametrize("method", ["register", "delete"])
def test_the_time_of_a_timer_is_an_int(method: str, at: Any) -> None:
    with pytest.raises(TypeError, match="int, in milliseconds since the epoch"):
        getattr(at_key(backend(), "a").event_timers, method)(at)


@pytest.mark.parametrize("at", [2**63, -(2**63) - 1])
def test_a_time_beyond_64_bits_is_refused(at: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        at_key(backend(), "a").event_timers.register(at)


# -- checkpoints ----------------------------------------------------------------------------------------------


def test_a_snapshot_has_the_timers_of_its_moment() -> None:
    one = register(backend(), (10, "a"), (20, "b"))
    snapshot = one.freeze()
    assert fire(one, 10) == [timer(10, "a")]
    register(one, (15, "c"))
    at_key(one, "b").event_timers.delete(20)
    assert fire(restored(written(snapshot)), 100) == [timer(10, "a"), timer(20, "b")]
    assert fire(one, 100) == [timer(15, "c")]


def test_rows_of_timers_can_be_read_without_a_job() -> None:
    one = at_key(backend(), "a")
    one.event_timers.register(5)
    one.processing_timers.register(-1)
    group = key_group(encode_key("a"), MAX)
    bias = 2**63
    assert list(read_snapshot(written(one.freeze()))) == [
        (group, EVENT_TIMERS, encode_key("a"), (5 + bias).to_bytes(8, "big"), None),
        (group, PROCESSING_TIMERS, encode_key("a"), (-1 + bias).to_bytes(8, "big"), None),
    ]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 5)])
def test_timers_go_with_their_keys_when_a_job_is_rescaled(before: int, after: int) -> None:
    keys = [f"key {i}" for i in range(100)]
    files = []
    for subtask in range(before):
        groups = range_of(subtask, before, MAX)
        mine = [key for key in keys if key_group(encode_key(key), MAX) in groups]
        files.append(written(register(backend(groups), *((len(key) * i, key) for i, key in enumerate(mine))).freeze()))
    old = sorted(t for file in files for t in fire(restored(file), 10_000))
    parts = [fire(restored(*files, groups=range_of(i, after, MAX)), 10_000) for i in range(after)]
    assert sorted(t for part in parts for t in part) == old
    assert all(part == sorted(part, key=lambda t: t.at) for part in parts)
    assert len(old) == 100


def test_a_restored_timer_can_be_set_deleted_and_fired_like_any_other() -> None:
    one = restored(written(register(backend(), (10, "a"), (20, "a")).freeze()))
    timers = at_key(one, "a").event_timers
    timers.register(10)
    timers.delete(20)
    timers.register(5)
    assert fire(one, 100) == [timer(5, "a"), timer(10, "a")]


def test_timers_lie_beside_other_state() -> None:
    class Total(DeclaresState):
        total = ValueState(default=0)

    def bound() -> tuple[KeyedBackend, Total]:
        one, operator = backend(), Total()
        bind(operator, one)
        return one, operator

    one, operator = bound()
    register(one, (10, "a"))
    at_key(one, "a")
    operator.total.value = 7
    again, operator = bound()
    again.restore(read_batches(written(one.freeze())))
    at_key(again, "a")
    assert operator.total.value == 7
    assert fire(again, 10) == [timer(10, "a")]


@pytest.mark.parametrize(("namespace", "problem"), [(None, "is no timer"), (b"123", "is no timer")])
def test_a_row_that_is_no_timer_is_refused(namespace: bytes | None, problem: str) -> None:
    with pytest.raises(StateRestoreError, match=problem):
        backend().restore([StateBatch(0, EVENT_TIMERS, [encode_key("a")], [namespace], [None])])


def test_a_timer_that_is_in_a_checkpoint_twice_is_refused() -> None:
    file = written(register(backend(), (10, "a")).freeze())
    with pytest.raises(StateRestoreError, match="twice"):
        restored(file, file)


def test_a_timer_of_anothers_key_group_is_refused() -> None:
    batch = StateBatch(9, EVENT_TIMERS, [encode_key("a")], [bytes(8)], [None])
    with pytest.raises(StateRestoreError, match="key group 9 outside"):
        backend(range(4)).restore([batch])


def test_a_barrier_takes_the_dicts_and_looks_at_no_timer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "heap":
        return  # it has no dicts
    one = register(backend(), *((at, at % 50) for at in range(2_000)))
    copied: list[int] = []
    before_change = KeyGroupMap._before_change

    def counting(map_: KeyGroupMap, key: bytes) -> None:
        copied.append(len(map_.data) if map_._frozen else 0)
        before_change(map_, key)

    monkeypatch.setattr(KeyGroupMap, "_before_change", counting)
    snapshot = one.freeze()
    assert copied == []
    popped = one.event_timers.pop(0)
    assert popped is not None
    of_its_group = [at for at in range(2_000) if timer(at, at % 50).group == popped.group]
    assert copied == [len(of_its_group)]  # its own group's dict, once
    snapshot.release()


class AgainstAPlainSet(RuleBasedStateMachine):
    """Whatever is done, and however often it is snapshotted and restored: as if timers were a set of (time, key)."""

    keys = st.sampled_from(["a", "b", 1, 1.0, ("x", 2)])
    times = st.integers(-5, 20)

    def __init__(self) -> None:
        super().__init__()
        self.backend = backend()
        self.expected: set[tuple[int, bytes]] = set()
        self.open: list[tuple[WholeSnapshot, set[tuple[int, bytes]]]] = []

    @rule(at=times, key=keys)
    def register(self, at: int, key: Any) -> None:
        at_key(self.backend, key).event_timers.register(at)
        self.expected.add((at, encode_key(key)))

    @rule(at=times, key=keys)
    def delete(self, at: int, key: Any) -> None:
        at_key(self.backend, key).event_timers.delete(at)
        self.expected.discard((at, encode_key(key)))

    @rule(now=times)
    def pop(self, now: int) -> None:
        popped = self.backend.event_timers.pop(now)
        due = {each for each in self.expected if each[0] <= now}
        if popped is None:
            assert not due
        else:
            assert popped.at == min(at for at, _ in due)
            self.expected.remove((popped.at, popped.key))

    @rule()
    def snapshot(self) -> None:
        self.open.append((self.backend.freeze(), set(self.expected)))

    @rule(random=st.randoms(use_true_random=False))
    def restore_one(self, random: random.Random) -> None:
        if self.open:
            snapshot, expected = self.open.pop(random.randrange(len(self.open)))
            self.backend = restored(written(snapshot))
            self.expected = expected

    @invariant()
    def knows_what_is_next(self) -> None:
        timers = self.backend.event_timers
        assert len(timers) == len(self.expected)
        assert timers.next == min((at for at, _ in self.expected), default=None)


def test_timers_behave_like_a_set_over_any_snapshots_and_restores() -> None:
    few = settings(max_examples=150, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(AgainstAPlainSet, settings=few)  # type: ignore[no-untyped-call]
