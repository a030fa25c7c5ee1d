"""Windows of a join that have very many results: they come in pieces, between which a barrier may come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joined_input import SIZES, JoinRun, Record, Restore, Watermark, events, pages_of, rows

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline import Pipeline, Session, Sliding, Tumbling
from pipeline.joins import WindowJoin, windowed
from pipeline.paged.timeline import Timeline
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
    assert rows(one) == []
    one.close()


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("watermark", [10**7, MAX_WATERMARK])
def test_no_timer_looks_further_for_the_end_of_a_session_than_a_barrier_may_wait_for(
    watermark: int, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    times, on_timer = Timeline.times, WindowJoin.on_timer

    def counting(self: Timeline, after: int) -> Iterator[int]:
        for at in times(self, after):
            looked[-1] += 1
            yield at

    def noting(self: WindowJoin, timestamp: int, ctx: Any) -> Any:
        looked.append(0)
        return on_timer(self, timestamp, ctx)

    monkeypatch.setattr(Timeline, "times", counting)
    monkeypatch.setattr(WindowJoin, "on_timer", noting)
    number = 3 * windowed.MOST_AT_ONCE + 5
    one = OperatorHarness(WindowJoin(Session(1)), state_backend=backend)
    for i in range(number):
        one.process(i, key="k", timestamp=900 * i)
    one.process_connected("r", key="k", timestamp=900 * (number - 1) + 500)
    one.watermark(watermark)
    assert len(one.outputs) == number
    assert {(one["start"], one["end"]) for one in one.outputs} == {(0, 900 * (number - 1) + 1500)}
    assert max(looked) <= windowed.MOST_AT_ONCE + 2
    assert sum(looked) < 2 * number, "what is known is not looked at again"
    assert rows(one) == []
    one.close()


SLIDING = Sliding(0.010, 0.005)


def pipeline(window: Window, parallelism: int) -> Pipeline:
    p = Pipeline("halves", max_parallelism=16)
    left, right = [p.source(name, TestingSource()).key_by("key") for name in ("left", "right")]
    left.join(right, window=window, id="join", parallelism=parallelism)
    return p


def pairs(outputs: list[Any]) -> Counter[tuple[Any, ...]]:
    """Key, end of the window, and the ids of both."""
    return Counter((one["key"], one["end"], one["left"]["id"], one["right"]["id"]) for one in outputs)


@pytest.mark.parametrize("window", [Tumbling(0.010), SLIDING, Session(0.002)], ids=repr)
@pytest.mark.parametrize("size", [2, 256])
def test_a_window_goes_on_where_a_snapshot_found_it_also_where_the_watermark_goes_back(
    window: Window, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes meanwhile is late for it, and may be in time for another one: it is in no part of its results."""
    finished = 0
    give_and_keep = WindowJoin._give_and_keep

    def counting(*args: Any) -> Any:
        nonlocal finished
        finished += 1
        return give_and_keep(*args)

    monkeypatch.setattr(WindowJoin, "_give_and_keep", counting)
    with pages_of(size), at_once(2):
        for seed in range(60):
            harness = PipelineHarness(pipeline(window, 2), seed=seed)
            records = [(side, key, i) for key in "abc" for side in ("left", "right") for i in range(3)]
            for side, key, i in records:
                harness.send(side, {"key": key, "id": i}, timestamp=6 + i)
            harness.deliver()
            for side in ("left", "right"):
                harness.watermark(side, 11 if isinstance(window, Session) else 9)
            for key in "abc":
                harness.send("right", {"key": key, "id": 3}, timestamp=7)
            before = harness.take("join")
            harness = PipelineHarness.restore(pipeline(window, 1), harness.snapshot(), seed=seed)
            harness.end_of_input()
            harness.deliver()
            found = pairs(before + harness.outputs("join"))
            assert set(found.values()) == {1}
            ends = {end for _, end, *_ in found}
            assert len(ends) == (2 if isinstance(window, Sliding) else 1)
            for key in "abc":
                for end in ends:
                    rights = Counter(right for k, e, _, right in found if (k, e) == (key, end))
                    assert {right: rights[right] for right in range(3)} == dict.fromkeys(range(3), 3)
                    assert rights[3] in (0, 3)
    assert finished if isinstance(window, Sliding) else not finished


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
