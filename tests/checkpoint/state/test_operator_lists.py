"""Operator list and union state: lists of subtasks, shared out anew when the parallelism changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import EncodingError
from checkpoint.state import (
    DeclaresState,
    OperatorListHandle,
    OperatorLists,
    OperatorListState,
    OperatorUnionState,
    StateAccessError,
    StateRestoreError,
    bind,
)
from checkpoint.state.operator_lists import LIST, UNION, Stored, shared_out


class Op(DeclaresState):
    held = OperatorListState[Any]()
    known = OperatorUnionState[Any]()


def bound(cls: type[Any] = Op) -> tuple[Any, OperatorLists]:
    op, lists = cls(), OperatorLists()
    bind(op, None, None, lists)
    return op, lists


def restored(stored: Stored, cls: type[Any] = Op, allow_unclaimed: bool = False) -> Any:
    op, lists = bound(cls)
    lists.restore(stored, allow_unclaimed)
    return op


# -- as a list ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["held", "known"])
def test_it_is_a_list_that_grows_at_its_end(name: str) -> None:
    items: OperatorListHandle[Any] = getattr(bound()[0], name)
    assert (len(items), list(items), bool(items)) == (0, [], False)
    items.append("a")
    items.extend(x for x in ("b", "c"))
    assert (items[0], items[-1], items[1:], len(items)) == ("a", "c", ["b", "c"], 3)
    assert (list(items), list(reversed(items)), "b" in items, items.index("c")) == (
        ["a", "b", "c"],
        ["c", "b", "a"],
        True,
        2,
    )
    with pytest.raises(IndexError):
        items[3]
    items.update(item * 2 for item in items)
    assert list(items) == ["aa", "bb", "cc"]
    items.extend(items)
    assert len(items) == 6
    items.clear()
    assert list(items) == []


@pytest.mark.parametrize(
    "item",
    [None, True, 1, 1.5, "x", b"x", [1, [2]], (1, (2, "a")), {"a": (1,), 2: None}, datetime(2024, 1, 1, tzinfo=UTC)],
)
def test_an_item_is_the_same_before_and_after_a_restore(item: Any) -> None:
    op, lists = bound()
    op.held.append(item)
    after = restored(lists.freeze().stored())
    assert repr(list(op.held)) == repr(list(after.held)) == repr([item])


def test_an_item_is_kept_as_it_was_when_it_was_put() -> None:
    op, _ = bound()
    item = {"n": 1}
    op.held.append(item)
    item["n"] = 2
    op.held[0]["n"] = 3
    assert list(op.held) == [{"n": 1}]


def test_it_may_be_changed_while_it_is_gone_through() -> None:
    op, _ = bound()
    op.held.update([1, 2])
    seen = []
    for item in op.held:
        seen.append(item)
        op.held.append(item + 10)
    assert (seen, list(op.held)) == ([1, 2], [1, 2, 11, 12])
    for item in op.held:
        seen.append(item)
        op.held.clear()
    assert seen == [1, 2, 1, 2, 11, 12]


PUTS: list[Callable[[Any, Any], object]] = [
    lambda items, item: items.append(item),
    lambda items, item: items.extend([5, item]),
    lambda items, item: items.update([5, item]),
]


@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize(("name", "kind"), [("held", "operator list"), ("known", "operator union")])
def test_an_item_that_cannot_be_kept_is_refused_when_it_is_put_and_nothing_changes(
    put: Callable[[Any, Any], object], name: str, kind: str
) -> None:
    op, _ = bound()
    items = getattr(op, name)
    items.append(1)
    with pytest.raises(EncodingError, match=rf"{kind} state '{name}' of Op can't keep the item 7j: .*plain values"):
        put(items, 7j)
    assert list(items) == [1]


def test_it_cannot_be_assigned_to_which_would_replace_it_by_a_plain_list() -> None:
    op, _ = bound()
    for name in ("held", "known"):
        with pytest.raises(StateAccessError, match=rf"{name} is a state of Op.*use self\.{name}\.update"):
            setattr(op, name, [])


def test_it_can_be_used_only_while_the_operator_runs() -> None:
    with pytest.raises(StateAccessError, match="state 'held' of Op can be used only while the operator runs"):
        Op().held.append(1)


# -- snapshots ------------------------------------------------------------------------------------------------


def test_states_without_items_are_not_in_a_snapshot() -> None:
    op, lists = bound()
    assert lists.freeze().stored() == {}
    op.known.append(1)
    assert list(lists.freeze().stored()) == [UNION]


CHANGES: list[Callable[[Any], object]] = [
    lambda items: items.append(9),
    lambda items: items.extend([8, 9]),
    lambda items: items.update([7]),
    lambda items: items.clear(),
]


@given(st.lists(st.sampled_from(CHANGES)), st.lists(st.sampled_from(CHANGES)))
def test_a_snapshot_does_not_see_what_happens_after_it(
    before: list[Callable[[Any], object]], after: list[Callable[[Any], object]]
) -> None:
    """Also if it is written only then: what lies behind the barrier is read again."""
    op, lists = bound()
    for change in before:
        change(op.held)
    frozen, content = lists.freeze(), list(op.held)
    for change in after:
        change(op.held)
    assert list(restored(frozen.stored()).held) == content


def test_a_snapshot_is_written_while_the_list_grows() -> None:
    op, lists = bound()
    op.held.update(range(200_000))
    frozen, stored = lists.freeze(), list[Stored]()
    writer = threading.Thread(target=lambda: stored.append(frozen.stored()))
    writer.start()
    while writer.is_alive():
        op.held.append("later")
    writer.join()
    assert list(restored(stored[0]).held) == list(range(200_000))


def test_a_state_that_is_no_longer_declared_is_an_error_that_names_it_unless_it_may_be_dropped() -> None:
    class Fewer(DeclaresState):
        held = OperatorListState[Any]()

    op, lists = bound()
    op.held.append(1)
    op.known.append(2)
    stored = lists.freeze().stored()
    with pytest.raises(StateRestoreError, match=r"operator union state 'known', which .* doesn't declare.*allow_uncl"):
        restored(stored, Fewer)
    assert list(restored(stored, Fewer, allow_unclaimed=True).held) == [1]


def test_a_list_does_not_come_back_as_a_union() -> None:
    """Each subtask would have a part of it and take that for all there is."""

    class Other(DeclaresState):
        held = OperatorUnionState[Any]()

    op, lists = bound()
    op.held.append(1)
    with pytest.raises(StateRestoreError, match="operator list state 'held'"):
        restored(lists.freeze().stored(), Other)


# -- shared out -----------------------------------------------------------------------------------------------

parallelisms = st.integers(1, 8)


def stored_of(kind: str, items: list[Any]) -> Stored:
    op, lists = bound()
    (op.held if kind == LIST else op.known).update(items)
    return lists.freeze().stored()


def share(kind: str, olds: list[list[Any]], new: int) -> list[list[Any]]:
    """What each of `new` subtasks gets of the lists of the old ones."""
    stored = {i: stored_of(kind, items) for i, items in enumerate(olds) if items}
    ops = [restored(shared_out(stored, len(olds), index, new)) for index in range(new)]
    return [list(op.held if kind == LIST else op.known) for op in ops]


@given(st.lists(st.lists(st.integers(0, 99), max_size=20), min_size=1, max_size=8), parallelisms)
def test_a_list_is_cut_into_even_parts_and_nothing_is_lost_doubled_or_out_of_order(
    olds: list[list[int]], new: int
) -> None:
    got = share(LIST, olds, new)
    everything = [item for items in olds for item in items]
    assert [item for items in got for item in items] == everything
    if new == len(olds):
        assert got == olds
    else:
        lengths = [len(items) for items in got]
        assert max(lengths) - min(lengths) <= 1


@given(st.lists(st.lists(st.integers(0, 99), max_size=20), min_size=1, max_size=8), parallelisms)
def test_a_union_comes_to_everybody_whole_and_in_order(olds: list[list[int]], new: int) -> None:
    assert share(UNION, olds, new) == [[item for items in olds for item in items]] * new


@given(st.lists(parallelisms, min_size=1, max_size=5), st.integers(0, 30))
def test_a_list_keeps_its_order_over_any_number_of_restores(parallelism: list[int], count: int) -> None:
    lists = [list(range(count))]
    for new in parallelism:
        lists = share(LIST, lists, new)
    assert [item for items in lists for item in items] == list(range(count))


@pytest.mark.parametrize("new", [1, 2, 3, 7])
def test_lists_of_many_chunks_are_cut_anywhere(new: int) -> None:
    olds = [list(range(5000)), [], [["x" * 400_000, i] for i in range(8)], list(range(3000))]
    got = share(LIST, olds, new)
    assert [item for items in got for item in items] == [item for items in olds for item in items]


def test_states_are_shared_out_each_by_itself() -> None:
    class Two(DeclaresState):
        a = OperatorListState[Any]()
        b = OperatorListState[Any]()

    stored: dict[int, Stored] = {}
    for i, (a, b) in enumerate([([1, 2, 3], ["x"]), ([4], [])]):
        op, lists = bound(Two)
        op.a.update(a)
        op.b.update(b)
        stored[i] = lists.freeze().stored()
    ops = [restored(shared_out(stored, 2, index, 4), Two) for index in range(4)]
    assert [(list(op.a), list(op.b)) for op in ops] == [([1], []), ([2], []), ([3], []), ([4], ["x"])]
