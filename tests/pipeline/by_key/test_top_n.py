"""`top_n`: the greatest records of each key, told when they change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import Pipeline, PipelineError
from pipeline.aggregates import Top
from pipeline.by_key import top_n
from pipeline.operators import KeyedOperator
from pipeline.runtime.packing import pack_plan, unpack_plan
from pipeline.testing import OperatorHarness, TestingSource


def largest(n: int) -> KeyedOperator:
    return top_n(Top(n, by="amount"), None)


_RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 9)), max_size=30)


def check(records: list[tuple[str, int, int]], n: int, restarts: set[int], backend: Any) -> None:
    harness = OperatorHarness(largest(n), state_backend=backend)
    seen: dict[str, list[Any]] = {}
    for number, (key, amount, at) in enumerate(records):
        if number in restarts:
            snapshot = harness.snapshot()
            harness.close()
            harness = OperatorHarness.restore(largest(n), snapshot, state_backend=backend)
        record = {"amount": amount, "number": number}
        before = seen.setdefault(key, [])
        after = sorted([*before, (-amount, at, number, record)])[:n]
        told = [] if after == before else [{"key": key, "top": [one[3] for one in after]}]
        assert harness.process(record, key=key, timestamp=at) == told
        seen[key] = after
    harness.close()


@settings(deadline=None)
@given(records=_RECORDS, n=st.integers(1, 4), restarts=st.sets(st.integers(0, 30), max_size=2))
def test_it_tells_what_sorting_all_would_whenever_that_changes(
    records: list[tuple[str, int, int]], n: int, restarts: set[int]
) -> None:
    check(records, n, restarts, "heap")


@settings(deadline=None, max_examples=6)
@given(records=_RECORDS, n=st.integers(1, 4), restarts=st.sets(st.integers(0, 30), max_size=2))
def test_it_may_keep_them_in_rocksdb(records: list[tuple[str, int, int]], n: int, restarts: set[int]) -> None:
    check(records, n, restarts, "rocksdb")


def test_a_smaller_n_after_a_restart_gives_a_shorter_list() -> None:
    harness = OperatorHarness(largest(4))
    for amount in range(4):
        harness.process({"amount": amount}, key="k")
    restored = OperatorHarness.restore(largest(2), harness.snapshot())
    assert restored.process({"amount": 0}, key="k") == []
    assert restored.process({"amount": 9}, key="k") == [{"key": "k", "top": [{"amount": 9}, {"amount": 3}]}]


def test_a_key_begins_anew_when_its_time_to_live_is_over() -> None:
    harness = OperatorHarness(top_n(Top(1, by="amount"), 60))
    assert harness.process({"amount": 5}, key="k") == [{"key": "k", "top": [{"amount": 5}]}]
    harness.advance_time(60)
    assert harness.process({"amount": 1}, key="k") == [{"key": "k", "top": [{"amount": 1}]}]


def test_steps_are_named_by_their_kind_and_can_be_packed() -> None:
    stream = Pipeline("p").source("in", TestingSource([1])).key_by("region")
    stream.top_n(2, "amount")
    stream.top_n(1, by=lambda record: record["amount"], of="id", smallest=True, id="cheapest")
    p = stream._pipeline
    assert [step.id for step in p._graph.steps[1:]] == ["top_n-1", "cheapest"]
    harness = OperatorHarness(unpack_plan(pack_plan(p.plan())).vertices[2].head.payload)
    assert harness.process({"id": 7, "amount": 3}, key="k") == [{"key": "k", "top": [7]}]
    assert harness.process({"id": 8, "amount": 4}, key="k") == []
    with pytest.raises(PipelineError, match="n must be a whole number"):
        stream.top_n(0, "amount")


def test_records_that_are_gone_can_not_be_among_the_greatest_again() -> None:
    harness = OperatorHarness(top_n(Top(2, by="amount"), None))
    harness.process({"amount": 1}, key="k")
    snapshot = harness.snapshot()
    for other in (Top(3, by="amount"), Top(2, by="amount", smallest=True)):
        with pytest.raises(PipelineError, match=r"by n=2, smallest=False, .* has n=.* another id"):
            OperatorHarness.restore(top_n(other, None), snapshot)
