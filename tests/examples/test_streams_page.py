"""The code of docs/streams.md, as it stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from attempt_parts import attempt_context
from page_code import blocks_of, run_block
from threads_for_processes import ThreadsForProcesses

import pipeline
from pipeline import KeyedOperator, Pipeline
from pipeline.operators import OperatorContext
from pipeline.runtime.driver.attempt import Attempt
from pipeline.runtime.driver.attempt_context import Progress
from pipeline.runtime.packing import pack_plan
from pipeline.testing import TestingSink, TestingSource
from sources import KafkaSource

BLOCKS: Final = blocks_of("streams.md")
ORDERS: Final = [
    {"id": 1, "user": "ann", "amount": 5000},
    {"id": 2, "user": "bob", "amount": 5},
    {"id": 3, "user": "ann", "amount": 50},
    {"id": 4, "user": "bob", "amount": -1},
]


class Balance(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value

    process_connected = process


@dataclass
class Order:
    user: str
    amount: float


@dataclass
class Total:
    user: str
    total: float


class Page:
    """What the page's code takes for given."""

    def __init__(self, orders: list[dict[str, Any]]) -> None:
        self.p = Pipeline("page")
        self.sinks: dict[str, TestingSink] = {}
        self.names: dict[str, Any] = {
            **{name: getattr(pipeline, name) for name in pipeline.__all__},
            "Balance": Balance,
            "pa": pa,
            "in_euro": lambda batch: batch,
        }
        self.names |= {"p": self.p, "KafkaSource": KafkaSource, "OperatorContext": OperatorContext}
        self.names |= {"Order": Order, "Total": Total, "Iterator": Iterator}
        self._inputs = {"orders": orders, "payments": [], "limits": [], "updates": []}

    def add(self, code: str) -> None:
        for name, records in self._inputs.items():
            if re.search(rf"\b{name}\.", code):
                self.names[name] = self.p.source(name, TestingSource(records))
        for name in re.findall(r"\w+_orders\b", code):
            self.names[name] = self.sinks[name] = TestingSink()
        run_block("streams.md", code, self.names)

    def __getitem__(self, name: str) -> list[Any]:
        return sorted(record["id"] for record in self.sinks[name].records)


def block(text: str) -> str:
    (found,) = [block for block in BLOCKS if text in block]
    return found


def test_there_is_code() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("code", BLOCKS)
def test_the_code_is_accepted(code: str) -> None:
    page = Page(ORDERS)
    page.add(code)
    if page.p._graph.steps:
        page.p.plan()


def run_job(page: Page, folder: Path) -> None:
    context = attempt_context(page.p.plan(), str(folder), interval=0.1)
    packed = replace(context.spec, plan=pack_plan(context.plan))
    Attempt(replace(context, spec=packed), Progress(), ThreadsForProcesses()).run()


def test_each_order_is_in_one_branch(tmp_path: Path) -> None:
    page = Page(ORDERS)
    page.add(block("orders.split("))
    run_job(page, tmp_path)
    assert (page["large_orders"], page["other_orders"]) == ([1], [2, 3, 4])


def test_what_is_refused_is_beside_what_is_accepted(tmp_path: Path) -> None:
    page = Page(ORDERS)
    page.add(block('side_output("refused")'))
    run_job(page, tmp_path)
    assert (page["accepted_orders"], page["refused_orders"]) == ([1, 2, 3], [4])
    assert page.sinks["refused_orders"].records[0]["why"] == "a negative amount"
