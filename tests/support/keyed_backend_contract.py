"""What every keyed backend must do. A backend's own tests subclass `KeyedBackendContract`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat
from pathlib import Path
from typing import Any, ClassVar

import pytest

from checkpoint.codec import EncodingError, decode_key, encode_key
from checkpoint.key_groups import key_group, range_of
from checkpoint.state import (
    AggregatingState,
    DeclaresState,
    KeyedBackend,
    ListState,
    MapState,
    ReducingState,
    SnapshotAbandoned,
    StateAccessError,
    StateBatch,
    StateRestoreError,
    ValueState,
    WholeSnapshot,
    bind,
    read_batches,
    read_footer,
    snapshot_rows,
)
from checkpoint.state.errors import TooManyEntries
from checkpoint.state.files import load_keyed_state
from checkpoint.state.paging.folding import folded
from checkpoint.state.stores import MISSING
from checkpoint.storage.storage import CheckpointStorage

MAX = 16
KEYS = range(40)


class Everything(DeclaresState):
    total = ValueState(default=0)
    bag = ValueState(default=list)
    items = ListState[Any]()
    seen = MapState[Any, Any]()
    largest = ReducingState(max)
    average = AggregatingState(lambda: (0, 0), lambda acc, x: (acc[0] + x, acc[1] + 1), lambda acc: acc[0] / acc[1])


class OnlyTotal(DeclaresState):
    total = ValueState(default=0)


class Running:
    """An operator with its backend, as one subtask has them."""

    def __init__(self, make: type[KeyedBackend], groups: range = range(MAX), cls: type = Everything) -> None:
        self.backend = make(groups, MAX)
        self.op: Any = cls()
        bind(self.op, self.backend)

    def at(self, key: Any) -> Any:
        """The operator, with `key` as current key."""
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, MAX))
        return self.op

    def restore(self, *files: bytes, groups: range = range(MAX)) -> Running:
        for file in files:
            self.backend.restore(read_batches(file, groups))
        return self

    def snapshot(self) -> bytes:
        return written(self.backend.freeze())

    def timers(self) -> list[tuple[int, Any]]:
        """Fires all event timers."""
        fired = []
        while (timer := self.backend.event_timers.pop(2**63 - 1)) is not None:
            fired.append((timer.at, decode_key(timer.key)))
        return fired


def written(snapshot: WholeSnapshot) -> bytes:
    pieces: list[bytes] = []
    snapshot.write(lambda piece: pieces.append(bytes(piece)))
    return b"".join(pieces)


def contents(*files: bytes) -> dict[tuple[str, Any], Any]:
    """By state and key; timers by name and (key, namespace)."""
    found: dict[tuple[str, Any], Any] = {}
    for batch in chain.from_iterable(folded(read_batches(file)) for file in files):
        for key, namespace, value in zip(batch.keys, batch.namespaces or repeat(None), batch.values, strict=False):
            assert batch.group == key_group(key, MAX)
            place = (batch.state, decode_key(key) if namespace is None else (decode_key(key), namespace))
            assert place not in found
            found[place] = value
    return found


def fill(running: Running, keys: Iterable[Any] = KEYS) -> None:
    for key in keys:
        op = running.at(key)
        op.total.value = key
        op.bag.value.append([key])
        op.items.extend([key, {"nested": [key]}])
        op.seen.update({"key": key, ("a", 1): [key]})
        op.largest.add(key)
        op.average.add(key)
        running.backend.event_timers.register(1_000 - key)
        running.backend.processing_timers.register(key)
    running.backend.clear_current_key()


def looked_at(running: Running, key: Any) -> dict[str, Any]:
    """What a look from outside finds in each state."""
    encoded = encode_key(key)
    return {
        state: running.backend.peek(encoded, key_group(encoded, MAX), state, 1_000) for state in running.backend.states
    }


def check(running: Running, key: Any) -> None:
    op = running.at(key)
    assert (op.total.value, op.bag.value, op.items.get()) == (key, [[key]], [key, {"nested": [key]}])
    assert (dict(op.seen), op.largest.value, op.average.value) == ({"key": key, ("a", 1): [key]}, key, key)


class KeyedBackendContract:
    make: ClassVar[type[KeyedBackend]]

    def running(self, groups: range = range(MAX), cls: type = Everything) -> Running:
        return Running(self.make, groups, cls)

    # -- access ------------------------------------------------------------------------------------------------

    def test_each_key_has_its_own_of_every_kind(self) -> None:
        running = self.running()
        fill(running)
        for key in KEYS:
            check(running, key)

    def test_a_key_without_anything_has_defaults(self) -> None:
        running = self.running()
        fill(running, [1])
        op = running.at(2)
        assert (op.total.value, op.bag.value, op.items.get(), dict(op.seen)) == (0, [], [], {})
        assert (op.largest.value, op.average.value, len(op.items), len(op.seen)) == (None, None, 0, 0)
        assert "key" not in op.seen
        assert op.seen.get("key") is None
        assert op.seen.get("key", 5) == 5
        with pytest.raises(KeyError, match="key"):
            op.seen["key"]
        with pytest.raises(KeyError, match="key"):
            del op.seen["key"]

    def test_clear_forgets_what_the_current_key_has_and_nothing_else(self) -> None:
        running = self.running()
        fill(running, [1, 2])
        op = running.at(1)
        for handle in (op.total, op.bag, op.items, op.seen, op.largest, op.average):
            handle.clear()
            handle.clear()  # again, with nothing left
        assert (op.total.value, op.items.get(), dict(op.seen), op.average.value) == (0, [], {}, None)
        check(running, 2)
        op.bag.clear()
        assert {key for _, key in contents(running.snapshot()) if not isinstance(key, tuple)} == {2}

    def test_what_was_read_may_be_changed_in_place(self) -> None:
        running = self.running()
        fill(running, [1])
        op = running.at(1)
        op.bag.value.append("more")
        op.items.get()[1]["nested"].append("more")
        op.seen["a", 1].append("more")
        for value in op.seen.values():
            if isinstance(value, list):
                value.append("and more")
        running.at(2)
        op = running.at(1)
        assert op.bag.value == [[1], "more"]
        assert op.items.get()[1] == {"nested": [1, "more"]}
        assert op.seen["a", 1] == [1, "more", "and more"]
        op.items.get().append("not kept")
        assert len(op.items) == 2

    def test_lists_and_maps_are_gone_when_their_last_member_is(self) -> None:
        running = self.running()
        op = running.at(1)
        op.items.extend([])
        op.items.append(1)
        op.items.update([])
        op.seen["a"] = None
        assert "a" in op.seen
        del op.seen["a"]
        assert contents(running.snapshot()) == {}

    def test_a_map_can_be_changed_while_it_is_gone_through(self) -> None:
        running = self.running()
        op = running.at(1)
        op.seen.update({name: ord(name) for name in "dbac"})
        assert list(op.seen) == list(op.seen.keys()) == ["d", "b", "a", "c"]
        for name in op.seen:
            del op.seen[name]
            op.seen["e"] = 1
        assert list(op.seen.items()) == [("e", 1)]

    @pytest.mark.parametrize("value", [None, True, 2**70, -0.0, "é", b"\0", (1, [2]), {1: {2}}, [[]]])
    def test_values_of_every_type_come_back_as_they_were(self, value: Any) -> None:
        running = self.running()
        op = running.at(1)
        op.total.value = value
        op.items.append(value)
        op.seen["x"] = value
        restored = self.running().restore(running.snapshot()).at(1)
        for found in (restored.total.value, restored.items.get()[0], restored.seen["x"]):
            assert (type(found), repr(found)) == (type(value), repr(value))

    def test_equal_keys_of_different_types_are_different_keys(self) -> None:
        running = self.running()
        keys = [1, 1.0, True, "1"]
        for number, key in enumerate(keys):
            running.at(key).total.value = number
        assert [running.at(key).total.value for key in keys] == [0, 1, 2, 3]

    def test_a_value_that_no_checkpoint_can_hold_is_refused_and_nothing_changes(self) -> None:
        running = self.running()
        fill(running, [1])
        op = running.at(1)
        for put in (
            lambda: setattr(op.total, "value", object()),
            lambda: op.items.append(object()),
            lambda: op.items.extend([object()]),
            lambda: op.items.update([object()]),
            lambda: op.seen.__setitem__("x", object()),
        ):
            with pytest.raises(EncodingError, match=r"of Everything can't keep .* of key 1:"):
                put()
        check(running, 1)

    def test_without_a_current_key_every_use_is_an_error_that_names_the_state(self) -> None:
        running = self.running()
        op = running.op
        uses: list[tuple[str, Any]] = [
            ("total", lambda: op.total.value),
            ("total", lambda: setattr(op.total, "value", 1)),
            ("total", lambda: setattr(op.total, "value", object())),
            ("total", lambda: op.total.clear()),
            ("largest", lambda: op.largest.add(1)),
            ("average", lambda: op.average.add(1)),
            ("items", lambda: op.items.get()),
            ("items", lambda: op.items.append(1)),
            ("items", lambda: op.items.append(object())),
            ("items", lambda: op.items.extend([])),
            ("items", lambda: op.items.update([])),
            ("items", lambda: len(op.items)),
            ("seen", lambda: op.seen["x"]),
            ("seen", lambda: op.seen.get("x")),
            ("seen", lambda: op.seen.update(x=1)),
            ("seen", lambda: "x" in op.seen),
            ("seen", lambda: len(op.seen)),
            ("seen", lambda: list(op.seen)),
            ("seen", lambda: op.seen.items()),
            ("seen", lambda: op.seen.pop("x")),
        ]
        for state in ("before", "after"):
            for name, use in uses:
                with pytest.raises(StateAccessError, match=f"state '{name}' of Everything .* no current key"):
                    use()
            if state == "before":
                fill(running, [1])
        with pytest.raises(StateAccessError, match="no current key"):
            running.backend.event_timers.register(1)

    def test_only_the_subtasks_own_key_groups_are_taken(self) -> None:
        backend = self.make(range(4, 8), MAX)
        for group in (4, 7):
            backend.set_current_key(b"k", group)
        for group in (3, 8):
            with pytest.raises(StateAccessError, match=rf"key group {group}, but owns 4\.\.7"):
                backend.set_current_key(b"k", group)
        for groups in (range(-1, 4), range(4, 4), range(4, MAX + 1), range(0, 4, 2)):
            with pytest.raises(ValueError, match="no range of key groups"):
                self.make(groups, MAX)

    # -- looks from outside ------------------------------------------------------------------------------------

    def test_a_look_from_outside_finds_what_a_snapshot_would_hold(self) -> None:
        running = self.running()
        fill(running)
        expected = contents(running.snapshot())
        assert sorted(running.backend.states) == ["average", "bag", "items", "largest", "seen", "total"]
        for key in KEYS:
            assert looked_at(running, key) == {
                state: expected[state, key] for state in ("total", "bag", "items", "seen", "largest", "average")
            }
            encoded = encode_key(key)
            assert running.backend.peek_timers(encoded, key_group(encoded, MAX), 1_000) == {
                "event": [1_000 - key],
                "processing": [key],
            }

    def test_a_look_changes_nothing_and_makes_no_default(self) -> None:
        running = self.running()
        fill(running, [1])
        expected = contents(running.snapshot())
        assert set(looked_at(running, 2).values()) == {MISSING}
        encoded = encode_key(2)
        assert running.backend.peek_timers(encoded, key_group(encoded, MAX), 10) == {"event": [], "processing": []}
        looked_at(running, 1)
        assert contents(running.snapshot()) == expected

    def test_a_look_leaves_the_current_key_and_sees_changes_in_place(self) -> None:
        running = self.running()
        fill(running, [1])
        op = running.at(2)
        op.bag.value.append("before")
        changed = op.bag.value
        assert looked_at(running, 1)["total"] == 1
        changed.append("after")
        op.seen["x"] = [1]
        op.seen["x"].append(2)
        op.total.value = 5
        assert contents(running.snapshot())["total", 2] == 5
        running.backend.clear_current_key()
        found = looked_at(running, 2)
        assert (found["bag"], found["seen"], found["total"]) == (["before", "after"], {"x": [1, 2]}, 5)
        with pytest.raises(StateAccessError, match="no current key"):
            op.total.value  # noqa: B018

    def test_a_look_while_a_snapshot_is_open_sees_what_came_behind_its_barrier(self) -> None:
        running = self.running()
        fill(running, [1])
        frozen = running.backend.freeze()
        running.at(1).bag.value.append("late")
        running.at(1).total.value = 7
        running.backend.clear_current_key()
        found = looked_at(running, 1)
        assert (found["bag"], found["total"], found["items"]) == ([[1], "late"], 7, [1, {"nested": [1]}])
        assert contents(written(frozen))["bag", 1] == [[1]]

    def test_one_entry_of_a_map_is_looked_at_alone(self) -> None:
        running = self.running()
        fill(running, [1])
        key = encode_key(1)
        group = key_group(key, MAX)
        assert running.backend.peek_entry(key, group, "seen", ("a", 1)) == [1]
        assert running.backend.peek_entry(key, group, "seen", "other") is MISSING
        with pytest.raises(StateAccessError, match="'items' of Everything is no map"):
            running.backend.peek_entry(key, group, "items", 0)

    def test_a_look_is_refused_where_there_is_too_much_to_look_at(self) -> None:
        running = self.running()
        op = running.at(1)
        op.items.extend(range(11))
        op.seen.update((n, n) for n in range(11))
        op.bag.value = list(range(11))
        for n in range(11):
            running.backend.event_timers.register(n)
        key = encode_key(1)
        group = key_group(key, MAX)
        for state in ("items", "seen"):
            with pytest.raises(TooManyEntries, match="no more than 10"):
                running.backend.peek(key, group, state, 10)
            assert len(running.backend.peek(key, group, state, 11)) == 11
        with pytest.raises(TooManyEntries, match="no more than 10"):
            running.backend.peek_timers(key, group, 10)
        assert running.backend.peek(key, group, "bag", 10) == list(range(11))
        assert running.backend.peek_entry(key, group, "seen", 5) == 5

    def test_a_look_is_for_the_subtasks_own_key_groups_only(self) -> None:
        backend = self.make(range(4, 8), MAX)
        bind(Everything(), backend)
        assert backend.peek(b"k", 4, "total", 1) is MISSING
        for group in (3, 8):
            for look in (
                lambda group=group: backend.peek(b"k", group, "total", 1),
                lambda group=group: backend.peek_entry(b"k", group, "seen", 1),
                lambda group=group: backend.peek_timers(b"k", group, 1),
            ):
                with pytest.raises(StateAccessError, match=rf"key group {group}, but owns 4\.\.7"):
                    look()

    def test_keys_whose_encodings_end_alike_have_timers_of_their_own(self) -> None:
        running = self.running()
        for at, key in enumerate([b"k", b"xk", b"k"]):
            running.backend.set_current_key(key, 3)
            running.backend.event_timers.register(10 * at)
        assert running.backend.peek_timers(b"k", 3, 9)["event"] == [0, 20]
        assert running.backend.peek_timers(b"xk", 3, 9)["event"] == [10]

    # -- snapshots ---------------------------------------------------------------------------------------------

    def test_a_snapshot_holds_the_state_of_its_barrier_whatever_comes_behind_it(self) -> None:
        running = self.running()
        fill(running)
        expected = contents(running.snapshot())
        frozen = running.backend.freeze()
        for key in KEYS:
            op = running.at(key)
            op.total.value = -1
            op.bag.value.append("late")
            op.items.get()[1]["nested"].append("late")
            op.items.append("late")
            op.seen["a", 1].append("late")
            op.seen["late"] = 1
            op.largest.add(100)
            op.average.clear()
            running.backend.event_timers.delete(1_000 - key)
            running.backend.processing_timers.register(5_000)
        running.at("new").total.value = 1
        assert contents(written(frozen)) == expected
        after = contents(running.snapshot())
        assert after["total", 3] == -1
        assert after["bag", 3] == [[3], "late"]
        assert after["items", 3] == [3, {"nested": [3, "late"]}, "late"]
        assert after["seen", 3] == {"key": 3, ("a", 1): [3, "late"], "late": 1}
        assert ("average", 3) not in after

    def test_several_snapshots_are_open_at_once_and_end_in_any_order(self) -> None:
        running = self.running()
        frozen = []
        for number in range(4):
            running.at("k").bag.value.append(number)
            frozen.append(running.backend.freeze())
        running.at("k").bag.value.append("last")
        frozen[1].release()
        for number in (3, 0, 2):
            assert contents(written(frozen[number])) == {("bag", "k"): list(range(number + 1))}
        assert running.at("k").bag.value == [0, 1, 2, 3, "last"]

    def test_an_aborted_snapshots_changes_are_in_the_next(self) -> None:
        running = self.running()
        fill(running, [1])
        running.backend.freeze().release()
        running.at(2).total.value = 2
        frozen = running.backend.freeze()
        frozen.release()
        frozen.release()
        with pytest.raises(SnapshotAbandoned):
            written(frozen)
        found = contents(running.snapshot())
        assert (found["total", 1], found["total", 2]) == (1, 2)

    def test_a_write_that_is_under_way_ends_when_it_is_released(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(snapshot_rows, "BLOCK_ROWS", 1)
        running = self.running()
        fill(running)
        frozen = running.backend.freeze()
        with pytest.raises(SnapshotAbandoned):
            frozen.write(lambda piece: frozen.release())
        for key in KEYS:
            check(running, key)

    def test_a_snapshot_changes_nothing_in_what_the_next_one_holds(self, tmp_path: Path) -> None:
        storage = CheckpointStorage(tmp_path.as_uri(), None)
        running = self.running()
        fill(running, [1])
        kept: list[dict[int, int]] = []
        for n in (1, 2, 3):
            running.at(n).total.value = n
            frozen = running.backend.freeze()
            files = frozen.files(lambda name, n=n: storage.create(f"chk-{n}-1/op-0-{name}.arrow"))  # type: ignore[misc]
            frozen.release()
            new = self.running()
            for file in files:
                new.backend.restore(load_keyed_state(storage, [file]))
            kept.append({key: new.at(key).total.value for key in (1, 2, 3)})
            check(new, 1)
        assert kept == [{1: 1, 2: 0, 3: 0}, {1: 1, 2: 2, 3: 0}, {1: 1, 2: 2, 3: 3}]

    def test_a_snapshot_that_cant_be_written_leaves_no_file(self, tmp_path: Path) -> None:
        storage = CheckpointStorage(tmp_path.as_uri(), None)
        running = self.running()
        running.at(1).bag.value.append(object())
        frozen = running.backend.freeze()
        with pytest.raises(EncodingError, match="state 'bag' of Everything, key 1"):
            frozen.files(lambda name: storage.create(f"chk-1-1/op-0-{name}.arrow"))
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    def test_a_file_says_what_it_holds(self) -> None:
        running = self.running()
        running.at(1).total.value = 5
        running.backend.event_timers.register(7)
        footer = read_footer(running.snapshot())
        assert (footer.operator, footer.max_parallelism, footer.rows) == ("Everything", MAX, 2)
        assert footer.states == ("event timers", "total")

    # -- restoring ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (3, 1), (2, 5), (5, 2)])
    def test_state_goes_with_its_key_groups_to_another_parallelism(self, before: int, after: int) -> None:
        olds = [self.running(range_of(i, before, MAX)) for i in range(before)]
        for old, groups in zip(olds, (range_of(i, before, MAX) for i in range(before)), strict=True):
            fill(old, [key for key in KEYS if key_group(encode_key(key), MAX) in groups])
        files = [old.snapshot() for old in olds]
        found = []
        for i in range(after):
            groups = range_of(i, after, MAX)
            new = self.running(groups).restore(*files, groups=groups)
            for key in KEYS:
                if key_group(encode_key(key), MAX) in groups:
                    check(new, key)
            found.append(new.snapshot())
            fired = new.timers()
            assert fired == sorted(fired)
            assert {key for _, key in fired} == {key for key in KEYS if key_group(encode_key(key), MAX) in groups}
        assert contents(*found) == contents(*files)

    def test_a_key_group_may_come_in_several_batches(self) -> None:
        running = self.running()
        same = [key for key in range(100) if key_group(encode_key(key), MAX) == 3]
        for key in same:
            running.backend.restore([StateBatch(3, "total", [encode_key(key)], None, [key + 1])])
        assert [running.at(key).total.value for key in same] == [key + 1 for key in same]

    def test_restored_state_goes_on_like_any_other(self) -> None:
        old = self.running()
        fill(old)
        new = self.running().restore(old.snapshot())
        op = new.at(3)
        op.bag.value.append("more")
        op.largest.add(2)
        new.backend.event_timers.delete(1_000 - 3)
        new.backend.event_timers.register(1)
        again = self.running().restore(new.snapshot())
        assert again.at(3).bag.value == [[3], "more"]
        assert again.at(3).largest.value == 3
        fired = again.timers()
        assert fired[0] == (1, 3)
        assert (997, 3) not in fired
        assert len(fired) == len(KEYS)

    def test_undeclared_state_is_an_error_unless_it_may_be_dropped(self) -> None:
        old = self.running()
        fill(old, [1])
        file = old.snapshot()
        with pytest.raises(StateRestoreError, match=r"holds state '\w+' for OnlyTotal, which declares 'total'"):
            self.running(cls=OnlyTotal).restore(file)
        new = self.running(cls=OnlyTotal)
        new.backend.restore(read_batches(file), allow_unclaimed=True)
        assert new.at(1).total.value == 1
        assert {state for state, _ in contents(new.snapshot())} == {"total", "event timers", "processing timers"}

    @pytest.mark.parametrize(
        ("batch", "message"),
        [
            (("seen", None, [5]), "key 1 is no MapState"),
            (("items", None, [{}]), "key 1 is no ListState"),
            (("total", [b"n"], [5]), "key 1 has a namespace .*, which ValueState doesn't have"),
            (("event timers", None, [None]), "key 1 is no timer"),
            (("event timers", [b"\0" * 7], [None]), "key 1 is no timer"),
            (("event timers", [b"\0" * 8], [0]), "key 1 is no timer"),
        ],
    )
    def test_rows_that_dont_fit_are_an_error(self, batch: tuple[str, Any, list[Any]], message: str) -> None:
        name, namespaces, values = batch
        key = encode_key(1)
        with pytest.raises(StateRestoreError, match=message):
            self.running().backend.restore([StateBatch(key_group(key, MAX), name, [key], namespaces, values)])

    @pytest.mark.parametrize("name", ["total", "event timers"])
    def test_rows_of_anothers_key_groups_are_an_error(self, name: str) -> None:
        for group in (3, 8):
            with pytest.raises(StateRestoreError, match=f"{name}.* key group {group} outside"):
                self.running(range(4, 8)).backend.restore([StateBatch(group, name, [b"k"], None, [None])])

    # -- timers ------------------------------------------------------------------------------------------------

    def test_timers_fire_once_in_order_of_time(self) -> None:
        running = self.running()
        timers = running.backend.event_timers
        for at, key in [(30, "a"), (10, "b"), (20, "a"), (10, "b"), (-5, "c")]:
            running.at(key)
            timers.register(at)
        running.at("a")
        timers.delete(20)
        timers.delete(21)
        running.at("b")
        timers.delete(30)  # another key's
        assert (len(timers), timers.next, timers.due(-6), timers.due(-5)) == (3, -5, False, True)
        assert [running.backend.processing_timers.next, running.backend.processing_timers.due(2**62)] == [None, False]
        assert running.timers() == [(-5, "c"), (10, "b"), (30, "a")]
        assert (len(timers), timers.next) == (0, None)
