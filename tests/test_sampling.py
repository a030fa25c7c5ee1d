"""Each run takes a part of the costly tests, and every seed some of each table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from sampling import SHARE, SHARE_WITH_REAL_PARTS, left_out, mark_costly

SEEDS = [str(seed) for seed in range(400)]


@dataclass(frozen=True)
class Item:
    nodeid: str
    marker: Any = field(default=None, hash=False)
    fixturenames: tuple[str, ...] = ()

    def get_closest_marker(self, name: str) -> Any:
        return self.marker.mark if self.marker is not None and self.marker.mark.name == name else None

    def add_marker(self, marker: Any) -> None:
        object.__setattr__(self, "marker", marker)


def taken(items: list[Any], seed: str, share: float = 0.1) -> set[Any]:
    return set(items) - left_out(items, seed, share)


def table(name: str, rows: int, marker: Any) -> list[Any]:
    return [Item(f"{name}[{row}]", marker) for row in range(rows)]


def test_of_a_table_every_run_takes_some_rows_and_all_runs_together_all_of_them() -> None:
    rows = table("a.py::test", 6, pytest.mark.sample(1 / 3))
    runs = [taken(rows, seed) for seed in SEEDS]
    assert all(runs)
    assert set.union(*runs) == set(rows)
    assert 2 * 0.9 < sum(map(len, runs)) / len(runs) < 2 * 1.2


def test_a_costly_test_alone_is_left_out_of_some_runs() -> None:
    runs = [taken([Item("a.py::test", pytest.mark.sample(1 / 2))], seed) for seed in SEEDS]
    assert 0.4 < sum(map(len, runs)) / len(runs) < 0.6


def test_rows_of_the_matrix_may_all_be_left_out() -> None:
    runs = [taken(table("a.py::test", 5, pytest.mark.matrix), seed) for seed in SEEDS]
    assert 0.3 < sum(map(len, runs)) / len(runs) < 0.7
    assert set() in runs


def test_what_is_not_costly_is_always_taken_and_a_share_of_one_takes_all() -> None:
    plain, full = [Item("a.py::plain")], table("a.py::full", 3, pytest.mark.full)
    costly = [*table("a.py::t", 4, pytest.mark.sample(1 / 3)), *table("a.py::m", 4, pytest.mark.matrix)]
    for seed in SEEDS:
        assert taken([*plain, *full, *costly], seed) >= {*plain, *full}
        assert taken(costly, seed, share=1.0) == set(costly)


def test_the_rows_of_one_file_are_the_same_ones_if_only_that_file_is_run() -> None:
    mine, others = (table(name, 6, pytest.mark.sample(1 / 3)) for name in ("a.py::test", "b.py::test"))
    for seed in SEEDS:
        assert taken([*others, *mine], seed) & set(mine) == taken(mine, seed)


def test_tests_that_are_taken_together_are_all_taken_or_none_of_them() -> None:
    mark = pytest.mark.sample(1 / 2, together="cluster")
    tests = [*table("a.py::rows", 3, mark), Item("a.py::test", mark)]
    runs = [taken(tests, seed) for seed in SEEDS]
    assert {len(run) for run in runs} == {0, 4}
    assert 0.4 < sum(map(bool, runs)) / len(runs) < 0.6
    assert taken(tests, "1", share=1.0) == set(tests)


def test_tests_of_whole_jobs_and_with_real_parts_are_sampled_unless_they_say_something_else() -> None:
    marks = [None, pytest.mark.sample(1), pytest.mark.matrix, pytest.mark.full, pytest.mark.stress, pytest.mark.slow]
    job, broker, other = (
        [Item(f"{file}::{i}", mark, fixtures) for i, mark in enumerate(marks)]
        for file, fixtures in (("tests/pipelines/a.py", ()), ("b.py", ("tmp_path", "kafka")), ("b.py", ("tmp_path",)))
    )
    mark_costly([*job, *broker, *other])
    assert [item.marker for item in other] == marks
    for items, share in ((job, SHARE), (broker, SHARE_WITH_REAL_PARTS)):
        assert [item.marker for item in items[1:5]] == marks[1:5]
        assert [item.marker.mark.args for item in (items[0], items[5])] == [(share,)] * 2
        assert taken([items[1]], "1") == {items[1]}
