"""What is too much for one piece is the same in pieces, also where a job is restarted and rescaled between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import state_left

from pipeline import CheckpointConfig, Pipeline, Session
from pipeline.by_event_time import LATE
from pipeline.joins import interval, windowed
from pipeline.paged import directory
from pipeline.streams import KeyedStream, Stream
from pipeline.testing import PipelineHarness, PipelineSnapshot, TestingSource

Join = Callable[[KeyedStream, KeyedStream, int], Stream]


def by_interval(how: Any) -> Join:
    return lambda a, b, parallelism: a.join(b, (-0.004, 0.006), how, id="join", parallelism=parallelism)


def by_session(how: Any) -> Join:
    return lambda a, b, parallelism: a.join(b, how=how, window=Session(0.004), id="join", parallelism=parallelism)


class Job:
    """Two sources and a join, restarted when it is told to, at any parallelism and with either backend."""

    def __init__(self, join: Join, choose: Callable[[int], int], seed: int | None) -> None:
        self._join = join
        self._choose = choose
        self._seed = seed
        self._harness = PipelineHarness(self._pipeline(), seed=seed)
        self.results: Counter[Any] = Counter()

    def _pipeline(self) -> Pipeline:
        backend: Any = ("heap", "rocksdb")[self._choose(2)]
        p = Pipeline(
            "pieces", max_parallelism=16, checkpoints=CheckpointConfig("file:///nowhere", state_backend=backend)
        )
        left, right = [p.source(name, TestingSource()).key_by("key") for name in ("left", "right")]
        joined = self._join(left, right, 1 + self._choose(3))
        joined.side_output(LATE).map(_refuse)
        return p

    def send(self, side: str, key: str, at: int, number: int) -> None:
        self._harness.send(side, {"key": key, "n": number}, timestamp=at)

    def reach(self, at: int) -> None:
        for side in ("left", "right"):
            self._harness.watermark(side, at)

    def restart(self) -> None:
        snapshot = self._harness.snapshot()
        self._take()
        self._seed = self._choose(10**6)
        self._harness = PipelineHarness.restore(self._pipeline(), snapshot, seed=self._seed)

    def end(self) -> PipelineSnapshot:
        self._harness.end_of_input()
        self._harness.deliver()
        snapshot = self._harness.snapshot()
        self._take()
        return snapshot

    def _take(self) -> None:
        for one in self._harness.outputs("join"):
            numbers = [None if one[side] is None else one[side]["n"] for side in ("left", "right")]
            self.results[one["key"], one.get("start"), one.get("end"), *numbers] += 1
        self._harness.close()


def _refuse(late: Any) -> None:
    raise AssertionError(f"{late} is late")


RECORDS = st.lists(
    st.tuples(st.sampled_from(("left", "right")), st.sampled_from("aaab"), st.integers(-12, 12)), max_size=25
)


@pytest.mark.parametrize("how", ["inner", "full"])
@pytest.mark.parametrize("join", [by_interval, by_session])
@given(RECORDS, st.randoms(use_true_random=False), st.sampled_from((2, directory.MOST)), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_restarted_between_any_two_pieces(
    join: Any, how: Any, records: list[Any], random: Any, size: int, most: int
) -> None:
    def run(job: Job, restarts: float) -> PipelineSnapshot:
        for number, one in enumerate(records):
            job.send(*one, number)
            if random.random() < 0.3:
                job.reach(min((at for _, _, at in records[number + 1 :]), default=20) - 1)
            if random.random() < restarts:
                job.restart()
        return job.end()

    whole = Job(join(how), lambda n: 0, None)
    run(whole, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "MOST", size)
        patch.setattr(interval, "MOST_AT_ONCE", most)
        patch.setattr(windowed, "MOST_AT_ONCE", most)
        pieces = Job(join(how), random.randrange, 0)
        last = run(pieces, 0.3)
    assert pieces.results == whole.results
    assert state_left(last) == []


def test_a_record_that_select_fails_on_leaves_nothing_however_many_partners_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interval, "MOST_AT_ONCE", 1)

    def select(left: Any, right: Any) -> Any:
        return left["n"], 6 // (right["n"] - left["n"])

    p = Pipeline("whole")
    left, right = [p.source(name, TestingSource()).key_by("key") for name in ("left", "right")]
    left.join(right, (-1, 1), select=select, on_error="skip", id="join")
    harness = PipelineHarness(p)
    for number in (1, 2, 3):
        harness.send("left", {"key": "a", "n": number}, timestamp=number)
    harness.send("right", {"key": "a", "n": 3}, timestamp=3)
    assert harness.outputs("join") == []
    harness.send("right", {"key": "a", "n": 4}, timestamp=4)
    assert harness.outputs("join") == [(1, 2), (2, 3), (3, 6)]
