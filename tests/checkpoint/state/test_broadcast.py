"""Broadcast state: a dict that only records of a broadcast stream may change, kept as it was when it was put."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from values import EDGES, same

from checkpoint.codec import EncodingError, register_pickle
from checkpoint.state import (
    BroadcastHandle,
    BroadcastState,
    BroadcastStates,
    DeclaresState,
    StateAccessError,
    StateRestoreError,
    ValueState,
    bind,
)


class Op(DeclaresState):
    rules = BroadcastState[Any, Any]()
    names = BroadcastState[str, str]()


def bound() -> tuple[Op, BroadcastStates]:
    op, states = Op(), BroadcastStates()
    bind(op, None, states)
    states.writable = True
    return op, states


def test_it_is_a_dict() -> None:
    op, states = bound()
    op.rules["a"] = [1]
    op.rules["b"] = {"x": (1, 2)}
    op.names["a"] = "other"
    del op.rules["a"]
    states.writable = False
    assert dict(op.rules) == dict(op.rules.items()) == {"b": {"x": (1, 2)}}
    assert ("a" in op.rules, "b" in op.rules, len(op.rules), op.rules.get("a", 7)) == (False, True, 1, 7)
    assert (list(op.rules.keys()), list(op.rules.values())) == (["b"], [{"x": (1, 2)}])
    with pytest.raises(KeyError):
        op.rules["a"]


CHANGES: list[Callable[[BroadcastHandle[Any, Any]], object]] = [
    lambda rules: rules.__setitem__("a", 2),
    lambda rules: rules.__delitem__("a"),
    lambda rules: rules.pop("a"),
    lambda rules: rules.clear(),
    lambda rules: rules.update(a=2),
    lambda rules: rules.setdefault("b", 2),
]


@pytest.mark.parametrize("change", CHANGES)
def test_it_can_be_changed_only_for_a_record_that_all_subtasks_get(change: Callable[[Any], object]) -> None:
    """A change in one subtask alone would be lost, or spread to all, at the next restore."""
    op, states = bound()
    op.rules["a"] = 1
    states.writable = False
    with pytest.raises(StateAccessError, match=r"broadcast state 'rules' of Op.* can be changed only"):
        change(op.rules)
    assert dict(op.rules) == {"a": 1}
    states.writable = True
    change(op.rules)
    assert dict(op.rules) != {"a": 1}


def test_it_may_be_changed_while_it_is_gone_through() -> None:
    op, _ = bound()
    op.rules.update({1: "a", 2: "b"})
    for key in op.rules:
        del op.rules[key]
    assert not op.rules


def test_what_was_put_does_not_change_with_the_object_that_was_put() -> None:
    op, states = bound()
    rule = {"limit": 1}
    op.rules["a"] = rule
    rule["limit"] = 2
    assert op.rules["a"] == {"limit": 1}
    before = states.snapshot()
    op.rules["a"] = rule
    op.rules["b"] = 3
    restored, into = bound()
    into.restore(before)
    assert dict(restored.rules) == {"a": {"limit": 1}}


@pytest.mark.parametrize("value", [edge for edge in EDGES if same(edge, edge)], ids=repr)
def test_what_was_only_read_was_not_changed(value: Any) -> None:
    op, states = bound()
    op.rules["a"] = {"b": [value]}
    assert same(op.rules["a"], {"b": [value]})
    restored, into = bound()
    into.restore(states.snapshot())
    assert same(dict(restored.rules), {"a": {"b": [value]}})
    into.snapshot()


@register_pickle
class Holder:
    def __init__(self, members: set[int]) -> None:
        self.members = members


def test_what_was_only_read_was_not_changed_though_its_pickle_is_another_one() -> None:
    members = set(range(1000))
    members -= members - {1, 8}  # in another order than a set that is made of these two
    op, states = bound()
    op.rules["a"] = Holder(members)
    assert op.rules["a"].members == {1, 8}
    before = states.snapshot()
    restored, into = bound()
    into.restore(before)
    assert restored.rules["a"].members == {1, 8}
    assert into.snapshot() == before
    restored.rules["a"].members.add(2)
    with pytest.raises(StateAccessError, match="was changed in place"):
        into.snapshot()


@pytest.mark.parametrize(("key", "value"), [("a", {1j}), ("a", object()), (1.5j, 1), (frozenset({1j}), 1)])
def test_what_cannot_be_kept_is_refused_when_it_is_put(key: Any, value: Any) -> None:
    op, _ = bound()
    with pytest.raises(EncodingError, match="broadcast state 'rules' of Op"):
        op.rules[key] = value
    assert not op.rules


keys = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.0, 1.0, 2.5, "a", b"a", (1,), ()]))


@given(st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(0, 9)))))
def test_a_restored_state_equals_the_one_that_was_snapshotted(changes: list[tuple[Any, int | None]]) -> None:
    """Also where keys are equal and not the same, such as 1 and True; a value of `None` stands for a removal."""
    op, states = bound()
    model: dict[Any, int] = {}
    for key, value in changes:
        if value is None:
            model.pop(key, None)
            op.rules.pop(key, None)
        else:
            model[key] = op.rules[key] = value
    restored, into = bound()
    into.restore(states.snapshot())
    for found in (op.rules, restored.rules):
        assert [(type(key), key, value) for key, value in found.items()] == [
            (type(key), key, value) for key, value in model.items()
        ]


def test_a_state_that_is_no_longer_declared_is_an_error_unless_it_may_be_dropped() -> None:
    _, states = bound()
    with pytest.raises(StateRestoreError, match="broadcast state 'old', which the operator doesn't declare"):
        states.restore({"old": {}})
    states.restore({"old": {}}, allow_unclaimed=True)
    assert states.snapshot() == {}


def test_it_needs_a_place_and_cannot_be_assigned_to() -> None:
    with pytest.raises(StateAccessError, match=r"Op\.rules is broadcast state"):
        bind(Op(), None)

    class Keyed(DeclaresState):
        count = ValueState(default=0)

    with pytest.raises(StateAccessError, match=r"Keyed\.count is state of keys"):
        bind(Keyed(), None, BroadcastStates())
    with pytest.raises(StateAccessError, match="rules is a state of Op and can't be assigned to"):
        bound()[0].rules = {}  # type: ignore[assignment]
