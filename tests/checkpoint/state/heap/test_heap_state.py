from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable
from copy import deepcopy
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.codec import EncodingError, decode_key, encode_key
from checkpoint.key_groups import key_group, range_of
from checkpoint.state import (
    DeclaresState,
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
    descriptors_of,
    make_backend,
    read_batches,
    read_snapshot,
    snapshot_rows,
)
from checkpoint.state.snapshot_format import MAGIC

MAX = 16


@pytest.fixture
def many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key group is a piece of its own."""
    monkeypatch.setattr(snapshot_rows, "BLOCK_ROWS", 1)


class Everything(DeclaresState):
    total = ValueState(default=0)
    bag = ValueState(default=list)
    items = ListState[Any]()
    seen = MapState[Any, Any]()
    largest = ReducingState(max)
    merged = ReducingState(lambda bag, item: bag.append(item) or bag, default=list)


class Running:
    """An operator with its backend, as one subtask has them."""

    def __init__(self, groups: range = range(MAX), cls: type = Everything) -> None:
        self.op: Any = cls()
        self.backend = make_backend(groups, MAX)
        bind(self.op, self.backend)

    def at(self, key: Any) -> Any:
        """The operator, with `key` as current key."""
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, MAX))
        return self.op


def written(snapshot: WholeSnapshot) -> bytes:
    pieces: list[bytes] = []
    snapshot.write(lambda piece: pieces.append(bytes(piece)))
    return b"".join(pieces)


def contents(data: bytes, groups: range | None = None) -> dict[str, dict[Any, Any]]:
    found: dict[str, dict[Any, Any]] = {}
    for group, state, key, namespace, value in read_snapshot(data, groups):
        assert namespace is None
        assert group == key_group(key, MAX)
        assert key not in found.setdefault(state, {}), "a key is in the snapshot twice"
        found[state][key] = value
    return {state: {decode_key(key): value for key, value in values.items()} for state, values in found.items()}


def state_of(running: Running) -> dict[str, dict[Any, Any]]:
    return contents(written(running.backend.freeze()))


# -- access ----------------------------------------------------------------------------------------------------


def test_each_key_has_its_own_value_and_the_default_until_it_is_set() -> None:
    job = Running()
    job.at("a").total.value += 3
    job.at("a").total.value += 4
    assert job.at("a").total.value == 7
    assert job.at("b").total.value == 0
    job.at("a").total.clear()
    assert job.at("a").total.value == 0
    job.at("a").total.clear()


def test_one_as_int_float_and_bool_are_different_keys() -> None:
    job = Running()
    for i, key in enumerate([1, 1.0, True, "1"]):
        job.at(key).total.value = i
    assert [job.at(key).total.value for key in [1, 1.0, True, "1"]] == [0, 1, 2, 3]
    assert len(list(read_snapshot(written(job.backend.freeze())))) == 4


def test_a_callable_default_makes_a_value_of_its_own_for_each_key_and_keeps_what_is_put_into_it() -> None:
    job = Running()
    job.at("a").bag.value.append(1)
    job.at("b").bag.value.append(2)
    assert job.at("a").bag.value == [1]
    assert state_of(job) == {"bag": {"a": [1], "b": [2]}}


def test_reading_a_default_that_cant_be_changed_keeps_nothing() -> None:
    job = Running()
    assert job.at("a").total.value == 0
    assert list(job.at("a").items) == []
    assert dict(job.at("a").seen) == {}
    assert job.at("a").largest.value is None
    assert state_of(job) == {}


def test_a_list_state_is_appended_to_replaced_and_gone_through() -> None:
    op = Running().at("a")
    op.items.append(1)
    op.items.extend([2, 3])
    op.items.extend([])
    assert op.items.get() == [1, 2, 3]
    assert len(op.items) == 3
    for item in op.items:
        op.items.append(item * 10)
    assert list(op.items) == [1, 2, 3, 10, 20, 30]
    op.items.get().append(4)
    assert len(op.items) == 6
    op.items.update(item for item in op.items if item > 3)
    assert list(op.items) == [10, 20, 30]
    op.items.update([])
    assert len(op.items) == 0


def test_a_map_state_is_used_like_a_dict() -> None:
    job = Running()
    seen = job.at("a").seen
    seen["x"] = 1
    seen[(1, "y")] = [2]
    seen.setdefault("z", []).append(3)
    assert (seen["x"], seen.get("x"), seen.get("no"), seen.get("no", 5), len(seen)) == (1, 1, None, 5, 3)
    assert "x" in seen
    assert "no" not in seen
    assert list(seen) == list(seen.keys()) == ["x", (1, "y"), "z"]
    assert list(seen.values()) == [1, [2], [3]]
    assert dict(seen.items()) == {"x": 1, (1, "y"): [2], "z": [3]}
    for key in seen:
        del seen[key]
    with pytest.raises(KeyError):
        seen["x"]
    with pytest.raises(KeyError):
        del seen["x"]
    assert seen.pop("x", 9) == 9
    assert state_of(job) == {}
    seen.update(a=1)
    seen.clear()
    assert len(seen) == 0


def test_a_reducing_state_starts_with_the_first_value_or_with_its_default() -> None:
    class Op:
        smallest = ReducingState(min)
        total = ReducingState(operator.add, default=100)

    job = Running(cls=Op)
    for x in (5, 3, 4):
        job.at("a").smallest.add(x)
        job.at("a").total.add(x)
    assert (job.op.smallest.value, job.op.total.value) == (3, 112)
    assert (job.at("b").smallest.value, job.op.total.value) == (None, 100)
    job.at("a").smallest.clear()
    assert job.op.smallest.value is None


@pytest.mark.parametrize(
    "use",
    [
        lambda op: op.total.value,
        lambda op: setattr(op.total, "value", 1),
        lambda op: op.items.append(1),
        lambda op: op.items.get(),
        lambda op: len(op.seen),
        lambda op: op.seen.get("x"),
        lambda op: op.largest.add(1),
        lambda op: op.total.clear(),
    ],
)
def test_state_without_a_current_key_is_an_error_that_names_it(use: Callable[[Any], object]) -> None:
    job = Running()
    with pytest.raises(StateAccessError, match=r"state '\w+' of Everything .* no current key"):
        use(job.op)
    job.at("a")
    use(job.op)
    job.backend.clear_current_key()
    with pytest.raises(StateAccessError, match="no current key"):
        use(job.op)


def test_state_of_an_operator_that_doesnt_run_is_an_error() -> None:
    with pytest.raises(StateAccessError, match="state 'total' of Everything can be used only while the operator runs"):
        Everything().total  # noqa: B018
    assert isinstance(Everything.total, ValueState)


def test_assigning_to_a_state_is_refused_since_the_state_would_be_lost() -> None:
    op = Running().at("a")
    with pytest.raises(StateAccessError, match=r"use self\.total\.value = …"):
        op.total = 5
    with pytest.raises(StateAccessError, match=r"use self\.items\.update"):
        op.items = []
    op.something_else = 5


def test_a_record_of_a_foreign_key_group_is_an_error() -> None:
    backend = make_backend(range(4, 8), MAX)
    for group in (0, 3, 8, MAX):
        with pytest.raises(StateAccessError, match=r"owns 4\.\.7"):
            backend.set_current_key(b"k", group)


def test_declarations_that_would_lose_or_share_state_are_refused() -> None:
    with pytest.raises(StateAccessError, match="use default=list"):
        ValueState(default=[])

    class Sets:
        members = ValueState(default=deque)

    with pytest.raises(EncodingError, match="the default of state 'members'"):
        bind(Sets(), make_backend(range(MAX), MAX))
    shared = ValueState(default=0)
    shared.__set_name__(Sets, "a")
    with pytest.raises(StateAccessError, match="same state object"):
        shared.__set_name__(Sets, "b")


def test_states_are_inherited_and_can_be_overridden() -> None:
    class Child(Everything):
        total = None  # type: ignore[assignment]
        more = ValueState(default=1)

    assert set(descriptors_of(Child)) == {"bag", "items", "seen", "largest", "merged", "more"}


def test_operators_travel_by_pickle_with_what_they_declare() -> None:
    from pyspark import cloudpickle

    class Local(DeclaresState):
        total = ValueState(default=0)
        smallest = ReducingState(min)

    job = Running(cls=type(cloudpickle.loads(cloudpickle.dumps(Local()))))
    job.at("a").smallest.add(3)
    job.op.total.value += 1
    assert state_of(job) == {"total": {"a": 1}, "smallest": {"a": 3}}


def test_a_map_key_that_would_come_back_as_something_else_is_refused() -> None:
    class Colour(Enum):
        RED = 1

    seen = Running().at("a").seen
    with pytest.raises(EncodingError, match="state 'seen' of Everything can't keep the entry of key 'a'"):
        seen[Colour.RED] = 1
    assert len(seen) == 0


# -- snapshots -------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", 1, 1.0, True])
NUMBERS = st.integers(0, 5)
Model = dict[str, dict[bytes, Any]]
Action = tuple[str, Callable[[Any, int], object], Callable[[Any, int], Any]]


def _in_list(items: list[Any], n: int) -> list[Any]:
    for item in items:
        item["n"] = n
    return items


def _in_map(entries: dict[Any, Any], n: int) -> dict[Any, Any]:
    for entry in entries.values():
        entry.append(n)
    return entries


def _clear(name: str) -> Action:
    return name, lambda op, n: getattr(op, name).clear(), lambda old, n: None


# state, what the operator does, what becomes of a plain model of the key's value (None = nothing)
ACTIONS: list[Action] = [
    ("total", lambda op, n: setattr(op.total, "value", op.total.value + n), lambda old, n: (old or 0) + n),
    ("bag", lambda op, n: op.bag.value.append(n), lambda old, n: [*(old or []), n]),
    ("bag", lambda op, n: setattr(op.bag, "value", [n, [n]]), lambda old, n: [n, [n]]),
    ("items", lambda op, n: op.items.append({"n": n}), lambda old, n: [*(old or []), {"n": n}]),
    ("items", lambda op, n: _in_list(op.items.get(), n), lambda old, n: _in_list(old, n) if old else old),
    ("items", lambda op, n: [item.update(n=n) for item in op.items], lambda old, n: _in_list(old, n) if old else old),
    ("seen", lambda op, n: op.seen.__setitem__(n, [n]), lambda old, n: {**(old or {}), n: [n]}),
    ("seen", lambda op, n: [v.append(n) for v in op.seen.values()], lambda old, n: _in_map(old, n) if old else old),
    ("seen", lambda op, n: [op.seen[k].append(n) for k in op.seen], lambda old, n: _in_map(old, n) if old else old),
    (
        "seen",
        lambda op, n: op.seen.pop(n, None),
        lambda old, n: {k: v for k, v in (old or {}).items() if k != n} or None,
    ),
    ("largest", lambda op, n: op.largest.add(n), lambda old, n: n if old is None else max(old, n)),
    ("merged", lambda op, n: op.merged.add(n), lambda old, n: [*(old or []), n]),
    *map(_clear, ["total", "bag", "items", "seen", "largest", "merged"]),
]
SNAPSHOT_STEPS = ["freeze", "freeze", "write oldest", "write newest", "release"]


@st.composite
def schedules(draw: st.DrawFn) -> list[Any]:
    """Steps that often meet at the same state and key, since only there can something go wrong."""
    actions = draw(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=4))
    step = st.tuples(st.sampled_from(actions), KEYS, NUMBERS) | st.sampled_from(SNAPSHOT_STEPS)
    return draw(st.lists(step, max_size=40))


def flattened(model: Model) -> set[tuple[str, bytes, str]]:
    return {(state, key, repr(value)) for state, values in model.items() for key, value in values.items()}


def rows_of(data: bytes) -> list[tuple[str, bytes, str]]:
    return [(state, key, repr(value)) for _, state, key, _, value in read_snapshot(data)]


@settings(deadline=None, max_examples=400)
@given(schedules())
def test_every_snapshot_holds_the_state_as_it_was_at_its_barrier(steps: list[Any]) -> None:
    """Whatever is changed afterwards, also in place, with any number of snapshots in progress."""
    job = Running()
    model: Model = {}
    pending: list[tuple[WholeSnapshot, set[tuple[str, bytes, str]]]] = []

    def check(snapshot: WholeSnapshot, expected: set[tuple[str, bytes, str]]) -> None:
        found = rows_of(written(snapshot))
        assert len(found) == len(set(found))
        assert set(found) == expected

    for step in steps:
        if step == "freeze":
            pending.append((job.backend.freeze(), flattened(model)))
        elif isinstance(step, str):
            if pending:
                snapshot, expected = pending.pop(-1 if step == "write newest" else 0)
                if step == "release":
                    snapshot.release()
                else:
                    check(snapshot, expected)
        else:
            (state, act, becomes), key, n = step
            act(job.at(key), n)
            values = model.setdefault(state, {})
            value = becomes(deepcopy(values.pop(encode_key(key), None)), n)
            if value is not None:
                values[encode_key(key)] = value
    check(job.backend.freeze(), flattened(model))
    for snapshot, expected in pending:
        check(snapshot, expected)


@pytest.mark.parametrize(
    ("prepare", "change"),
    [
        (lambda op: setattr(op.total, "value", 1), lambda op: setattr(op.total, "value", op.total.value + 1)),
        (lambda op: op.largest.add(0), lambda op: op.largest.add(op.largest.value + 1)),
        (lambda op: op.items.append(1), lambda op: op.items.append(2)),
        (lambda op: op.items.append(1), lambda op: op.items.extend([2, 3])),
        (lambda op: op.items.append(1), lambda op: op.items.update([*op.items, 2])),
        (lambda op: op.seen.update(x=0), lambda op: op.seen.__setitem__("x", op.seen["x"] + 1)),
        (lambda op: op.seen.update(x=0), lambda op: op.seen.__setitem__(len(op.seen), 1)),
        (lambda op: op.seen.update(x=1, y=2, z=3), lambda op: op.seen.__delitem__(next(iter(op.seen)))),
        (lambda op: setattr(op.bag, "value", [[1]]), lambda op: op.bag.value[0].append(2)),
        (lambda op: op.items.append([1]), lambda op: op.items.get()[0].append(2)),
        (lambda op: op.items.append([1]), lambda op: next(iter(op.items)).append(2)),
        (lambda op: op.seen.update(x=[1]), lambda op: op.seen["x"].append(2)),
        (lambda op: op.seen.update(x=[1]), lambda op: op.seen.get("x").append(2)),
        (lambda op: op.seen.update(x=[1]), lambda op: next(iter(op.seen.items()))[1].append(2)),
        (lambda op: op.merged.add(1), lambda op: op.merged.add(2)),
        (lambda op: op.merged.add(1), lambda op: op.merged.value.append(2)),
        (lambda op: setattr(op.bag, "value", ([1],)), lambda op: op.bag.value[0].append(2)),
    ],
)
def test_changes_after_a_barrier_also_in_place_are_in_the_next_snapshot_only(
    prepare: Callable[[Any], object], change: Callable[[Any], object]
) -> None:
    job = Running()
    prepare(job.at("k"))
    before = state_of(job)
    prepare(job.at("other"))
    first = job.backend.freeze()
    change(job.at("k"))
    second = job.backend.freeze()
    change(job.at("k"))
    third = job.backend.freeze()
    one, two, three = (contents(written(s)) for s in (first, second, third))
    values = [next(iter(c.values()))["k"] for c in (one, two, three)]
    assert values[0] == next(iter(before.values()))["k"]
    assert len({repr(v) for v in values}) == 3


@pytest.mark.usefixtures("many_blocks")
def test_what_changes_while_a_snapshot_is_being_written_isnt_in_it() -> None:
    job = Running()
    for key in range(100):
        job.at(key).bag.value.append(0)
    pieces: list[bytes] = []

    def sink(piece: Any) -> None:
        pieces.append(bytes(piece))
        for key in range(100):
            job.at(key).bag.value.append(len(pieces))
        job.at(100 + len(pieces)).bag.value.append(0)

    job.backend.freeze().write(sink)
    assert len(pieces) > 10
    assert contents(b"".join(pieces)) == {"bag": {key: [0] for key in range(100)}}
    assert len(job.at(0).bag.value) == len(pieces) + 1


def test_what_was_handed_out_before_a_barrier_is_handed_out_as_a_copy_after_it_once() -> None:
    job = Running()
    before = job.at("k").bag.value
    before.append(1)
    snapshot = job.backend.freeze()
    after = job.at("k").bag.value
    assert after is not before
    assert job.at("k").bag.value is after
    snapshot.release()
    assert job.at("k").bag.value is after


def test_once_no_snapshot_is_open_nothing_is_copied() -> None:
    job = Running()
    value = job.at("k").bag.value
    first, second = job.backend.freeze(), job.backend.freeze()
    written(second)
    first.release()
    assert job.at("k").bag.value is value


def test_a_snapshot_stays_valid_when_a_newer_one_is_done_first() -> None:
    job = Running()
    job.at("k").bag.value.append(1)
    first, second = job.backend.freeze(), job.backend.freeze()
    written(second)
    job.at("k").bag.value.append(2)
    assert contents(written(first)) == {"bag": {"k": [1]}}


def test_a_value_that_cant_be_kept_fails_the_write_and_names_operator_state_and_key() -> None:
    job = Running()
    job.at(("AA", 7)).total.value = changed = []
    changed.append(1j)
    snapshot = job.backend.freeze()
    with pytest.raises(
        EncodingError, match=r"state 'total' of Everything, key \('AA', 7\): can't encode complex at value\[0\]"
    ):
        written(snapshot)
    assert snapshot.released


@pytest.mark.usefixtures("many_blocks")
def test_a_released_snapshot_isnt_written_and_a_write_stops_when_it_is_released() -> None:
    job = Running()
    for i in range(100):
        job.at(i).total.value = i
    snapshot = job.backend.freeze()
    snapshot.release()
    snapshot.release()
    with pytest.raises(SnapshotAbandoned):
        written(snapshot)
    snapshot = job.backend.freeze()
    pieces: list[Any] = []

    def sink(piece: Any) -> None:
        pieces.append(piece)
        snapshot.release()
        assert not snapshot.released, "released while its dicts are being read"

    with pytest.raises(SnapshotAbandoned):
        snapshot.write(sink)
    assert len(pieces) == 1
    assert snapshot.released


@pytest.mark.usefixtures("many_blocks")
def test_what_changes_between_any_two_pieces_of_a_snapshot_is_not_in_it() -> None:
    for cls_logs in (False, True):
        job = Running()
        job.backend = make_backend(range(MAX), MAX, cls_logs)
        bind(job.op, job.backend)
        for i in range(200):
            job.at(i).bag.value = [i]
        pieces: list[bytes] = []

        def sink(piece: Any, job: Running = job, pieces: list[bytes] = pieces) -> None:
            pieces.append(bytes(piece))
            for i in range(200):
                job.at(i).bag.value.append("later")

        job.backend.freeze().write(sink)
        assert len(pieces) > 10
        found = {decode_key(row[2]): row[4] for row in read_snapshot(b"".join(pieces))}
        assert found == {i: [i] for i in range(200)}
        assert job.at(7).bag.value == [7, *["later"] * len(pieces)]


def test_a_value_is_not_copied_once_its_key_group_is_written() -> None:
    job = Running()
    values = [[i] for i in range(200)]
    for i, value in enumerate(values):
        job.at(i).bag.value = value
    kept: list[bool] = []

    def sink(piece: Any) -> None:
        if bytes(piece).endswith(MAGIC):  # behind all groups
            kept.extend(job.at(i).bag.value is value for i, value in enumerate(values))

    job.backend.freeze().write(sink)
    assert kept == [True] * 200


def test_a_sink_that_fails_fails_the_write_and_releases_the_snapshot() -> None:
    def sink(piece: Any) -> None:
        raise OSError("disk full")

    job = Running()
    job.at("a").total.value = 1
    snapshot = job.backend.freeze()
    with pytest.raises(OSError, match="disk full"):
        snapshot.write(sink)
    assert snapshot.released


# -- restore ---------------------------------------------------------------------------------------------------


def restored(files: Iterable[bytes], groups: range = range(MAX), cls: type = Everything, **options: Any) -> Running:
    job = Running(groups, cls)
    for data in files:
        job.backend.restore(read_batches(data, groups), **options)
    return job


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 6), st.integers(1, 6), st.sets(st.integers(0, 1000) | st.text(max_size=4), max_size=60))
def test_state_moves_with_its_key_groups_to_another_parallelism(before: int, after: int, keys: set[Any]) -> None:
    old = [Running(range_of(i, before, MAX)) for i in range(before)]
    expected: dict[str, dict[Any, Any]] = {}
    for key in keys:
        group = key_group(encode_key(key), MAX)
        op = old[group * before // MAX].at(key)
        op.total.value = repr(key)
        op.items.append((key, [1]))
        expected.setdefault("total", {})[key] = repr(key)
        expected.setdefault("items", {})[key] = [(key, [1])]
    files = [written(job.backend.freeze()) for job in old]
    found: dict[str, dict[Any, Any]] = {}
    for i in range(after):
        for state, values in state_of(restored(files, range_of(i, after, MAX))).items():
            assert not values.keys() & found.setdefault(state, {}).keys()
            found[state].update(values)
    assert found == expected


def test_a_restored_operator_goes_on_where_it_was() -> None:
    job = Running()
    op = job.at("k")
    op.total.value = 5
    op.bag.value.append((1, 2))
    op.items.append(1)
    op.seen[(1, "x")] = 2
    op.largest.add(3)
    again = restored([written(job.backend.freeze())])
    op = again.at("k")
    op.total.value += 1
    op.items.append(2)
    op.largest.add(1)
    assert (op.total.value, op.items.get(), op.seen[(1, "x")], op.largest.value) == (6, [1, 2], 2, 3)
    assert (1, 2) in op.bag.value


def snapshot_with(**values: Any) -> bytes:
    job = Running()
    op = job.at("k")
    for name, value in values.items():
        getattr(op, name).value = value
    return written(job.backend.freeze())


class Renamed:
    sum = ValueState(default=0)


class Retyped:
    total = ListState[Any]()


def test_state_that_the_operator_no_longer_declares_is_an_error_unless_it_may_be_dropped() -> None:
    data = snapshot_with(total=5)
    with pytest.raises(StateRestoreError, match=r"state 'total' for Renamed, which declares 'sum'; .*allow_unclaimed"):
        restored([data], cls=Renamed)
    assert state_of(restored([data], cls=Renamed, allow_unclaimed=True)) == {}


def test_state_of_another_kind_is_an_error() -> None:
    with pytest.raises(StateRestoreError, match="key 'k' is no ListState"):
        restored([snapshot_with(total=5)], cls=Retyped)


def test_the_same_key_from_two_files_is_an_error() -> None:
    data = snapshot_with(total=5)
    with pytest.raises(StateRestoreError, match="twice"):
        restored([data, data])


@pytest.mark.parametrize(
    ("keys", "namespaces", "values", "problem"),
    [
        (["a", "b", "a"], None, [[1], [2], [3]], "key 'a' is in the checkpoint twice"),
        (["a", "b", "k"], None, [[1], [2], [3]], "key 'k' is in the checkpoint twice"),
        (["a", "b"], None, [[1], 2], "key 'b' is no ListState"),
        (["a", "b"], [None, b"n"], [[1], [2]], "key 'b' has a namespace"),
    ],
)
def test_one_bad_row_among_others_is_found_and_named(
    keys: list[str], namespaces: list[bytes | None] | None, values: list[Any], problem: str
) -> None:
    backend = Running(cls=Retyped).backend
    backend.restore([StateBatch(0, "total", [encode_key("k")], None, [[0]])])
    with pytest.raises(StateRestoreError, match=problem):
        backend.restore([StateBatch(0, "total", list(map(encode_key, keys)), namespaces, values)])


def test_what_is_restored_while_a_snapshot_is_open_is_not_in_it() -> None:
    job = Running(cls=Retyped)
    job.backend.restore([StateBatch(0, "total", [encode_key("k")], None, [[0]])])
    snapshot = job.backend.freeze()
    job.backend.restore([StateBatch(0, "total", [encode_key("l")], None, [[1]])])
    assert [row[4] for row in read_snapshot(written(snapshot))] == [[0]]
    assert [row[4] for row in read_snapshot(written(job.backend.freeze()))] == [[0], [1]]


def test_rows_of_foreign_key_groups_are_an_error() -> None:
    group = key_group(encode_key("k"), MAX)
    other = range(group + 1, MAX) if group + 1 < MAX else range(group)
    with pytest.raises(StateRestoreError, match="outside"):
        Running(other).backend.restore(read_batches(snapshot_with(total=5)))
