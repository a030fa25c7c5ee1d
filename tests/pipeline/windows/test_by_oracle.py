"""Windows by time against the oracle: disordered, late and repeated records, watermarks between them, restarts at any
record, and two subtasks that become one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from window_oracle import END, Oracle, SessionOracle, TimedHarness, every, is_empty, operator, told

from pipeline import Session, Sliding, Tumbling
from pipeline.paged import directory

KEYS = ("ann", "bob", "cid")

times = st.integers(-60, 60)
records = st.tuples(st.just("record"), st.sampled_from(KEYS), times)
steps = st.lists(
    st.one_of(
        records,
        records,
        records,
        st.tuples(st.just("watermark"), times),
        st.tuples(st.just("restart")),
    ),
    max_size=20,
)


class Run:
    """A harness and the oracle, side by side."""

    def __init__(self, name: str, lateness: int, backend: Any = "heap") -> None:
        window, oracle = WINDOWS[name]
        self.make = lambda: operator(window, lateness)
        self.backend = backend
        self.harness = TimedHarness(self.make(), state_backend=backend)
        self.oracle = oracle(lateness)
        self.outputs: list[Any] = []
        self.late: list[Any] = []

    def go(self, given: Any, number: int = 0) -> int:
        for step in given:
            match step:
                case ("record", key, at):
                    self.harness.process(number, key=key, timestamp=at)
                    self.oracle.record(key, at, number)
                    number += 1
                case ("watermark", to):
                    self.harness.watermark(to)
                    self.oracle.watermark(to)
                case ("restart",):
                    self.restart([self.harness.snapshot()])
        return number

    def restart(self, snapshots: Any) -> None:
        self.keep()
        self.harness = TimedHarness.restore(self.make(), snapshots, state_backend=self.backend)

    def keep(self) -> None:
        self.outputs += self.harness.outputs
        self.late += self.harness.side_outputs.get("late", [])
        self.harness.close()

    def end(self, number: int) -> None:
        self.harness.end_of_input()
        self.oracle.watermark(END)
        assert is_empty(self.harness)
        assert self.harness.timers_dropped == 0
        self.keep()
        results = told(self.outputs)
        assert sorted(results) == sorted(self.oracle.results)
        assert sorted(self.late) == sorted(self.oracle.late)
        check(results, self.late, number, isinstance(self.oracle, SessionOracle))


def check(results: Any, late: Any, number: int, sessions: bool) -> None:
    """What holds whatever the windows are. A session that is not final may become part of another one."""
    final = {}
    for key, start, end, is_final, numbers in results:
        assert (key, start, end) not in final  # nothing follows a final result
        if is_final:
            final[key, start, end] = numbers
    assert sessions or {window[:3] for window in results} == set(final)
    in_windows = {number for numbers in final.values() for number in numbers}
    assert in_windows.isdisjoint(late)
    assert len(set(late)) == len(late)
    assert in_windows | set(late) == set(range(number))


def aligned(window: Any, size: int, slide: int, offset: int = 0) -> tuple[Any, Any]:
    return window, partial(Oracle, every(size, slide, offset))


WINDOWS = {
    "tumbling": aligned(Tumbling(0.01), 10, 10),
    "tumbling with an offset": aligned(Tumbling(0.01, offset=-0.003), 10, 10, 7),
    "larger than the stream": aligned(Tumbling(1), 1000, 1000),
    "sliding": aligned(Sliding(0.01, 0.005), 10, 5),
    "sliding by panes": aligned(Sliding(0.01, 0.004, offset=0.001), 10, 4, 1),
    "sliding by one": aligned(Sliding(0.007, 0.001), 7, 1),
    "sliding that does not overlap": aligned(Sliding(0.01, 0.01), 10, 10),
    "session": (Session(0.008), partial(SessionOracle, 8)),
    "session of a millisecond": (Session(0.001), partial(SessionOracle, 1)),
}


@pytest.mark.parametrize("window", WINDOWS)
@settings(deadline=None, max_examples=25)
@given(given_steps=steps, lateness=st.sampled_from((0, 3, 10, 25)))
def test_results_and_late_records_are_those_of_the_oracle(window, given_steps, lateness):
    run = Run(window, lateness)
    run.end(run.go(given_steps))


@pytest.mark.parametrize("window", WINDOWS)
@settings(deadline=None, max_examples=10, suppress_health_check=list(HealthCheck))
@given(given_steps=steps, lateness=st.sampled_from((0, 3, 10, 25)))
def test_the_same_where_open_windows_lie_in_pages(monkeypatch, window, given_steps, lateness):
    monkeypatch.setattr(directory, "MOST", 2)
    run = Run(window, lateness)
    run.end(run.go(given_steps))


@pytest.mark.parametrize("most", [directory.MOST, 2])
@pytest.mark.parametrize("window", ["tumbling", "sliding by panes", "session"])
@settings(deadline=None, max_examples=3, suppress_health_check=list(HealthCheck))
@given(given_steps=steps)
def test_the_same_with_rocksdb(monkeypatch, window, most, given_steps):
    monkeypatch.setattr(directory, "MOST", most)
    run = Run(window, 3, "rocksdb")
    run.end(run.go([*given_steps, ("restart",), ("record", "ann", 7)]))


@pytest.mark.parametrize("window", WINDOWS)
@settings(deadline=None, max_examples=25)
@given(one=steps, other=steps, behind=steps, lateness=st.sampled_from((0, 3, 10, 25)))
def test_two_subtasks_that_become_one_open_no_window_again(window, one, other, behind, lateness):
    """The watermark goes back for the keys of one of them."""
    first, second = (Run(window, lateness) for _ in range(2))
    number = first.go([step for step in one if step[1:2] not in (("cid",),)])
    number = second.go([step for step in other if step[0] != "record" or step[1] == "cid"], number)
    snapshots = [run.harness.snapshot() for run in (first, second)]
    second.keep()
    first.outputs += second.outputs
    first.late += second.late
    first.oracle.one_with(second.oracle)
    first.restart(snapshots)
    first.end(first.go(behind, number))
