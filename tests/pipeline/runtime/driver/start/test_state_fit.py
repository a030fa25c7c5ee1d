"""Whether a checkpoint's state fits, as far as its files say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkpoint.codec.classes import name_of
from checkpoint.state.contents import StateContent
from pipeline import KeyedOperator, Pipeline, ValueState
from pipeline.plan import Plan
from pipeline.runtime.driver.start.state_fit import StatesFound, migrations, unfit_states
from pipeline.testing import TestingSink, TestingSource


@dataclass
class Order:
    id: int


class Orders(KeyedOperator):
    last = ValueState(Order)

    def process(self, value: Any, ctx: Any) -> Any:
        yield value


class MigratedOrders(Orders):
    last = ValueState(Order, migrate=lambda old: Order(old["id"]))


def plan(operator: KeyedOperator) -> Plan:
    p = Pipeline("orders")
    p.source("in", TestingSource()).key_by(lambda value: value).process("orders", operator).sink("out", TestingSink())
    return p.options("latest", spark=None, claim=None, rewind=False, allow_unclaimed=False, ignore_in_flight=None).plan


def test_what_one_file_says_counts_whatever_others_say_or_dont() -> None:
    found = StatesFound()
    for content in (
        StateContent(types=None, declared=name_of(Order)),
        StateContent(types=frozenset({"dict"})),
        StateContent(types=frozenset({"dict"})),
        StateContent(),
    ):
        found.add("last", content)
    (misfit,) = unfit_states(plan(Orders()), 7, {"orders": found})
    problem = "values are of type dict, and the state is declared for values of Order now"
    assert f"don't fit: {problem}. Keep" in misfit.message
    assert list(migrations(plan(Orders()), {"orders": found})) == []
    assert list(unfit_states(plan(MigratedOrders()), 7, {"orders": found})) == []
    assert list(migrations(plan(MigratedOrders()), {"orders": found})) == [
        f"values of state 'last' of step 'orders' are migrated, since {problem}"
    ]
