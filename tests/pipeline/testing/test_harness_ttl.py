"""State with a time to live, in an `OperatorHarness`: what a user tests it with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline import TTL, KeyedOperator, MapState, ValueState
from pipeline.testing import ManualClock, OperatorHarness


class Firsts(KeyedOperator):
    seen = ValueState(default=False, ttl=60)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        if not self.seen.value:
            self.seen.value = True
            yield value


def test_processing_time_passes_when_the_test_says_so() -> None:
    harness = OperatorHarness(Firsts())
    assert [harness.process(i, key="a") for i in range(2)] == [[0], []]
    harness.advance_time(59.999)
    assert harness.process(2, key="a") == []
    harness.advance_time(0.001)
    assert harness.process(3, key="a") == [3]


def test_time_may_be_moved_on_the_clock_itself() -> None:
    clock = ManualClock(1000)
    harness = OperatorHarness(Firsts(), clock=clock)
    assert harness.process(0, key="a") == [0]
    clock.advance(60)
    assert harness.process(1, key="a") == [1]
    clock.advance(60)
    restored = OperatorHarness.restore(Firsts(), harness.snapshot(), clock=ManualClock(1000))
    assert restored.process(2, key="a") == [2], "it was over at the snapshot"


def test_the_time_between_two_runs_counts() -> None:
    harness = OperatorHarness(Firsts(), clock=ManualClock(1000))
    harness.process(0, key="a")
    snapshot = harness.snapshot()
    for at, expected in [(1059, []), (1060, [1])]:
        assert OperatorHarness.restore(Firsts(), snapshot, clock=ManualClock(at)).process(1, key="a") == expected


class Sessions(KeyedOperator):
    """Counts records, and emits the count at the time that a record names."""

    count = ValueState(default=0, ttl=TTL(10, time="event"))

    def process(self, value: Any, ctx: Any) -> None:
        self.count.value += 1
        ctx.timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield timestamp, ctx.key, self.count.value


def test_what_an_event_timer_sees_doesnt_depend_on_how_far_the_watermark_moves_at_once() -> None:
    for watermarks in [[30_000], [4000, 9999, 10_000, 30_000], [2**63 - 1]]:
        harness = OperatorHarness(Sessions())
        harness.process(9999, key="a", timestamp=0)
        harness.process(10_000, key="b", timestamp=0)
        harness.process(12_000, key="c", timestamp=5000)
        for watermark in watermarks:
            harness.watermark(watermark)
        assert harness.outputs == [(9999, "a", 1), (10_000, "b", 0), (12_000, "c", 1)]


def test_a_timer_for_the_end_of_input_sees_what_lives_then() -> None:
    harness = OperatorHarness(Sessions())
    harness.process(2**63 - 1, key="a", timestamp=0)
    harness.watermark(9000)
    harness.end_of_input()
    assert harness.outputs == [(2**63 - 1, "a", 1)]
    restored = OperatorHarness.restore(Sessions(), harness.snapshot())
    restored.process(2**63 - 1, key="a", timestamp=1)
    restored.end_of_input()
    assert restored.outputs == [(2**63 - 1, "a", 2)]


def test_event_time_of_a_restored_operator_goes_on() -> None:
    harness = OperatorHarness(Sessions())
    harness.watermark(5000)
    harness.process(20_000, key="a", timestamp=0)
    restored = OperatorHarness.restore(Sessions(), harness.snapshot())
    restored.process(14_000, key="b")  # without a timestamp: the watermark counts
    restored.watermark(30_000)
    assert restored.outputs == [(14_000, "b", 1), (20_000, "a", 0)]


class Reminders(KeyedOperator):
    """Emits half a minute later what came last; state lives for a minute."""

    last = ValueState[Any](ttl=60)
    fired = ValueState(default=0, ttl=60)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value is None:
            yield self.last.value, self.fired.value
        else:
            self.last.value = value
            ctx.processing_timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        self.fired.value += 1
        yield ctx.key, self.last.value


def test_timers_that_were_due_while_no_job_ran_see_what_lived_when_they_were_due() -> None:
    harness = OperatorHarness(Reminders(), clock=ManualClock(0))
    harness.process(30_000, key="a")
    harness.process(70_000, key="b")
    restored = OperatorHarness.restore(Reminders(), harness.snapshot(), clock=ManualClock(7200))
    restored.advance_time(0)
    assert restored.outputs == [("a", 30_000), ("b", None)]
    assert restored.process(None, key="a") == [(None, 1)], "a write in on_timer is of now, not of the timer's time"
    restored.advance_time(59)
    assert restored.process(None, key="a") == [(None, 1)]
    restored.advance_time(1)
    assert restored.process(None, key="a") == [(None, 0)]


class Seen(KeyedOperator):
    names = MapState[str, int](ttl=TTL(10, refresh="read_and_write"))

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value not in self.names:
            self.names[value] = 1
            yield value


def test_being_asked_for_lets_an_entry_live_on() -> None:
    harness = OperatorHarness(Seen())
    harness.process("x", key="a")
    harness.process("y", key="a")
    for _ in range(3):
        harness.advance_time(9)
        assert harness.process("x", key="a") == []
    assert harness.process("y", key="a") == ["y"]


def test_an_operator_gets_and_loses_its_time_to_live_between_two_runs() -> None:
    class Kept(KeyedOperator):
        seen = ValueState(default=False)
        process = Firsts.process

    harness = OperatorHarness(Kept())
    harness.process(0, key="a")
    timed = OperatorHarness.restore(Firsts(), harness.snapshot(), clock=ManualClock(500))
    timed.advance_time(59)
    assert timed.process(1, key="a") == []
    kept = OperatorHarness.restore(Kept(), timed.snapshot(), clock=ManualClock(10**6))
    assert kept.process(2, key="a") == []
    timed.advance_time(1)
    assert timed.process(3, key="a") == [3]
