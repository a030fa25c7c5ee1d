"""`limit_rate`: how many records pass in any time, and that it says so without sleeping."""

from __future__ import annotations

from typing import Any

import pytest
from chains import chain_of
from hypothesis import given
from hypothesis import strategies as st

from pipeline.runtime.subtask.steps.pacing import RatePacer
from pipeline.testing import ManualClock

BURST_S = 0.1
"""Of the rate, which may be saved up."""


class Paced:
    """A task that pushes records for as long as it may, and then waits."""

    def __init__(self, rate: float) -> None:
        self.clock = ManualClock(1000.0)
        self.passed: list[float] = []
        self.interrupts = 0
        self.pacer = RatePacer("its rate", rate, self._pass, self.clock, self._interrupt)

    def _pass(self, value: Any) -> None:
        self.passed.append(self.clock())

    def _interrupt(self) -> None:
        self.interrupts += 1

    def push(self, records: int = 1) -> None:
        """One record of the input, of which `records` come here."""
        for _ in range(records):
            self.pacer.push(None)

    def wait(self) -> int:
        """Until the next record may come; the number of waits."""
        waits = 0
        while (left := self.pacer.seconds_left(self.clock())) > 0:
            self.clock.advance(max(left, 1e-6))
            waits += 1
            assert waits < 10
        return waits


@given(st.floats(0.5, 5000), st.lists(st.tuples(st.integers(1, 30), st.floats(0, 2)), min_size=1, max_size=60))
def test_no_more_than_the_rate_passes_but_for_the_burst_and_what_comes_of_one_record(
    rate: float, input_: list[tuple[int, float]]
) -> None:
    paced = Paced(rate)
    for records, pause in input_:
        paced.wait()
        paced.push(records)
        paced.clock.advance(pause)
    allowed = max(1.0, rate * BURST_S) + max(records for records, _ in input_)
    times = paced.passed
    for i, first in enumerate(times):
        for j in range(i, len(times)):
            assert j - i <= rate * (times[j] - first) * 1.001 + allowed


@pytest.mark.parametrize("rate", [0.5, 7, 100, 1234.5, 50_000])
def test_a_step_that_always_has_records_reaches_its_rate(rate: float) -> None:
    paced = Paced(rate)
    began = paced.clock()
    waits = 0
    while len(paced.passed) < max(20, 3 * rate):
        waits += paced.wait()
        paced.push()
    seconds = paced.clock() - began
    assert len(paced.passed) / seconds == pytest.approx(rate, rel=0.06)
    assert waits / seconds < 205, "about every 10 ms at most, and once more where rounding leaves a rest"


def test_it_interrupts_the_record_loop_once_and_says_since_when_it_waits() -> None:
    paced = Paced(2.0)
    assert paced.pacer.waits_since(paced.clock()) is None
    paced.push()
    assert paced.interrupts == 1
    since = paced.clock()
    paced.push()
    assert paced.interrupts == 1, "it has said so"
    for _ in range(5):
        paced.wait()
        paced.push()
    assert paced.pacer.waits_since(paced.clock()) == since, "as long as it holds up one record after the other"
    paced.wait()
    paced.clock.advance(60)
    assert paced.pacer.seconds_left(paced.clock()) == 0
    assert paced.pacer.waits_since(paced.clock()) is None
    paced.push()
    assert paced.pacer.waits_since(paced.clock()) == paced.clock()


def test_what_passes_at_once_is_made_up_for() -> None:
    paced = Paced(10.0)
    paced.push(101)
    assert paced.pacer.seconds_left(paced.clock()) == pytest.approx(10.1)


def test_the_subtasks_share_the_rate_and_records_pass_unchanged() -> None:
    clock, emitted, interrupts = ManualClock(5.0), [], []
    chain, _ = chain_of(
        lambda s: s.limit_rate(10, "slow", parallelism=4),
        {("slow", None): [emitted.append]},
        vertex=1,
        clock=clock,
        interrupt=lambda: interrupts.append(clock()),
    )
    (pacer,) = chain.pacers
    assert pacer.what == "the rate of 10 records/s that limit_rate 'slow' allows"
    chain.push({"a": [1]})
    assert emitted == [{"a": [1]}]
    assert interrupts == [5.0]
    assert pacer.seconds_left(clock()) == pytest.approx(4 / 10)
