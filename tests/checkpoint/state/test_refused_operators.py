"""A state that is taken for what it holds says what to write."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest

from checkpoint.codec import EncodingError
from checkpoint.state import (
    AggregatingState,
    BroadcastState,
    ListState,
    MapState,
    OperatorListState,
    ReducingState,
    StateAccessError,
    ValueState,
)
from pipeline.operators import KeyedOperator
from pipeline.testing import OperatorHarness

Use = Callable[[Any], object]


class Op(KeyedOperator):
    total = ValueState(default=1)
    most = ReducingState[int](max, default=1)
    mean = AggregatingState[int, int](create=int, add=operator.add, result=int)
    items = ListState[int]()
    seen = MapState[str, int]()
    rules = BroadcastState[str, int]()
    held = OperatorListState[int]()

    def __init__(self) -> None:
        self.use: Use = lambda op: None

    def process(self, value: Any, ctx: Any) -> Any:
        return [self.use(self)]

    def process_connected(self, value: Any, ctx: Any) -> None:
        return None


def refused(use: Use) -> str:
    op = Op()
    harness = OperatorHarness(op, broadcast="process_connected")
    op.use = use
    with pytest.raises(StateAccessError) as caught:
        harness.process(None, key="k")
    return str(caught.value)


VALUE_USES: list[tuple[Use, str]] = [
    (lambda op: exec("op.total += 5", {"op": op}), "self.total.value += …"),
    (lambda op: exec("op.total -= 5", {"op": op}), "self.total.value -= …"),
    (lambda op: exec("op.total = op.total + 5", {"op": op}), "self.total.value + …"),
    (lambda op: 5 + op.total, "… + self.total.value"),
    (lambda op: 5 * op.total, "… * self.total.value"),
    (lambda op: f"{op.total}", "self.total.value"),
    (lambda op: f"{op.total:.2f}", "self.total.value"),
    (lambda op: op.total > 5, "self.total.value > …"),
    (lambda op: op.total < 5, "self.total.value < …"),
    (lambda op: op.total == 5, "self.total.value == …"),
    (lambda op: op.total != 5, "self.total.value != …"),
    (lambda op: 1 if op.total else 2, "self.total.value"),
    (lambda op: not op.total, "self.total.value"),
    (lambda op: max(op.total, 5), "self.total.value"),
    (lambda op: sum([op.total]), "… + self.total.value"),
    (lambda op: -op.total, "self.total.value"),
    (lambda op: abs(op.total), "self.total.value"),
    (lambda op: round(op.total), "self.total.value"),
    (lambda op: int(op.total), "self.total.value"),
    (lambda op: float(op.total), "self.total.value"),
    (lambda op: math.floor(op.total), "self.total.value"),
    (lambda op: range(op.total), "self.total.value"),
    (lambda op: len(op.total), "self.total.value"),
    (lambda op: list(op.total), "self.total.value"),
    (lambda op: 1 in op.total, "self.total.value"),
    (lambda op: op.total[0], "self.total.value[…]"),
    (lambda op: op.total.__setitem__("a", 1), "self.total.value[…]"),
    (lambda op: op.total.append(1), "self.total.value.append(…)"),
    (lambda op: op.total.get("a"), "self.total.value.get(…)"),
    (lambda op: op.total.items(), "self.total.value.items(…)"),
    (lambda op: op.total.add(1), "self.total.value.add(…)"),
    (lambda op: op.most + 1, "self.most.value + …"),
    (lambda op: op.most < 3, "self.most.value < …"),
    (lambda op: 1 if op.mean else 2, "self.mean.value"),
    (lambda op: op.mean / 2, "self.mean.value / …"),
    (lambda op: exec("op.items += [1]", {"op": op}), "self.items.extend(…)"),
    (lambda op: operator.add(op.items, [1]), "self.items.get() + …"),
    (lambda op: op.items == [1], "self.items.get() == …"),
    (lambda op: op.items[0], "self.items.get()[…]"),
    (lambda op: op.items.sort(), "self.items.update(…)"),
    (lambda op: op.items.pop(), "self.items.update(…)"),
    (lambda op: op.items.value, "self.items.get()"),
    (lambda op: exec("op.seen |= {'a': 1}", {"op": op}), "self.seen.update(…)"),
    (lambda op: op.seen | {"a": 1}, "dict(self.seen) | …"),
    (lambda op: op.seen.copy(), "dict(self.seen)"),
    (lambda op: op.seen.value, "dict(self.seen)"),
    (lambda op: op.rules | {"a": 1}, "dict(self.rules) | …"),
    (lambda op: exec("op.held += [1]", {"op": op}), "self.held.extend(…)"),
    (lambda op: op.held == [1], "list(self.held) == …"),
    (lambda op: op.held.remove(1), "self.held.update(…)"),
]


@pytest.mark.parametrize(("use", "instead"), VALUE_USES)
def test_a_state_that_is_taken_for_what_it_holds_says_what_to_write(use: Use, instead: str) -> None:
    message = refused(use)
    assert instead in message
    assert "state '" in message


@pytest.mark.parametrize("name", ["total", "most", "mean", "items", "seen", "rules", "held"])
def test_a_state_that_is_emitted_or_put_into_a_state_says_what_to_write(name: str) -> None:
    op = Op()
    harness = OperatorHarness(op, broadcast="process_connected")
    op.use = lambda op: {"user": 1, "it": getattr(op, name)}
    with pytest.raises(EncodingError, match=r"at value\['it'\]: it is a state; write what it holds"):
        harness.process(None, key="k")
    op.use = lambda op: op.seen.update(it=getattr(op, name))
    with pytest.raises(EncodingError, match=r"at value\['it'\]: it is a state; write what it holds"):
        harness.process(None, key="k")


@pytest.mark.parametrize("name", ["total", "most", "mean", "items"])
def test_a_state_can_still_be_a_member_of_a_set_and_shows_what_it_is(name: str) -> None:
    op = Op()
    OperatorHarness(op, broadcast="process_connected")
    handle = getattr(op, name)
    assert len({handle}) == 1
    assert f"state '{name}' of Op" in repr(handle)


def test_what_works_still_works() -> None:
    op = Op()
    harness = OperatorHarness(op, broadcast="process_connected")

    def use(op: Any) -> object:
        op.total.value += 2
        op.most.add(7)
        op.mean.add(3)
        op.items.extend([1, 2])
        op.seen.update(a=1)
        op.held.append(1)
        op.held.extend([2])
        return [
            *(
                op.total.value,
                op.most.value,
                op.mean.value,
                list(op.items),
                len(op.items),
                bool(op.items),
                2 in op.items,
            ),
            *(
                dict(op.seen),
                op.seen == {"a": 1},
                bool(op.seen),
                op.seen.get("b"),
                op.held[0],
                list(op.held),
                len(op.held),
            ),
        ]

    op.use = use
    assert harness.process(None, key="k") == [
        [3, 7, 3, [1, 2], 2, True, True, {"a": 1}, True, True, None, 1, [1, 2], 2]
    ]


def test_an_attribute_error_of_a_default_is_its_own() -> None:
    class Wrong(KeyedOperator):
        one = ValueState(default=lambda: {}[0])

        def process(self, value: Any, ctx: Any) -> Any:
            return None

    with pytest.raises(KeyError):
        OperatorHarness(Wrong())
