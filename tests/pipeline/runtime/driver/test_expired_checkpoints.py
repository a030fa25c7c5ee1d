"""What is said of those that held an expired checkpoint up."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import Operator, Pipeline
from pipeline.plan import Plan
from pipeline.runtime.driver.expired_checkpoints import explain
from pipeline.testing import TestingSink, TestingSource


class Same(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value


def plan(parallelism: int = 1) -> Plan:
    """A source's subtasks, then those of an operator."""
    p = Pipeline("job", parallelism=parallelism)
    p.source("in", TestingSource()).rebalance().process("slow", Same()).sink("out", TestingSink())
    return p.plan()


SOURCE, OPERATOR = "in[0]", "slow → out[0]"
BARRIER = {"barriers": {7: [0]}}


@pytest.mark.parametrize(
    ("subtask", "metrics", "what"),
    [
        (0, {}, f"{SOURCE} has not taken the barrier"),
        (1, {}, f"{OPERATOR} has no barrier from any input"),
        (1, {"barriers": {6: [0]}}, f"{OPERATOR} has no barrier from any input"),
        (1, BARRIER, f"{OPERATOR} has no barrier from {SOURCE}"),
        (1, {"writing": {6}, **BARRIER}, f"{OPERATOR} has no barrier from {SOURCE}"),
        (0, {"unsent": {7: [["a", 0], ["a", 1]]}}, f"the barrier of {SOURCE} is still queued towards a[0], a[1]"),
        (
            1,
            {"uncaptured": {7: [["in", 0]]}, **BARRIER},
            f"{OPERATOR} has taken its snapshot and has no barrier from in[0]",
        ),
    ],
)
def test_what_held_a_subtask_up(subtask: int, metrics: dict[str, Any], what: str) -> None:
    name = SOURCE if subtask == 0 else OPERATOR
    assert explain(plan(), {name: metrics}, 7, [subtask]) == [f"{what}; 0 bytes queued; storage idle"]


def test_writing_is_told_of_before_all_else() -> None:
    metrics = {OPERATOR: {"writing": {7}, "unsent": {7: [["out", 0]]}}}
    assert explain(plan(), metrics, 7, [1]) == [
        f"{OPERATOR} is still writing its snapshot; 0 bytes queued; storage busy"
    ]


@pytest.mark.parametrize(
    ("metrics", "details"),
    [
        ({"inFlightBytes": 12345.0}, "12,345 bytes queued"),
        ({"heldMs": 299}, "0 bytes queued"),
        (
            {"heldMs": 300},
            "its operators or the sink's writer have kept the task busy for 0.3 s; 0 bytes queued",
        ),
        ({"sourceGateReason": "span"}, "0 bytes queued; gate closed: span"),
    ],
)
def test_what_else_is_told(metrics: dict[str, Any], details: str) -> None:
    assert explain(plan(), {SOURCE: metrics}, 7, [0]) == [
        f"{SOURCE} has not taken the barrier; {details}; storage idle"
    ]


def test_of_many_subtasks_five_are_told_of() -> None:
    told = explain(plan(4), {}, 7, range(8))
    assert len(told) == 6
    assert told[-1] == "and 3 more subtasks"
    assert len(explain(plan(4), {}, 7, range(5))) == 5


def test_gates_of_other_sources_are_told_of_last() -> None:
    metrics = {f"in[{i}]": {"sourceGateReason": reason} for i, reason in enumerate(("span", "bytes", None, "span"))}
    told = explain(plan(4), metrics, 7, [0])
    assert told[1:] == ["gate closed: in[1], in[3]"]
