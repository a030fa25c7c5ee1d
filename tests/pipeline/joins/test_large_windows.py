"""Windows of a join that have very many results: they come in pieces, between which a barrier may come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joined_input import SIZES, JoinRun, Record, Restore, Watermark, events, pages_of

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline import Pipeline, Session, Sliding, Tumbling
from pipeline.joins import WindowJoin, windowed
from pipeline.testing import OperatorHarness, PipelineHarness, TestingSource
from pipeline.windows import Window

WINDOWS = (Tumbling(0.008), Sliding(0.008, 0.003), Session(0.004))
HOWS = ("inner", "left", "right", "full")


@contextmanager
def at_once(most: int) -> Iterator[None]:
    """So many results, or records, in one piece."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windowed, "MOST_AT_ONCE", most)
        yield


@pytest.mark.parametrize("window", WINDOWS, ids=repr)
@given(events(), st.sampled_from(HOWS), SIZES, st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_in_pieces_they_are_the_same(window: Window, found: list[Any], how: Any, size: int, most: int) -> None:
    def run() -> JoinRun:
        return JoinRun(lambda: WindowJoin(window, how)).feed(found).end()

    whole = run()
    with pages_of(size), at_once(most):
        pieces = run()
    assert (pieces.results, pieces.late) == (whole.results, whole.late)
    assert pieces.kept() == []


class Pieces(WindowJoin):
    """Notes how many results each timer gives."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.counts: list[int] = []

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        found = list(super().on_timer(timestamp, ctx))
        self.counts.append(len(found))
        return found


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("watermark", [10_000, MAX_WATERMARK])
@pytest.mark.parametrize("window", [Tumbling(1), Sliding(1, 0.5), Session(1)], ids=repr)
@pytest.mark.parametrize(("lefts", "rights", "how"), [(70, 60, "inner"), (3000, 0, "left"), (3000, 0, "inner")])
def test_no_timer_gives_more_than_a_barrier_may_wait_for(
    window: Window, lefts: int, rights: int, how: Any, watermark: int, backend: Any
) -> None:
    operator = Pieces(window, how)
    one = OperatorHarness(operator, state_backend=backend)
    for i in range(lefts):
        one.process(i, key="k", timestamp=500 + i % 7)
    for i in range(rights):
        one.process_connected(i, key="k", timestamp=500 + i % 5)
    one.watermark(watermark)
    each = 2 if isinstance(window, Sliding) else 1
    expected = lefts * max(rights, how == "left") * each
    assert (len(one.outputs), max(operator.counts)) == (expected, windowed.MOST_AT_ONCE if expected else 0)
    assert len({(one["left"], one["right"], one["end"]) for one in one.outputs}) == expected
    assert one.snapshot().keyed_state == [] or not JoinRun(lambda: operator).kept()
    one.close()


def together(left: Any, right: Any) -> Any:
    return [left["id"], right["id"]]


@pytest.mark.parametrize("window", WINDOWS, ids=repr)
@pytest.mark.parametrize("size", [2, 256])
def test_a_window_goes_on_where_a_snapshot_found_it_also_where_the_watermark_goes_back(
    window: Window, size: int
) -> None:
    """A record that comes meanwhile is late for it, and may be in time for another one."""

    def pipeline(parallelism: int) -> Pipeline:
        p = Pipeline("halves", max_parallelism=16)
        left, right = [p.source(name, TestingSource()).key_by("key") for name in ("left", "right")]
        left.join(right, window=window, select=together, id="join", parallelism=parallelism)
        return p

    split = 0
    with pages_of(size), at_once(2):
        for seed in range(20):
            harness = PipelineHarness(pipeline(2), seed=seed)
            for i in range(3):
                for side in ("left", "right"):
                    harness.send(side, {"key": f"k{seed}", "id": i}, timestamp=i)
            harness.deliver()
            for side in ("left", "right"):
                harness.watermark(side, 11)
            before = harness.take("join")
            harness = PipelineHarness.restore(pipeline(3), harness.snapshot(), seed=seed)
            split += 0 < len(before) < 9
            harness.send("right", {"key": f"k{seed}", "id": "late"}, timestamp=2)
            harness.end_of_input()
            harness.deliver()
            pairs = Counter(map(tuple, before + harness.outputs("join")))
            first = {pair: n for pair, n in pairs.items() if "late" not in pair}
            assert set(first) == {(a, b) for a in range(3) for b in range(3)}
            if not isinstance(window, Sliding):
                assert set(pairs.values()) == {1}
    assert split, "some snapshots are in the middle of a window"


def test_what_comes_while_some_results_of_a_window_are_out_is_in_later_windows_only() -> None:
    with at_once(2):
        fast = JoinRun(lambda: WindowJoin(Sliding(0.010, 0.005)))
        records = [
            Record(side, "a", at, n) for n, (side, at) in enumerate([("left", 6), ("left", 7), ("right", 8)] * 2)
        ]
        fast.feed(records)
        harness = fast.harness
        assert len(harness.watermark(9)) == 8
        fast.feed([Record("right", "a", 7, 100), Restore(), Watermark(14)]).end()
    ends = Counter((at, other) for at, _, _, other in fast.results)
    assert ends == {(9, 2): 4, (9, 5): 4, (14, 2): 4, (14, 5): 4, (14, 100): 4}
