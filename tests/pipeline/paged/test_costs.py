"""What one record of a key costs does not grow with what the key has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from window_oracle import operator

from checkpoint.state import read_snapshot
from checkpoint.state.heap.stores import HeapValues
from pipeline import Session, Tumbling
from pipeline.joins import AsOfJoin, IntervalJoin, WindowJoin
from pipeline.operators import KeyedOperator
from pipeline.paged import directory
from pipeline.testing import OperatorHarness

HOUR = 3_600
APART = 10
"""Milliseconds from one entry to the next."""
METHODS = ("page", "peek_page", "put_page", "remove_page")


def one_side(harness: OperatorHarness, at: int) -> None:
    harness.process(at, key="ann", timestamp=at)


def other_side(harness: OperatorHarness, at: int) -> None:
    harness.process_connected(at, key="ann", timestamp=at)


KINDS: dict[str, tuple[Callable[[], KeyedOperator], Callable[[OperatorHarness, int], None]]] = {
    "windows": (lambda: operator(Tumbling(APART / 1000)), one_side),
    "windows with early results": (lambda: operator(Tumbling(APART / 1000), early=1000), one_side),
    "sessions": (lambda: operator(Session(APART / 2000)), one_side),
    "sessions with early results": (lambda: operator(Session(APART / 2000), early=1000), one_side),
    "interval join": (lambda: IntervalJoin((0, HOUR), "full"), one_side),
    "interval join, other side": (lambda: IntervalJoin((-0.001, 0), "full"), other_side),
    "as-of join, waiting": (AsOfJoin, one_side),
    "as-of join, versions": (AsOfJoin, other_side),
    "windowed join": (lambda: WindowJoin(Tumbling(HOUR)), one_side),
    "windowed join of sessions": (lambda: WindowJoin(Session(APART / 2000)), other_side),
}


@contextmanager
def counted() -> Iterator[set[tuple[str, int]]]:
    """Which pages are touched, of each state."""
    touched: set[tuple[str, int]] = set()
    with pytest.MonkeyPatch.context() as patch:
        for name in METHODS:
            patch.setattr(HeapValues, name, noting(getattr(HeapValues, name), touched))
        yield touched


def noting(method: Callable[..., Any], touched: set[tuple[str, int]]) -> Callable[..., Any]:
    def call(store: HeapValues, number: int, *page: Any) -> Any:
        touched.add((store.what, number))
        return method(store, number, *page)

    return call


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_touches_as_many_rows_where_a_key_has_much_as_where_it_has_more(monkeypatch, kind, backend):
    monkeypatch.setattr(directory, "MOST", 16)
    make, send = KINDS[kind]
    harness = OperatorHarness(make(), state_backend=backend)
    most, sent = 0, 0
    for pages in (10, 40):
        while sent < pages * directory.MOST:
            send(harness, APART * sent)
            sent += 1
        for at in (0, APART * sent // 2, APART * sent):
            with counted() as touched:
                send(harness, at)
            assert touched
            most = max(most, len(touched))
    # What is read and written: the page of the record, its neighbour, the new half, for windows and what has changed.
    assert most <= (6 if "early" in kind else 3)
    values = [row[4] for row in read_snapshot(harness.snapshot().keyed_state)]
    sizes = [len(one) for one in values if isinstance(one, dict) and None not in one]
    sizes += [len(one[0]) for one in values if isinstance(one, list) and one[0] is not None]
    assert len(sizes) >= 40
    assert max(sizes) <= directory.MOST
    harness.end_of_input()
    left = [row[1] for row in read_snapshot(harness.snapshot().keyed_state)]
    assert left == (["versions"] * 2 if kind == "as-of join, versions" else [])
    harness.close()
