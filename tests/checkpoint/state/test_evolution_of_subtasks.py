"""Operator lists, unions and broadcast state whose classes change between two runs."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from program_classes import own_classes, program

from checkpoint.codec import EncodingError, classes, encode
from checkpoint.state import (
    BroadcastState,
    BroadcastStates,
    DeclaresState,
    OperatorLists,
    OperatorListState,
    OperatorUnionState,
    StateDescriptor,
    StateRestoreError,
    bind,
)
from checkpoint.state.contents import StateContent
from checkpoint.state.declared_type import DeclaredType
from checkpoint.state.evolution import content_misfits
from checkpoint.state.operator_lists import shared_out
from checkpoint.state.undo import UndoLog

KINDS = (OperatorListState, OperatorUnionState)


@pytest.fixture(autouse=True)
def only_classes_of_this_test() -> Iterator[None]:
    with own_classes():
        yield


@dataclass
class V1:
    id: int


@dataclass
class V2:
    id: int
    n: int = 0


@dataclass
class V3:
    name: str


def to_v3(old: Any) -> V3:
    return V3(str(old["id"]))


def bound(state: StateDescriptor[Any]) -> tuple[Any, OperatorLists, BroadcastStates]:
    op: Any = type("Op", (DeclaresState,), {"state": state})()
    lists, broadcast = OperatorLists(), BroadcastStates()
    broadcast.writable = True
    bind(op, None, broadcast, lists)
    return op.state, lists, broadcast


def chunks(stored: Any) -> list[Any]:
    (states,) = stored.values()
    found: list[Any] = states["state"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_items_come_back_are_migrated_or_refused(kind: Any) -> None:
    program(Order=V1)
    state, lists, _ = bound(kind(V1))
    state.extend([V1(1), None, V1(2)])
    first = lists.freeze().stored()
    program(Order=V2)
    state, lists, _ = bound(kind(V2))
    lists.restore(first)
    assert list(state) == [V2(1), None, V2(2)]
    state.append(V2(3, 5))
    second = lists.freeze().stored()
    (content,) = (StateContent.from_wire(wire) for _, _, wire in chunks(second))
    fields = [dict(shape.fields or {}) for shape in content.classes]
    assert sorted(fields, key=len) == [{"id": "int"}, {"id": "int", "n": "int"}]
    assert (content.types, content.declared) == (frozenset({"shop:Order"}), "shop:Order")

    program(Order=V3)
    state, lists, _ = bound(kind(V3))
    with pytest.raises(StateRestoreError, match=r"'state' of Op: item 0 doesn't fit: class shop:Order has changed"):
        lists.restore(second)
    state, lists, _ = bound(kind(V3, migrate=to_v3))
    lists.restore(shared_out({0: second}, 1, 0, 2))
    mine = list(state)
    lists.restore(shared_out({0: second}, 1, 1, 2))
    both = [*mine, *state] if kind is OperatorListState else mine
    assert both == [V3("1"), None, V3("2"), V3("3")]
    third = lists.freeze().stored()
    assert all(not content_misfits(StateContent.from_wire(wire), DeclaredType(V3)) for *_, wire in chunks(third))


@pytest.mark.parametrize("kind", KINDS)
def test_items_of_older_versions_are_told_when_they_are_read(kind: Any) -> None:
    program(Order=V1)
    state, lists, _ = bound(kind())
    state.append(V1(1))
    stored = lists.freeze().stored()
    chunks(stored)[:] = [chunk[:2] for chunk in chunks(stored)]
    program(Order=V3)
    with pytest.raises(StateRestoreError, match="item 0 doesn't fit: class shop:Order has changed since"):
        bound(kind())[1].restore(stored)
    state, lists, _ = bound(kind(V3, migrate=to_v3))
    lists.restore(stored)
    assert list(state) == [V3("1")]


def test_what_a_list_held_once_counts_no_more() -> None:
    program(Order=V1)
    state, lists, _ = bound(OperatorListState())
    for replace in (lambda: state.update([V1(1)]), lambda: (state.clear(), state.append(V1(1)))):
        state.extend([5, "x"])
        replace()
        (chunk,) = chunks(lists.freeze().stored())
        content = StateContent.from_wire(chunk[2])
        assert content.types == {"shop:Order"}
        assert content_misfits(content, DeclaredType(V1)) == []


def test_what_is_taken_back_leaves_the_types_that_were_there() -> None:
    undo = UndoLog()
    lists = OperatorLists(undo)
    op: Any = type("Op", (DeclaresState,), {"state": OperatorListState()})()
    bind(op, None, None, lists)
    op.state.extend([5, "x"])
    before = lists.freeze().stored()
    for change in (lambda: op.state.update([2.5]), op.state.clear, lambda: op.state.append(None)):
        undo.begin()
        op.state.append(b"y")
        change()
        op.state.append(2.5)
        undo.take_back()
        assert lists.freeze().stored() == before


def test_only_values_of_the_declared_type_are_put() -> None:
    program(Order=V1)
    state, _, _ = bound(OperatorListState(V1))
    for put in (state.append, lambda wrong: state.extend([V1(1), wrong]), lambda wrong: state.update([wrong])):
        with pytest.raises(EncodingError, match=r"'state' of Op can't keep the item 5: .* declared for values of V1"):
            put(5)
    assert list(state) == []
    rules, _, _ = bound(BroadcastState(V1))
    with pytest.raises(EncodingError, match=r"can't keep the entry of key 'a': .* declared for values of V1"):
        rules["a"] = 5
    assert dict(rules) == {}


def test_entries_of_broadcast_state_come_back_are_migrated_or_refused() -> None:
    program(Order=V1)
    rules, _, broadcast = bound(BroadcastState(V1))
    rules.update({"a": V1(1), "b": None})
    stored, contents = broadcast.snapshot(), broadcast.contents()
    assert (contents["state"].types, contents["state"].declared) == ({"shop:Order"}, "shop:Order")
    program(Order=V2)
    rules, _, broadcast = bound(BroadcastState(V2))
    broadcast.restore(stored, contents=contents)
    assert dict(rules) == {"a": V2(1), "b": None}
    assert broadcast.snapshot()["state"][encode("a")] == encode(V2(1))
    program(Order=V3)
    with pytest.raises(StateRestoreError, match="state 'state' of Op: the entry 'a' doesn't fit: class shop:Order has"):
        bound(BroadcastState(V3))[2].restore(stored, contents=contents)
    for known in (contents, None):
        rules, _, broadcast = bound(BroadcastState(V3, migrate=to_v3))
        broadcast.restore(stored, contents=known)
        assert dict(rules) == {"a": V3("1"), "b": None}
        assert content_misfits(broadcast.contents()["state"], DeclaredType(V3)) == []


def test_keys_of_broadcast_state_are_not_migrated_and_stay_different() -> None:
    program(Status=enum.Enum("Status", {"OPEN": 1, "CLOSED": 2}))
    rules, _, broadcast = bound(BroadcastState())
    rules.update(dict.fromkeys(classes._installed["shop:Status"], 1))  # type: ignore[call-overload]
    stored = broadcast.snapshot()
    program(Status=enum.Enum("Status", {"OPEN": 1, "CLOSED": 1}))
    with pytest.raises(StateRestoreError, match=r"two keys that were different are equal now: <Status\.OPEN: 1>"):
        bound(BroadcastState())[2].restore(stored)
    program()
    with pytest.raises(StateRestoreError, match="a key doesn't fit: a value of class shop:Status can't be read"):
        bound(BroadcastState(migrate=lambda old: old))[2].restore(stored)


def test_what_migrate_gives_is_looked_at_here_too() -> None:
    program(Order=V1)
    state, lists, _ = bound(OperatorListState())
    state.append(V1(1))
    stored = lists.freeze().stored()
    program(Order=dataclasses.make_dataclass("Order", [("other", int)]))
    for migrate, problem in ((lambda old: None, "returned None"), (lambda old: old["x"], "raised KeyError: 'x'")):
        with pytest.raises(StateRestoreError, match=rf"migrate {problem}.* It was given item 0, <shop:Order"):
            bound(OperatorListState(migrate=migrate))[1].restore(stored)
