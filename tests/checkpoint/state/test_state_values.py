"""What state holds is what a restore brings: equal, with its type, or refused when it is put."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint.codec import MAX_DEPTH, EncodingError
from checkpoint.state import (
    AggregatingState,
    BroadcastState,
    ListState,
    MapState,
    OperatorListState,
    OperatorUnionState,
    ReducingState,
    StateAccessError,
    ValueState,
)
from checkpoint.state.map_keys import problem_of_key
from pipeline.operators import KeyedOperator
from pipeline.testing import OperatorHarness
from tests.support.values import EDGES, HASHABLE, KEYS, VALUES, same

Step = Callable[[Any], object]


class Everything(KeyedOperator):
    one = ValueState[Any]()
    of_bytes = ValueState(default=bytearray)
    items = ListState[Any]()
    entries = MapState[Any, Any]()
    last = ReducingState[Any](lambda old, new: new)
    both = AggregatingState[Any, Any](create=list, add=lambda acc, x: [*acc, x], result=list)
    rules = BroadcastState[Any, Any]()
    held = OperatorListState[Any]()
    known = OperatorUnionState[Any]()

    def __init__(self) -> None:
        self.own: Any = None
        self.seen: Any = None

    def process(self, step: Any, ctx: Any) -> None:
        STEPS[step](self)
        self.seen = (ctx.key, self.keyed())

    def process_connected(self, step: Any, ctx: Any) -> None:
        STEPS[step](self)

    def keyed(self) -> list[Any]:
        return [
            self.one.value,
            self.of_bytes.value,
            self.items.get(),
            dict(self.entries),
            self.last.value,
            self.both.value,
        ]

    def of_subtask(self) -> list[Any]:
        return [dict(self.rules), list(self.held), list(self.known), self.own]

    def snapshot(self, checkpoint_id: int) -> Any:
        return self.own

    def restore(self, state: Any) -> None:
        self.own = state


STEPS: list[Step] = []
"""What a record does, which says it by index."""


class Running:
    def __init__(self, harness: OperatorHarness | None = None) -> None:
        self.harness = harness or OperatorHarness(Everything(), broadcast="process_connected")
        self.op: Any = self.harness.operator

    def do(self, key: Any, *steps: Step) -> Any:
        """State of the key behind the steps."""
        for step in steps or (lambda op: None,):
            STEPS.append(step)
            try:
                self.harness.process(len(STEPS) - 1, key=key)
            finally:
                STEPS.clear() if len(STEPS) > 1000 else None
        return deepcopy(self.op.seen)

    def for_all(self, step: Step) -> None:
        STEPS.append(step)
        self.harness.process_connected(len(STEPS) - 1)

    def restored(self) -> Running:
        return Running(OperatorHarness.restore(Everything(), self.harness.snapshot(), broadcast="process_connected"))


def _assign(name: str) -> Callable[[Any], Step]:
    return lambda value: lambda op: setattr(getattr(op, name), "value", value)


PUTS: dict[str, Callable[[Any], Step]] = {
    "value": _assign("one"),
    "over another": lambda value: lambda op: [setattr(op.one, "value", each) for each in (0, [value], value)],
    "append": lambda value: lambda op: op.items.append(value),
    "extend": lambda value: lambda op: op.items.extend([1, value]),
    "update": lambda value: lambda op: op.items.update([value, value]),
    "entry": lambda value: lambda op: op.entries.__setitem__("a", value),
    "setdefault": lambda value: lambda op: op.entries.setdefault(("a", 1), value),
    "entries": lambda value: lambda op: op.entries.update({date.min: value, 1: value}),
    "reduce": lambda value: lambda op: op.last.add(value),
    "aggregate": lambda value: lambda op: op.both.add(value),
    "list": lambda value: lambda op: op.held.append(value),
    "union": lambda value: lambda op: op.known.extend([value]),
    "snapshot": lambda value: lambda op: setattr(op, "own", value),
}

PLACES = pytest.mark.parametrize("put", PUTS.values(), ids=list(PUTS))


@PLACES
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(value=VALUES, key=KEYS)
def test_what_was_put_comes_back_with_its_types(put: Callable[[Any], Step], value: Any, key: Any) -> None:
    job = Running()
    before = job.do(key, put(value))
    restored = job.restored()
    assert same(restored.do(key), before)
    assert same(restored.op.of_subtask(), job.op.of_subtask())
    job.harness.close()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(HASHABLE.filter(lambda key: problem_of_key(key) is None), VALUES, max_size=4))
def test_entries_of_maps_and_of_broadcast_state_come_back_with_their_types(entries: dict[Any, Any]) -> None:
    job = Running()
    before = job.do("k", lambda op: op.entries.update(entries))
    job.for_all(lambda op: op.rules.update(entries))
    restored = job.restored()
    assert same(before[1][3], entries)
    assert same(restored.do("k"), before)
    assert same(dict(restored.op.rules), entries)


@PLACES
def test_edges_come_back(put: Callable[[Any], Step]) -> None:
    job = Running()
    before = [job.do(i, put({"a": [value, (value,)]}), put(value)) for i, value in enumerate(EDGES)]
    restored = job.restored()
    for i, value in enumerate(EDGES):
        assert same(restored.do(i), before[i]), value
    assert same(restored.op.of_subtask(), job.op.of_subtask())


def test_both_forms_of_a_key_of_a_dict_never_merge() -> None:
    day, at, id = date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), UUID(int=7)
    job = Running()
    job.do("k", _assign("one")({day: 1, at: 2, id: 3}), lambda op: op.entries.update({(day, "apples"): 1}))
    restored = job.restored()
    restored.do("k", lambda op: op.one.value.update({str(day): 10, day: 11, at: 12, id: 13}))
    restored.do("k", lambda op: op.entries.update({(str(day), "apples"): 2, (day, "apples"): 3}))
    assert restored.do("k")[1][0] == {day: 11, at: 12, id: 13, str(day): 10}
    assert restored.do("k")[1][3] == {(day, "apples"): 3, (str(day), "apples"): 2}


def test_a_time_keeps_its_date() -> None:
    at = datetime(2026, 1, 1, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    job = Running()
    job.do("k", _assign("one")(at))
    assert job.restored().do("k")[1][0].date() == date(2026, 1, 1)


def test_a_default_that_was_changed_in_place_keeps_its_type() -> None:
    job = Running()
    assert same(job.do("k", lambda op: op.of_bytes.value.extend(b"ab"))[1][1], bytearray(b"ab"))
    restored = job.restored()
    assert same(restored.do("k", lambda op: op.of_bytes.value.append(99))[1][1], bytearray(b"abc"))


# -- what is refused -----------------------------------------------------------------------------------------------


deep: Any = 1
for _ in range(MAX_DEPTH + 1):
    deep = [deep]
endless: list[Any] = []
endless.append(endless)

REFUSED = [
    defaultdict(int),
    Counter("a"),
    memoryview(b"a"),
    np.int64(1),
    {np.float64(1.0): 1},
    1j,
    object(),
    deep,
    endless,
]


@PLACES
@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_what_cannot_be_kept_is_refused_when_it_is_put_and_what_was_there_stays(
    put: Callable[[Any], Step], value: Any
) -> None:
    job = Running()
    before = job.do("k", *[put(1)] if put is not PUTS["setdefault"] else [])
    for bad in (value, [{"a": (1, value)}]):
        if put is PUTS["snapshot"]:
            job.do("k", put(bad))
            with pytest.raises(EncodingError, match=r"value"):
                job.restored()
            continue
        with pytest.raises(EncodingError, match=r"state '\w+' of Everything.*value"):
            job.do("k", put(bad))
        if put is not PUTS["over another"]:
            assert same(job.do("k")[1], before[1])


@pytest.mark.parametrize("key", [(1, np.int64(1)), np.int64(1), 1j], ids=repr)
def test_a_map_key_that_cannot_be_kept_is_refused(key: Any) -> None:
    job = Running()
    with pytest.raises(EncodingError, match=r"state 'entries' of Everything can't keep the entry of key 'k'"):
        job.do("k", lambda op: op.entries.__setitem__(key, 1))
    with pytest.raises(EncodingError, match=r"broadcast state 'rules' of Everything"):
        job.for_all(lambda op: op.rules.__setitem__(key, 1))


def test_nesting_is_counted_with_the_list_or_map_that_a_value_lies_in() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    tuples: Any = 1
    for _ in range(64):
        tuples = (tuples,)
    job = Running()
    for name in ("value", "append", "entry", "reduce", "list", "union"):
        job.do("k", PUTS[name](value), PUTS[name](tuples))
    job.do("k", lambda op: op.entries.__setitem__(date.min, 1))
    assert same(job.restored().do("k"), job.do("k"))
    for name in ("append", "extend", "update", "entry"):
        with pytest.raises(EncodingError, match="nests deeper"):
            job.do("k", PUTS[name]([value]))


@pytest.mark.parametrize(
    ("put", "change", "state", "path"),
    [
        ("value", lambda op: op.one.value.append(1j), "one", "value[1]"),
        ("append", lambda op: op.items.get()[0].append(1j), "items", "value[0][1]"),
        ("entry", lambda op: op.entries["a"].append(1j), "entries", "value['a'][1]"),
        ("reduce", lambda op: op.last.value.append(1j), "last", "value[1]"),
        ("aggregate", lambda op: op.both.value[0].append(1j), "both", "value[0][1]"),
    ],
)
def test_a_change_in_place_that_cannot_be_kept_fails_the_checkpoint_with_state_key_and_path(
    put: str, change: Step, state: str, path: str
) -> None:
    job = Running()
    job.do(("AA", 7), PUTS[put]([1]), change)
    with pytest.raises(EncodingError) as caught:
        job.harness.snapshot()
    assert f"state '{state}' of Everything, key ('AA', 7): can't encode complex at {path}" in str(caught.value)


def _again(name: str, change: Callable[[Any], object]) -> Step:
    def step(op: Any) -> None:
        value = op.entries["a"] if name == "entries" else op.one.value
        change(value)
        if name == "entries":
            op.entries["a"] = value
        else:
            op.one.value = value

    return step


@pytest.mark.parametrize("name", ["one", "entries"])
def test_what_was_changed_in_place_and_is_put_again_is_checked_now_and_then_if_it_is_large(name: str) -> None:
    job = Running()
    job.do("k", PUTS["value"]([{}]), PUTS["entry"]([{}]))
    with pytest.raises(EncodingError, match=rf"state '{name}' of Everything can't keep .* of key 'k': .*\[1\]"):
        job.do("k", _again(name, lambda value: value.append(1j)))
    job.do("k", PUTS["value"]([{}]), PUTS["entry"]([{}]))
    size = 256
    job.do("k", _again(name, lambda value: value.append("x" * 256 * size)))
    job.do("k", *[_again(name, lambda value: value[0].update(a=1j))] * size)
    with pytest.raises(EncodingError, match=rf"state '{name}' of Everything can't keep .* of key 'k': .*\[0\]\['a'\]"):
        job.do("k", *[_again(name, lambda value: None)] * 2)


@pytest.mark.parametrize(
    "change",
    [
        lambda op: op.rules["a"]["b"].append(2),
        lambda op: op.rules.get("a").update(c=1),
        lambda op: next(iter(op.rules.values())).clear(),
        lambda op: op.rules["a"].update(c=1j),
        lambda op: dict(op.rules)["a"]["b"].clear(),
    ],
)
def test_broadcast_state_that_was_changed_in_place_fails_the_checkpoint(change: Step) -> None:
    job = Running()
    job.for_all(lambda op: op.rules.update(a={"b": [1], "of": {3, 1, 2}, 1: (2,)}, c=3))
    for _ in range(2):
        job.do("k", lambda op: [op.rules["a"], list(op.rules.items())])
        job = job.restored()
    job.do("k", change)
    with pytest.raises(StateAccessError, match=r"value of 'a' in broadcast state 'rules'.*self\.rules\['a'\] = …"):
        job.harness.snapshot()


# -- defaults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "default", [Decimal("1.50"), (1, (2, "a")), frozenset({1}), date.min, UUID(int=1), b"", 2**70, ZoneInfo]
)
def test_a_default_is_the_same_before_and_after_a_restore(default: Any) -> None:
    default = datetime(2026, 1, 1, tzinfo=default("Europe/Berlin")) if default is ZoneInfo else default

    class Op(KeyedOperator):
        one = ValueState(default=default)
        made = ValueState(default=lambda: default)

        def process(self, value: Any, ctx: Any) -> Any:
            self.one.value = self.one.value
            self.made.value = self.made.value
            yield [self.one.value, self.made.value]

    harness = OperatorHarness(Op())
    assert same(harness.process(1, key="k"), [[default, default]])
    restored = OperatorHarness.restore(Op(), harness.snapshot())
    assert same(restored.process(1, key="k"), [[default, default]])


class Idle(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> Any:
        return None


@pytest.mark.parametrize("default", [[], {}, set(), bytearray(), [1], ([],), (1, ({},))])
def test_a_default_that_all_keys_would_share_is_refused(default: Any) -> None:
    with pytest.raises(StateAccessError, match="one object for all keys; use default="):
        ValueState(default=default)

    class Shared(Idle):
        one = ValueState(default=lambda: default)

    with pytest.raises(StateAccessError, match=r"default of state 'one' is the same .* for all keys"):
        OperatorHarness(Shared())

    class Accumulators(Idle):
        one = AggregatingState[Any, Any](create=lambda: default, add=lambda acc, x: acc, result=len)

    with pytest.raises(StateAccessError, match="accumulator of state 'one' is the same"):
        OperatorHarness(Accumulators())


@pytest.mark.parametrize("default", [np.int64(1), lambda: {1: 1j}, lambda: np.int64(1), defaultdict])
def test_a_default_that_cannot_be_kept_is_refused_at_the_start(default: Any) -> None:
    class Op(Idle):
        one = ValueState(default=default)

    with pytest.raises(EncodingError, match="default of state 'one' can't be kept"):
        OperatorHarness(Op())


@dataclass(eq=False)
class Node:
    n: int


@dataclass(frozen=True)
class Spot:
    x: float


UNFINDABLE = [
    math.nan,
    (1, (math.nan,)),
    Decimal("NaN"),
    frozenset({math.nan}),
    Node(1),
    ("a", Node(1)),
    Spot(math.nan),
]


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("key", UNFINDABLE, ids=repr)
def test_a_key_of_a_map_that_no_restart_would_find_again_is_refused(key: Any, backend: Any) -> None:
    """On the heap it would be found for as long as it is the same object, and in RocksDB while it is in the cache."""
    for put in (
        lambda op: op.entries.__setitem__(key, 1),
        lambda op: op.entries.setdefault(key, [1]),
        lambda op: op.entries.update({key: 1}),
    ):
        job = Running(OperatorHarness(Everything(), broadcast="process_connected", state_backend=backend))
        with pytest.raises(EncodingError, match=r"state 'entries' of Everything can't keep an entry .* of key 'k': "):
            job.do("k", put)
        with pytest.raises(EncodingError, match=r"'rules' of Everything can't keep the entry of key"):
            job.for_all(lambda op: op.rules.__setitem__(key, 1))
        assert job.do("k")[1][3] == {} == dict(job.op.rules)
        job.harness.close()


def test_keys_of_maps_compare_as_those_of_dicts_and_the_first_one_stays() -> None:
    for backend in ("heap", "rocksdb"):
        job = Running(OperatorHarness(Everything(), broadcast="process_connected", state_backend=backend))
        job.do("k", lambda op: op.entries.update({1: "a", 0.0: "b", (1,): "c"}))
        after = job.do("k", lambda op: op.entries.update({True: "e", -0.0: "f", (1.0,): "g"}))
        job.for_all(lambda op: [op.rules.update(one) for one in ({1: "a", 0.0: "b"}, {1.0: "c", -0.0: "d"})])
        restored = job.restored()
        for entries in (after[1][3], restored.do("k")[1][3]):
            assert same(entries, {1: "e", 0.0: "f", (1,): "g"})
        assert same(dict(restored.op.rules), {1: "c", 0.0: "d"})
        job.harness.close()
