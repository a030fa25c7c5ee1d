"""`split`: which branch gets a record, and what it costs on the way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from chains import chain_of, run_chain
from hypothesis import given
from hypothesis import strategies as st

from pipeline import Pipeline
from pipeline.testing import TestingSink, TestingSource

BRANCHES = {"large": lambda v: v > 10, "even": lambda v: v % 2 == 0, "negative": lambda v: v < 0}


@given(st.lists(st.integers(-20, 20)))
def test_each_record_goes_to_the_first_branch_that_takes_it(values: list[int]) -> None:
    tags = [("x", name) for name in (*BRANCHES, "default")]
    emitted = run_chain(lambda s: s.split("x", **BRANCHES), values, *tags)
    expected: dict[Any, list[int]] = {tag: [] for tag in tags}
    for value in values:
        name = next((name for name, takes in BRANCHES.items() if takes(value)), "default")
        expected["x", name].append(value)
    assert emitted == expected


def test_branches_chain_to_what_reads_them() -> None:
    p = Pipeline("job", parallelism=2)
    branches = p.source("in", TestingSource()).split(a=bool)
    branches.a.map(str).sink("a", TestingSink())
    branches["default"].sink("rest", TestingSink())
    assert len(p.plan().vertices) == 1
    assert p.plan().edges == ()


def test_a_branch_may_cross_an_edge_and_be_read_twice() -> None:
    small: list[Any] = []
    edge: list[Any] = []
    chain, _ = chain_of(lambda s: s.split("x", a=bool).a.map(small.append), {("x", "a"): [edge.append]})
    for value in (0, 1, 2):
        chain.push(value)
    assert (small, edge) == ([1, 2], [1, 2])


def test_a_branch_that_changes_its_records_changes_them_for_no_other_reader() -> None:
    def change(value: Any) -> Any:
        value.append("changed")
        return value

    def build(s: Any) -> None:
        a = s.split("x", a=bool).a
        a.map(change, id="first")
        a.map(change, id="second")

    emitted = run_chain(build, [[1]], ("x", "a"), "first", "second")
    assert emitted == {("x", "a"): [[1]], "first": [[1, "changed"]], "second": [[1, "changed"]]}


def test_a_function_that_fails_is_the_split_s() -> None:
    def build(s: Any) -> None:
        s.split("x", a=lambda v: 1 / v).a.map(lambda v: v["missing"], id="behind")

    chain, _ = chain_of(build)
    with pytest.raises(ZeroDivisionError) as failed:
        chain.push(0)
    assert chain.step_of(failed.value) == "x"
    with pytest.raises(TypeError) as failed_behind:
        chain.push(1)
    assert chain.step_of(failed_behind.value) == "behind"


def test_branches_are_found_by_name_only() -> None:
    branches = Pipeline("job").source("in", TestingSource()).split(large=bool, items=bool)
    assert list(branches) == ["large", "items", "default"]
    assert len(branches) == 3
    assert branches["large"] is branches.large
    assert branches.items is branches["items"]
    with pytest.raises(
        AttributeError, match=r"no branch 'lage'; did you mean 'large'\? there are large, items, default"
    ):
        branches.lage  # noqa: B018
    with pytest.raises(KeyError, match="no branch 'huge'"):
        branches["huge"]
    assert list(copy.copy(branches)) == list(branches)
