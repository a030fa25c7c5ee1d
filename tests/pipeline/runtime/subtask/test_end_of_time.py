"""The end of event time: timers that set each other come to an end, and nothing fires that isn't due."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.event_time.combiner import WatermarkCombiner
from checkpoint.state.timers import AT_END
from pipeline import KeyedOperator, ListState, ValueState
from pipeline.testing import OperatorHarness


class Periodic(KeyedOperator):
    """Tells the time every ten milliseconds."""

    def process(self, value: int, ctx: Any) -> None:
        ctx.timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        ctx.timer(timestamp + 10)
        yield timestamp


class Extended(KeyedOperator):
    """A session whose timer looks whether the session goes on, instead of being set anew for each record."""

    until = ValueState(default=0)

    def process(self, value: int, ctx: Any) -> None:
        if not self.until.value:
            ctx.timer(value + 10)
        self.until.value = max(self.until.value, value + 10)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if timestamp < self.until.value:
            ctx.timer(self.until.value)
        else:
            yield [ctx.key, timestamp]
            self.until.clear()


class Beyond(Periodic):
    """Takes the watermark for the time."""

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        ctx.timer(ctx.watermark + 60_000)
        yield timestamp


def test_periodic_timers_end_with_event_time() -> None:
    harness = OperatorHarness(Periodic())
    for key in "ab":
        harness.process(10, key=key)
    assert len(harness.watermark(95)) == 2 * 9
    fired = harness.watermark(MAX_WATERMARK)
    assert len(fired) == 2 * (1 + AT_END)
    assert harness.timers_dropped == 2
    assert harness.watermark(MAX_WATERMARK) == []


def test_timers_that_set_others_a_few_times_all_fire_at_the_end() -> None:
    harness = OperatorHarness(Extended())
    for at in (0, 5, 12):
        harness.process(at, key="a")
    assert harness.watermark(MAX_WATERMARK) == [["a", 22]]
    assert harness.timers_dropped == 0


class Delayed(KeyedOperator):
    """Gives each record half an hour later, with one timer a key: each sets the next one."""

    waiting = ListState[int]()

    def process(self, value: int, ctx: Any) -> None:
        self.waiting.append(value)
        if len(self.waiting) == 1:
            ctx.timer(value + 1_800_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        first, *others = self.waiting.get()
        self.waiting.update(others)
        if others:
            ctx.timer(others[0] + 1_800_000)
        yield first


@settings(max_examples=30)
@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 60), min_size=1),
    st.integers(1, 60_000),
    st.integers(0, 3_000_000),
)
def test_a_queue_whose_timers_set_each_other_gets_empty_at_the_end(
    lengths: dict[str, int], gap: int, more: int
) -> None:
    harness = OperatorHarness(Delayed())
    values = {key: [i * gap for i in range(length)] for key, length in lengths.items()}
    for at, key in sorted((at, key) for key, times in values.items() for at in times):
        harness.process(at, key=key, timestamp=at)
    harness.watermark(max(times[-1] for times in values.values()) + more)  # as in front of a job's end
    harness.end_of_input()
    assert sorted(harness.outputs) == sorted(at for times in values.values() for at in times)
    assert harness.timers_dropped == 0


def test_periodic_timers_beside_long_ones_end_too() -> None:
    class Both(Periodic):
        def process(self, value: int, ctx: Any) -> None:
            ctx.timer(value + 10)
            ctx.timer(value + 1_000)

    harness = OperatorHarness(Both())
    harness.process(0, key="a", timestamp=0)
    harness.watermark(0)
    assert len(harness.end_of_input()) == 100 + AT_END
    assert harness.timers_dropped == 1


def test_a_timer_that_sets_itself_at_the_end_is_dropped() -> None:
    class Itself(Periodic):
        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            ctx.timer(timestamp)
            yield timestamp

    harness = OperatorHarness(Itself())
    harness.process(500, key="a", timestamp=0)
    harness.watermark(0)
    assert len(harness.end_of_input()) == 1 + AT_END


class FromTheWatermark(Periodic):
    def process(self, value: int, ctx: Any) -> None:
        ctx.timer(value if ctx.watermark is None else ctx.watermark + 60_000)


def test_a_timer_beyond_the_end_of_event_time_is_refused_before_the_end_and_dropped_behind_it() -> None:
    for operator in (Beyond(), FromTheWatermark()):
        harness = OperatorHarness(operator)
        with pytest.raises(ValueError, match="64 bits"):
            harness.process(MAX_WATERMARK + 1, key="a")
        harness.process(10, key="a")
        harness.watermark(MAX_WATERMARK)
        dropped = harness.timers_dropped
        assert dropped == 1
        harness.process(MAX_WATERMARK + 1, key="a")
        assert harness.timers_dropped == dropped + 1
        again = OperatorHarness.restore(type(operator)(), harness.snapshot())
        again.process(MAX_WATERMARK + 1, key="a")
        assert again.timers_dropped == 1


@pytest.mark.parametrize("at", [MAX_WATERMARK + 1, -(2**63) - 1, 1.5, True, None])
def test_the_harness_takes_only_watermarks_that_there_can_be(at: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="watermark"):
        OperatorHarness(Periodic()).watermark(at)


def test_timers_that_records_set_behind_the_end_fire_once() -> None:
    harness = OperatorHarness(Extended())
    harness.watermark(MAX_WATERMARK)
    harness.process(100, key="a")
    assert harness.advance_time(0) == [["a", 110]]
    assert harness.advance_time(0) == []


class ByTheClock(KeyedOperator):
    def process(self, value: int, ctx: Any) -> None:
        ctx.processing_timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        ctx.processing_timer(timestamp + 10)
        yield timestamp


def test_processing_time_ends_with_the_input() -> None:
    harness = OperatorHarness(ByTheClock())
    harness.process(1_000, key="a")
    assert harness.advance_time(1.05) == list(range(1_000, 1_051, 10))
    harness.end_of_input()
    assert harness.advance_time(100) == []


# -- the end of the data comes before the end of time ---------------------------------------------------------------


def pass_all(one: WatermarkCombiner) -> list[int]:
    passed = []
    while one.pending is not None:
        reached = one.reached
        assert reached is not None
        passed.append(reached)
        one.passed(reached)
    return passed


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 100) | st.none(), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_event_time_reaches_the_end_of_the_data_whoever_ends_first(
    last: list[int | None], order: Any, restart: bool
) -> None:
    one = WatermarkCombiner(range(len(last)))
    channels = list(range(len(last)))
    order.shuffle(channels)
    passed = []
    for channel in channels:
        told = last[channel]
        if told is not None:
            one.on_watermark(channel, told)
        if order.random() < 0.5:
            passed += pass_all(one)
        one.on_end(channel)
    if restart:
        state = one.snapshot()
        one = WatermarkCombiner(range(len(last)))
        one.restore([state], True, ())
    passed += pass_all(one)
    highest = max((told for told in last if told is not None), default=None)
    assert passed[-1] == MAX_WATERMARK
    assert passed == sorted(set(passed))
    if highest is not None:
        assert passed[-2] == highest
