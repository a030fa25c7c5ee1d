"""The gate by its window: when it asks, closes and opens, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from option_values import gate_options

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator_events import Heartbeat
from checkpoint.gate.gate_events import (
    AskForCheckpoint,
    BarrierPassed,
    BarrierTaken,
    CheckpointResolved,
    CloseGate,
    Emitted,
    HeartbeatReceived,
    OpenGate,
    ReadingBegins,
    TakeBarrier,
    Tick,
)
from checkpoint.gate.gate_options import GateOptions
from checkpoint.gate.source_gate import SourceGate

CHECKPOINT, SAVEPOINT = CheckpointKind.CHECKPOINT, CheckpointKind.SAVEPOINT


def options(**changed: Any) -> GateOptions:
    """H = 10 s, a window of 1,000 records at the start."""
    return gate_options(**{"interval": 10.0, "alignment": "aligned", "slow_storage_span": 60.0, **changed})


def make(**changed: Any) -> SourceGate:
    return SourceGate(options(**changed), 0.0)


def test_it_asks_at_four_fifths_and_closes_when_the_window_is_used_up() -> None:
    gate = make()
    assert gate.window_records == gate.record_allowance() == 1_000
    assert gate.handle(Emitted(799, 0), 0.1) == []
    assert gate.handle(Emitted(1, 0), 0.2) == [AskForCheckpoint(0)]
    (closed,) = gate.handle(Emitted(200, 0), 0.3)
    assert isinstance(closed, CloseGate)
    assert "window of 1,000 records used up" in closed.reason
    assert gate.handle(BarrierTaken(1, CHECKPOINT), 0.4) == [OpenGate()]


def test_beyond_the_window_it_asks_as_near_its_end() -> None:
    gate = make()
    gate.handle(Emitted(1_000, 0), 0.5)
    gate.handle(BarrierTaken(1, CHECKPOINT), 0.5)
    gate.handle(BarrierPassed(1, 0.1, 1_000.0, 1_000.0), 0.6)
    assert gate.window_records == 2_000
    gate.handle(Tick(), 10.0)
    assert gate.handle(Emitted(1_599, 0), 10.1) == []
    assert gate.handle(Emitted(1, 0), 10.2) == [AskForCheckpoint(1)]


def test_it_does_not_ask_for_a_checkpoint_when_it_hears_of_one() -> None:
    gate = make()
    gate.handle(Emitted(700, 0), 0.1)
    actions = gate.handle(HeartbeatReceived(Heartbeat(((1, CHECKPOINT),), 0.5, None)), 1.0)
    assert actions[0] == TakeBarrier(1, CHECKPOINT)
    assert not any(isinstance(action, AskForCheckpoint) for action in actions)


def test_its_reason_is_the_maximum_only_if_that_is_reached_and_names_the_barriers_in_progress() -> None:
    gate = make(max_concurrent=2)
    for n in (1, 2, 3):
        gate.handle(Emitted(1_000, 0), n + 0.1)
        gate.handle(BarrierTaken(n, CHECKPOINT), n + 0.2)
        gate.handle(CheckpointResolved(1, completed=False), n + 0.3)
        gate.handle(Emitted(1_000, 0), n + 0.4)
        maximum = "at their maximum" in str(gate.reason)
        assert maximum == (n == 3)
    assert "in front of barrier 2, 3" in str(gate.reason)


def test_a_limit_of_the_user_remains_a_hard_bound() -> None:
    gate = make(max_span_records=10, max_concurrent=1)
    assert gate.record_allowance() == 10
    gate.handle(Emitted(10, 0), 0.1)
    gate.handle(BarrierTaken(1, CHECKPOINT), 0.2)
    gate.handle(BarrierPassed(1, 0.1, 1_000.0, 1_000.0), 0.3)
    gate.handle(Emitted(10, 0), 0.4)
    assert "span of 10 records" in str(gate.reason)
    assert gate.next_deadline(0.4) is None
    gate.handle(Tick(), 30.0)
    assert not gate.is_open


def test_windows_and_limits_of_one_record_say_so() -> None:
    gate = make(first_window=1)
    assert gate.window_change == "began with 1 record"
    gate.handle(Emitted(1, 0), 0.1)
    assert str(gate.reason).startswith("window of 1 record used up")
    gate = make(max_span_records=1)
    gate.handle(Emitted(1, 0), 0.1)
    assert str(gate.reason).startswith("span of 1 record used up")


def test_bytes_remain_a_hard_bound() -> None:
    gate = make(max_span_bytes=50)
    (asked, closed) = gate.handle(Emitted(1, 50), 0.1)
    assert isinstance(asked, AskForCheckpoint)
    assert isinstance(closed, CloseGate)
    assert "50 bytes" in closed.reason


@pytest.mark.parametrize("changed", [{"window": False}, {"enabled": False}, {"interval": None}])
def test_there_is_none_without_it(changed: dict[str, Any]) -> None:
    gate = make(**changed)
    assert (gate.window_records, gate.window_change, gate.record_allowance()) == (None, None, None)
    assert gate.handle(Emitted(10**6, 10**6), 0.1) == []


@pytest.mark.parametrize(("span", "held_up", "busy"), [(499, False, False), (500, False, True), (0, True, True)])
def test_a_source_is_busy_that_would_have_emitted_more(span: int, held_up: bool, busy: bool) -> None:
    gate = make()
    gate.handle(Emitted(span, 0), 0.1)
    assert gate.busy(held_up) == busy
    gate = make(window=False)
    gate.handle(Emitted(span, 0), 0.1)
    assert not gate.busy(held_up)


def test_a_savepoints_barrier_is_not_the_windows() -> None:
    gate = make()
    gate.handle(Emitted(900, 0), 0.1)
    gate.handle(BarrierTaken(1, SAVEPOINT), 0.2)
    gate.handle(BarrierPassed(1, 0.1, 1_000.0, 1_000.0), 0.3)
    assert gate.window_records == 1_000
    assert gate.record_allowance() == 100


def test_a_heartbeat_tells_what_a_lost_message_would_have() -> None:
    gate = make()
    gate.handle(Emitted(900, 0), 0.1)
    gate.handle(BarrierTaken(1, CHECKPOINT), 0.2)
    for _ in range(2):
        gate.handle(HeartbeatReceived(Heartbeat(((1, CHECKPOINT),), 1.0, None, ((1, 0.1, 900.0, 900.0),))), 1.2)
        assert gate.window_records == 2_000


def test_an_aborted_checkpoint_acknowledges_nothing() -> None:
    gate = make()
    gate.handle(Emitted(900, 0), 0.1)
    gate.handle(BarrierTaken(1, CHECKPOINT), 0.2)
    gate.handle(CheckpointResolved(1, completed=False), 0.3)
    assert gate.window_records == 1_000
    gate.handle(Emitted(1_000, 0), 5.0)
    gate.handle(Tick(), 9.0)
    assert not gate.is_open, "its barrier may still be on the way, so there is no pace"
    gate.handle(BarrierTaken(2, CHECKPOINT), 10.0)
    gate.handle(BarrierPassed(2, 0.1, 1_000.0, 1_000.0), 10.1)
    assert gate.window_records == 2_000


def test_expiries_shorten_the_time_and_hard_limits_but_not_the_window() -> None:
    """It may have been the storage; what operators are too slow for it learns by itself."""
    gate = make(max_span_bytes=400)
    gate.handle(HeartbeatReceived(Heartbeat((), 0.25, None)), 0.1)
    assert gate.record_allowance() == 1_000
    gate.handle(Emitted(1, 1), 0.2)
    assert gate.next_deadline(0.2) == pytest.approx(11.0 / 4)


def test_a_barrier_that_expires_while_it_is_under_way_halves_the_window() -> None:
    gate = make()
    gate.handle(Emitted(900, 0), 0.5)
    gate.handle(BarrierTaken(1, CHECKPOINT), 1.0)
    gate.handle(CheckpointResolved(1, completed=False), 11.0)
    assert gate.window_records == 1_000, "that is bearable"
    gate.handle(BarrierTaken(2, CHECKPOINT), 12.0)
    gate.handle(CheckpointResolved(2, completed=False), 22.1)
    assert gate.window_records == 500
    assert "shrank from 1,000 to 500 records at checkpoint 2, which ended after 10.1 s" in str(gate.window_change)
    gate.handle(BarrierTaken(3, CHECKPOINT), 23.0)
    gate.handle(BarrierPassed(3, 6.0, 0.0, 0.0), 29.0)
    gate.handle(CheckpointResolved(3, completed=False), 60.0)
    assert gate.window_records == 500, "it had passed: storage was slow"


def test_a_gate_closed_by_its_window_opens_at_the_pace_once_the_barrier_has_passed() -> None:
    """1,000 records are processed in a second; so many go on coming, a fifth of a second after the other."""
    gate = make(max_concurrent=1)
    gate.handle(Emitted(1_000, 0), 0.5)
    gate.handle(BarrierTaken(1, CHECKPOINT), 0.5)
    gate.handle(Emitted(1_000, 0), 0.6)
    assert not gate.is_open
    assert "waits for operators" in str(gate.reason)
    assert gate.next_deadline(0.6) is None
    gate.handle(BarrierPassed(1, 0.5, 1_000.0, 1_000.0), 1.0)
    assert gate.window_records == 1_250
    assert gate.is_open
    gate.handle(Emitted(1_000, 0), 1.2)
    assert not gate.is_open
    assert "waits for storage" in str(gate.reason)
    deadline = gate.next_deadline(1.2)
    assert deadline is not None
    assert gate.handle(Tick(), deadline - 0.01) == []
    assert gate.handle(Tick(), deadline) == [OpenGate()]
    allowance = gate.record_allowance()
    assert allowance is not None
    assert 100 <= allowance <= 150, "a tenth of a second's worth at least, so that it doesn't flutter"


@pytest.mark.parametrize("start", [0.0, 1_234_567.89])
def test_it_opens_at_its_deadline_however_numbers_round(start: float) -> None:
    gate, now = SourceGate(options(max_concurrent=1), start), start + 0.7
    gate.handle(Emitted(777, 0), now)
    gate.handle(BarrierTaken(1, CHECKPOINT), now)
    gate.handle(BarrierPassed(1, 0.3, 777.0, 777.0), now + 0.3)
    for _ in range(20):
        allowance = gate.record_allowance()
        assert allowance
        gate.handle(Emitted(allowance, 0), now + 0.3)
        deadline = gate.next_deadline(now + 0.3)
        assert not gate.is_open
        assert deadline is not None
        assert deadline > now
        assert OpenGate() in gate.handle(Tick(), deadline)
        now = deadline - 0.3


def test_a_checkpoint_that_is_complete_has_passed_whatever_was_lost() -> None:
    gate = make(max_concurrent=1)
    gate.handle(Emitted(600, 0), 0.5)
    gate.handle(BarrierTaken(1, CHECKPOINT), 0.5)
    gate.handle(Emitted(1_000, 0), 0.6)
    assert not gate.is_open
    gate.handle(CheckpointResolved(1, completed=True), 0.8)
    assert gate.window_records == 2_000
    assert gate.is_open


def test_the_window_learns_from_the_time_on_that_reading_begins() -> None:
    gate = make(max_concurrent=1)
    gate.handle(ReadingBegins(), 100.0)
    gate.handle(Emitted(1_000, 0), 101.0)
    gate.handle(BarrierTaken(1, CHECKPOINT), 101.0)
    gate.handle(BarrierPassed(1, 7.0, 1_000.0, 1_000.0), 108.0)
    gate.handle(Tick(), 109.0)
    assert gate.record_allowance() == 1_000  # a span of 8 s at 125 a second
    gate.handle(Tick(), 111.0)
    assert gate.record_allowance() == 1_250


def test_without_a_window_only_a_barrier_opens_it() -> None:
    gate = make(window=False)
    gate.handle(HeartbeatReceived(Heartbeat((), 1.0, None)), 0.0)
    gate.handle(Tick(), 12.0)
    assert not gate.is_open
    assert gate.handle(HeartbeatReceived(Heartbeat((), 0.5, None)), 12.1) == []
    assert gate.handle(Tick(), 13.0) == []
    assert gate.next_deadline(13.0) is None
    assert gate.handle(BarrierTaken(1, CHECKPOINT), 14.0) == [OpenGate()]


def test_slow_storage_alone_closes_it_after_a_span_of_its_own() -> None:
    gate = make(max_concurrent=1)
    gate.handle(ReadingBegins(), 0.0)
    gate.handle(Emitted(600, 0), 1.0)
    gate.handle(BarrierTaken(1, CHECKPOINT), 1.0)
    gate.handle(BarrierPassed(1, 0.1, 1_000.0, 1_000.0), 1.1)
    gate.handle(Tick(), 60.9)
    assert gate.is_open
    assert gate.next_deadline(60.9) == pytest.approx(61.0)
    (closed,) = gate.handle(Tick(), 61.0)
    assert isinstance(closed, CloseGate)
    assert "span of 60 s used up" in closed.reason
    assert "waits for storage" in closed.reason
    assert gate.next_deadline(61.0) is None


def test_slow_operators_close_it_after_an_ordinary_span_and_a_barrier_that_passes_then_opens_it() -> None:
    gate = make(max_concurrent=1)
    gate.handle(BarrierTaken(1, CHECKPOINT), 1.0)
    (closed,) = gate.handle(Tick(), 12.0)
    assert isinstance(closed, CloseGate)
    assert "span of 11 s used up" in closed.reason
    assert "waits for operators" in closed.reason
    assert gate.handle(BarrierPassed(1, 9.0, 1_000.0, 1_000.0), 13.0) == [OpenGate()]
    assert gate.next_deadline(13.0) == pytest.approx(62.0)


def test_a_barrier_that_passes_too_late_opens_nothing() -> None:
    gate = make(max_concurrent=1)
    gate.handle(BarrierTaken(1, CHECKPOINT), 1.0)
    gate.handle(Tick(), 12.0)
    assert gate.handle(BarrierPassed(1, 12.0, 1_000.0, 1_000.0), 13.0) == []


def test_without_an_extra_span_slow_storage_closes_it_like_anything_else() -> None:
    gate = make(max_concurrent=1, slow_storage_span=0.0)
    gate.handle(BarrierTaken(1, CHECKPOINT), 1.0)
    gate.handle(BarrierPassed(1, 0.1, 1_000.0, 1_000.0), 1.1)
    (closed,) = gate.handle(Tick(), 12.0)
    assert isinstance(closed, CloseGate)
    assert "waits for storage" in closed.reason


# -- any schedule -------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.floats(0.0, 4.0),
        st.sampled_from(["fetch", "fetch", "fetch", "tick", "barrier", "passed", "completed", "aborted", "heartbeat"]),
        st.integers(1, 40),
    ),
    max_size=60,
)


@given(steps, st.sampled_from([None, 30]), st.sampled_from([0.0, 3.0]), st.integers(1, 3))
@settings(max_examples=300)
def test_what_it_emits_keeps_to_the_window_and_it_says_why_it_is_closed(
    schedule: list[tuple[float, str, int]], hard: int | None, storage_span: float, at_a_time: int
) -> None:
    given_options = gate_options(
        interval=1.0, max_concurrent=at_a_time, slow_storage_span=storage_span, max_span_records=hard, first_window=10
    )
    gate = SourceGate(given_options, 0.0)
    now, last, span = 0.0, 0, 0
    under_way: list[int] = []
    for elapsed, step, n in schedule:
        deadline = gate.next_deadline(now)
        if deadline is not None and deadline < now + elapsed:
            now, elapsed = deadline, now + elapsed - deadline
            gate.handle(Tick(), now)
        now += elapsed
        if step == "fetch":
            allowance = gate.record_allowance()
            assert (allowance == 0) == (not gate.is_open)
            if allowance:
                count = min(n, allowance)
                span += count
                gate.handle(Emitted(count, 0), now)
        elif step == "barrier":
            last += 1
            under_way.append(last)
            gate.handle(BarrierTaken(last, CHECKPOINT), now)
            assert gate.is_open
            span = 0
        elif step == "passed" and under_way:
            under_way = under_way[1:] if n % 2 else []
            gate.handle(BarrierPassed(last - len(under_way), n / 20, 10.0 * n, 10.0 * n), now)
        elif step in ("completed", "aborted") and last:
            gate.handle(CheckpointResolved(last, completed=step == "completed"), now)
            if step == "completed":
                under_way = []
        elif step == "heartbeat":
            gate.handle(HeartbeatReceived(Heartbeat(tuple((m, CHECKPOINT) for m in under_way), 1.0, None)), now)
        else:
            gate.handle(Tick(), now)
        assert gate.window_records is not None
        assert gate.window_records >= 1
        assert gate.span_records == span
        assert hard is None or span <= hard
        assert (gate.reason is None) == gate.is_open
        if not gate.is_open:
            again = gate.next_deadline(now)
            assert again is None or again >= now
