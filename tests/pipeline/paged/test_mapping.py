"""Many open windows of a key lie in pages: what they hold is what one dict would, over restarts and failed records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paged_state import OneState
from window_oracle import Numbers, TimedHarness, is_empty, operator, told

from checkpoint.codec import decode_key, encode_key, owner_of, page_key
from checkpoint.state import KeyedBackend, read_snapshot
from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.rocksdb import groups
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state.rocksdb.database import Database
from pipeline import Sliding, Tumbling
from pipeline.aggregates import Aggregation
from pipeline.paged import directory
from pipeline.paged.mapping import Pages, in_pages
from pipeline.windows.operator import Options
from pipeline.windows.operator_choice import operator_of


class Keeper(OneState):
    """An operator's state of a key, which begins in pages, beside a dict that must be equal to it."""

    model: dict[int, Any]

    def __init__(self, make: type[KeyedBackend], undo: bool) -> None:
        super().__init__(make, undo)
        self.model = {}

    def pages(self) -> Pages:
        handle = self.handle()
        value = handle.value
        if value is None:
            handle.value = {0: [0]}
            self.model[0] = [0]
            return Pages.cut(handle)
        assert in_pages(value)
        return Pages(handle, value)

    def check(self) -> None:
        found = self.pages()
        assert dict(found) == self.model
        assert len(found) == len(self.model)
        assert [begin in found for begin in range(-20, 21)] == [begin in self.model for begin in range(-20, 21)]


begins = st.integers(-20, 20)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), begins, st.integers(0, 9)),
        st.tuples(st.just("put"), begins, st.integers(0, 9)),
        st.tuples(st.just("pop"), begins),
        st.tuples(st.just("restart")),
        st.tuples(st.just("freeze")),
        st.tuples(st.just("clear")),
    ),
    max_size=40,
)


def change(keeper: Keeper, step: tuple[Any, ...]) -> None:
    found, model = keeper.pages(), keeper.model
    match step:
        case ("put", begin, value):
            found[begin] = [value]
            model[begin] = [value]
        case ("pop", begin):
            assert found.pop(begin, None) == model.pop(begin, None)
        case ("clear",):
            found.clear()
            model.clear()
        case ("restart",):
            keeper.restart()
        case ("freeze",):
            keeper.backend.freeze()  # is not released, so that all that changes is copied


@pytest.mark.parametrize("make", [HeapBackend, RocksDbBackend])
@pytest.mark.parametrize("undo", [False, True], ids=["as it is", "with undo"])
@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(steps=CHANGES)
def test_pages_hold_what_a_dict_does(monkeypatch, make, undo, steps):
    monkeypatch.setattr(directory, "MOST", 4)
    monkeypatch.setattr(Database, "values_budget", lambda database: 2_000)
    monkeypatch.setattr(groups, "MOST_CHANGED", 2)
    keeper = Keeper(make, undo)
    keeper.run(change, steps)
    keeper.check()
    keeper.backend.close()


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(before=CHANGES, failed=CHANGES)
def test_what_a_failed_record_has_changed_in_pages_is_taken_back(monkeypatch, before, failed):
    monkeypatch.setattr(directory, "MOST", 4)
    keeper = Keeper(HeapBackend, undo=True)
    keeper.run(change, before)
    keeper.check()
    model, rows = dict(keeper.model), sorted(read_snapshot(keeper.snapshot()), key=str)
    keeper.fail(change, failed)
    keeper.model = model
    assert sorted(read_snapshot(keeper.snapshot()), key=str) == rows
    keeper.check()


def test_a_pages_key_is_that_of_no_other_key_and_tells_its_owner():
    for key in (5, "ann", ("ann", 5), None, (("a", 1), 2)):
        encoded = page_key(encode_key(key), 300)
        assert encoded != encode_key((key, 300))
        assert decode_key(encoded) == (key, 300)
        assert owner_of(encoded) == encode_key(key) == owner_of(encode_key(key))


@pytest.mark.parametrize("window", [Tumbling(0.01), Sliding(0.01, 0.005)], ids=["tumbling", "sliding"])
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_thousands_of_open_windows_are_rows_of_a_bounded_size_and_all_of_them_close(window, backend):
    harness = TimedHarness(operator(window), state_backend=backend)
    for number in range(3 * directory.MOST):
        harness.process(number, key="ann", timestamp=10 * number)
    snapshot = harness.snapshot()
    rows = [value for _, state, _, _, value in read_snapshot(snapshot.keyed_state) if state == "windows"]
    assert sum(len(row) for row in rows if not in_pages(row)) == 3 * directory.MOST
    assert max(map(len, rows)) <= directory.MOST
    harness.close()
    again = TimedHarness.restore(operator(window), [snapshot], state_backend=backend)
    again.process(-1, key="ann", timestamp=10 * directory.MOST + 5)
    again.watermark(10 * directory.MOST + 20)
    again.end_of_input()
    results = told(again.outputs)
    assert all(final for *_, final, _ in results)
    numbers = [number for _, _, _, _, taken in results for number in taken]
    assert sorted(set(numbers)) == list(range(-1, 3 * directory.MOST))
    assert len(numbers) == (3 * directory.MOST + 1) * (1 if isinstance(window, Tumbling) else 2)
    assert is_empty(again)
    again.close()


def test_of_a_key_with_many_windows_a_snapshot_of_changes_has_the_page_that_has_changed():
    class Logged(HeapBackend):
        def __init__(self, key_groups: range, max_parallelism: int) -> None:
            super().__init__(key_groups, max_parallelism, logs_changes=True)

    keeper = Keeper(Logged, undo=False)
    for begin in range(5 * directory.MOST):
        keeper.pages()[begin] = (begin,)
    assert isinstance(keeper.backend, HeapBackend)
    keeper.backend.freeze_changes()
    keeper.pages()[2 * directory.MOST] = (-1,)
    changes = keeper.backend.freeze_changes()
    rows = [row for batch in changes.batches(()) for row in batch.column("key").to_pylist()]
    assert len(rows) == 2  # the directory and a page


class Choosy(Numbers):
    def add(self, acc: Any, value: Any) -> Any:
        if value == "bad":
            raise ValueError("a record that can't be added")
        return super().add(acc, value)


@pytest.mark.parametrize("window", [Tumbling(0.01), Sliding(0.01, 0.005)], ids=["tumbling", "sliding"])
def test_a_failed_record_that_would_have_made_pages_has_made_none(monkeypatch, window):
    monkeypatch.setattr(directory, "MOST", 2)
    made = operator_of(window, Aggregation({"numbers": Choosy()}), Options(0, None))
    harness = TimedHarness(made, on_error="skip")
    for value, at in ((1, 0), (2, 10), ("bad", 20), (3, 10), ("bad", 20)):
        harness.process(value, key="ann", timestamp=at)
    assert len(harness.errors) == 2
    (row,) = [value for _, state, _, _, value in read_snapshot(harness.snapshot().keyed_state) if state == "windows"]
    assert len(row) == 2
    harness.process(4, key="ann", timestamp=30)
    harness.process("bad", key="ann", timestamp=40)
    harness.end_of_input()
    assert {number for *_, numbers in told(harness.outputs) for number in numbers} == {1, 2, 3, 4}
    assert is_empty(harness)
