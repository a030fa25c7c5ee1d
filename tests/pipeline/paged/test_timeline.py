"""Entries in order of time are what a sorted list has, in pages and not, over restarts and failed records."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paged_state import OneState

from checkpoint.state import KeyedBackend, read_snapshot
from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.rocksdb import groups
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state.rocksdb.database import Database
from pipeline.paged import directory
from pipeline.paged.timeline import Timeline

TIMES = range(-12, 13)


class Keeper(OneState):
    """A timeline beside a list of `[time, number, mark]`, which stays sorted."""

    def __init__(self, make: type[KeyedBackend], undo: bool) -> None:
        super().__init__(make, undo)
        self.model: list[list[Any]] = []
        self.number = 0

    def timeline(self) -> Timeline:
        return Timeline(self.handle())

    def check(self) -> None:
        found, model = self.timeline(), self.model
        assert [list(one) for one in found.all()] == model
        for at in (-(2**63), -1, 0, 5):
            assert list(found.times(at)) == [one[0] for one in model if one[0] > at]
        assert len(found) == len(model)
        assert [found.first(number) for number in (1, 2, 9)] == [
            [one[0] for one in model[:number]] for number in (1, 2, 9)
        ]
        for at in TIMES:
            until = [one for one in model if one[0] <= at]
            assert found.count_until(at) == len(until)
            assert found.count_until(at, 3) == min(3, len(until))
            assert [list(one) for one in found.last_until(at, 2)] == until[-2:]
            assert found.last(at) == (tuple(until[-1]) if until else None)
            for lower in (at - 3, at):
                between = [one for one in until if one[0] >= lower]
                walked = [[column[i] for column in columns] for _, _, columns, i in found.from_on(lower, at)]
                assert walked == between
                places = [(time, before) for time, before, _, _ in found.from_on(lower, at)]
                assert len(set(places)) == len(places)
                same = sum(one[0] == lower for one in between)
                assert [place[:2] for place in found.from_on(lower, at, same)] == places[same:]
            near = found.near(at, at + 4)
            rows = [[column[i] for column in one.columns] for one in near for i in range(one.first, one.stop)]
            assert rows == [one for one in model if at <= one[0] <= at + 4]
            for most in (1, 3):
                parts, spot = [], (0, 0)
                while spot is not None:
                    some, spot = found.some_near(at, at + 4, most, spot)
                    part = [[column[i] for column in one.columns] for one in some for i in range(one.first, one.stop)]
                    assert len(part) == most or spot is None
                    parts += part
                assert parts == rows


def change(keeper: Keeper, step: tuple[Any, ...]) -> None:
    found, model = keeper.timeline(), keeper.model
    match step:
        case ("insert", at):
            keeper.number += 1
            assert found.insert(at, keeper.number, False) == all(at < one[0] for one in model)
            model.append([at, keeper.number, False])
            model.sort(key=lambda one: one[0])
        case ("drop", count):
            count = min(count, len(model))
            gone = found.drop(count)
            assert [list(one) for one in zip(*gone, strict=True)] == model[:count]
            del model[:count]
        case ("fill", lower, size):
            for one in found.near(lower, lower + size):
                found.fill(one, 2, True)
            for row in model:
                row[2] = row[2] or lower <= row[0] <= lower + size
        case ("replace", at) if sum(one[0] == at for one in model) == 1:
            keeper.number += 1
            found.replace(at, keeper.number, False)
            for row in model:
                if row[0] == at:
                    row[1:] = keeper.number, False
        case ("remove", at) if sum(one[0] == at for one in model) == 1:
            found.remove(at)
            model[:] = [one for one in model if one[0] != at]
        case ("restart",):
            keeper.restart()
        case ("freeze",):
            keeper.backend.freeze()  # is not released, so that all that changes is copied


times = st.sampled_from(TIMES)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), times),
        st.tuples(st.just("insert"), times),
        st.tuples(st.just("insert"), times),
        st.tuples(st.just("insert"), times),
        st.tuples(st.just("drop"), st.integers(0, 12)),
        st.tuples(st.just("fill"), times, st.integers(0, 9)),
        st.tuples(st.just("replace"), times),
        st.tuples(st.just("remove"), times),
        st.tuples(st.just("restart")),
        st.tuples(st.just("freeze")),
    ),
    max_size=50,
)


@pytest.mark.parametrize("make", [HeapBackend, RocksDbBackend])
@pytest.mark.parametrize("undo", [False, True], ids=["as it is", "with undo"])
@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(steps=CHANGES, most=st.sampled_from((2, 3, 4)))
def test_a_timeline_is_a_sorted_list(monkeypatch, make, undo, steps, most):
    monkeypatch.setattr(directory, "MOST", most)
    monkeypatch.setattr(Database, "values_budget", lambda database: 2_000)
    monkeypatch.setattr(groups, "MOST_CHANGED", 2)
    keeper = Keeper(make, undo)
    keeper.run(change, steps)
    keeper.check()
    keeper.backend.close()


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(before=CHANGES, failed=CHANGES)
def test_what_a_failed_record_has_changed_is_taken_back(monkeypatch, before, failed):
    monkeypatch.setattr(directory, "MOST", 3)
    keeper = Keeper(HeapBackend, undo=True)
    keeper.run(change, before)
    model, rows = copy.deepcopy(keeper.model), sorted(read_snapshot(keeper.snapshot()), key=str)
    keeper.fail(change, failed)
    keeper.model = model
    assert sorted(read_snapshot(keeper.snapshot()), key=str) == rows
    keeper.check()


@pytest.mark.parametrize("order", [1, -1, 0], ids=["forward", "backward", "one time"])
def test_pages_are_bounded_whatever_the_order(order):
    keeper = Keeper(HeapBackend, undo=False)
    for i in range(5 * directory.MOST):
        keeper.timeline().insert(order * i, i)
    rows = [row[4] for row in read_snapshot(keeper.snapshot())]
    pages = [row for row in rows if row[0] is not None]
    assert max(len(page[0]) for page in pages) <= directory.MOST
    assert len(pages) <= 11
    found = keeper.timeline().all()
    assert found == sorted(found, key=lambda one: one[0])
    if not order:
        assert [one[1] for one in found] == list(range(5 * directory.MOST))
    assert len(keeper.timeline().drop(5 * directory.MOST)[0]) == 5 * directory.MOST
    assert not list(read_snapshot(keeper.snapshot()))
