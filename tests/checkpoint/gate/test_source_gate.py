"""The source gate: closes when the span is used up, opens at a barrier, survives lost messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from option_values import gate_options

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination.coordinator_events import Heartbeat
from checkpoint.gate.gate_events import (
    Action,
    AskForCheckpoint,
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
from checkpoint.gate.source_gate import SourceGate

CHECKPOINT, SAVEPOINT, FINAL = CheckpointKind.CHECKPOINT, CheckpointKind.SAVEPOINT, CheckpointKind.FINAL


def make(**options: Any) -> SourceGate:
    """A gate with interval 10 s and so a span of 11 s, by time and limits only, started at 0."""
    return SourceGate(gate_options(**{"interval": 10.0, "window": False, **options}), 0.0)


def heartbeat(*ids: int, scale: float = 1.0, held_back: str | None = None, savepoint: int = 0) -> HeartbeatReceived:
    kinds = tuple((n, SAVEPOINT if n == savepoint else CHECKPOINT) for n in ids)
    return HeartbeatReceived(Heartbeat(kinds, scale, held_back))


def close_by_time(gate: SourceGate, now: float = 11.0) -> str:
    (action,) = gate.handle(Tick(), now)
    assert isinstance(action, CloseGate)
    return action.reason


# -- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "min_pause", "span"),
    [(10.0, 0.0, 11.0), (10.0, 10.0, 22.0), (2.0, 4.0, 6.6), (1.0, 0.0, 1.25), (0.1, 0.1, 0.45)],
)
def test_span_is_interval_plus_min_pause_plus_ten_percent_and_at_least_a_quarter_second(
    interval: float, min_pause: float, span: float
) -> None:
    assert gate_options(interval=interval, min_pause=min_pause).span_seconds == pytest.approx(span)


def test_without_interval_there_is_no_span() -> None:
    assert gate_options(interval=None).span_seconds is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_span_records", 0),
        ("max_span_records", True),
        ("max_span_bytes", 1.5),
        ("first_window", 0),
        ("window", 1),
        ("enabled", None),
    ],
)
def test_a_wrong_option_is_refused_by_name(option: str, value: Any) -> None:
    names = {"window": "span_window", "enabled": "active_backpressure"}
    with pytest.raises(ValueError, match=names.get(option, option)):
        gate_options(**{"interval": 10.0, option: value})


def test_switching_the_gate_off_warns_of_the_span_that_a_checkpoint_may_then_have() -> None:
    warning = gate_options(interval=10.0, timeout=300.0, max_concurrent=2, enabled=False).warning
    assert warning is not None
    assert "timeout − max_concurrent × interval = 300 − 2 × 10 = 280 s" in warning
    assert gate_options(interval=10.0).warning is None
    assert gate_options(interval=None, enabled=False).warning is None


# -- closing by time ----------------------------------------------------------------------------------------------


def test_closes_when_the_span_is_over_and_not_before() -> None:
    gate = make()
    assert gate.next_deadline(0.0) == 11.0
    assert gate.handle(Tick(), 10.99) == []
    assert gate.is_open
    close_by_time(gate)
    assert not gate.is_open
    assert gate.next_deadline(11.0) is None


def test_before_the_first_checkpoint_the_span_counts_from_the_start() -> None:
    gate = SourceGate(gate_options(interval=10.0), 100.0)
    assert gate.next_deadline(100.0) == 111.0


def test_a_barrier_opens_it_and_refills_the_span() -> None:
    gate = make()
    gate.handle(Emitted(50, 500), 5.0)
    assert (gate.span_records, gate.span_bytes) == (50, 500)
    close_by_time(gate)
    assert gate.handle(BarrierTaken(1, CHECKPOINT), 30.0) == [OpenGate()]
    assert (gate.is_open, gate.reason, gate.span_records, gate.span_bytes) == (True, None, 0, 0)
    assert gate.next_deadline(30.0) == 41.0


def test_the_final_checkpoint_refills_as_well() -> None:
    gate = make()
    close_by_time(gate)
    assert gate.handle(BarrierTaken(1, FINAL), 30.0) == [OpenGate()]


def test_a_savepoint_does_not_refill_the_span() -> None:
    gate = make()
    gate.handle(Emitted(50, 500), 5.0)
    assert gate.handle(BarrierTaken(1, SAVEPOINT), 6.0) == []
    assert gate.span_records == 50
    assert gate.next_deadline(6.0) == 11.0
    close_by_time(gate)
    assert gate.handle(BarrierTaken(2, SAVEPOINT), 12.0) == []
    assert not gate.is_open


def test_a_resolution_alone_does_not_open_it() -> None:
    gate = make()
    gate.handle(BarrierTaken(1, CHECKPOINT), 0.0)
    close_by_time(gate)
    assert gate.handle(CheckpointResolved(1, completed=True), 12.0) == []
    assert gate.handle(heartbeat(), 12.0) == []
    assert not gate.is_open


def test_time_closed_does_not_count() -> None:
    gate = make(max_span_records=10)
    gate.handle(Emitted(10, 0), 1.0)
    assert not gate.is_open
    gate.handle(BarrierTaken(1, CHECKPOINT), 100.0)
    gate.handle(Tick(), 105.0)
    assert gate.statistics(105.0).closed_seconds == 99.0
    assert gate.next_deadline(105.0) == 111.0


def test_closed_seconds_runs_while_closed() -> None:
    gate = make()
    close_by_time(gate)
    assert gate.statistics(14.0).closed_seconds == 3.0
    gate.handle(BarrierTaken(1, CHECKPOINT), 15.0)
    assert gate.statistics(20.0).closed_seconds == 4.0


def test_a_clock_read_by_another_thread_may_lag_a_little() -> None:
    gate = make()
    gate.handle(Tick(), 5.0)
    gate.handle(Emitted(1, 1), 4.9)
    assert gate.next_deadline(5.0) == 11.0


def test_a_healthy_job_never_closes_it() -> None:
    gate = make(interval=2.0)
    actions: list[Action] = []
    now = 0.0
    for n, jitter in zip(range(1, 100), [0.0, 0.2, -0.2, 0.1] * 30, strict=False):
        now += 2.0 + jitter
        actions += gate.handle(Emitted(1000, 1000), now)
        actions += gate.handle(BarrierTaken(n, CHECKPOINT), now)
        actions += gate.handle(CheckpointResolved(n, completed=True), now + 0.5)
    assert actions == []
    assert gate.statistics(now).closed_seconds == 0.0


@pytest.mark.parametrize("options", [{"interval": None}, {"enabled": False}])
def test_without_checkpoints_or_switched_off_it_only_counts(options: dict[str, Any]) -> None:
    gate = make(max_span_records=10, max_span_bytes=10, **options)
    assert gate.next_deadline(0.0) is None
    assert gate.handle(Emitted(100, 100), 1000.0) == []
    assert gate.is_open
    assert (gate.span_records, gate.span_bytes) == (100, 100)
    assert gate.record_allowance() is None


# -- the reason ---------------------------------------------------------------------------------------------------


def test_reason_names_the_checkpoints_in_progress_when_they_are_at_their_maximum() -> None:
    gate = make(max_concurrent=2)
    gate.handle(BarrierTaken(5, CHECKPOINT), 0.0)
    gate.handle(BarrierTaken(6, CHECKPOINT), 0.0)
    reason = close_by_time(gate)
    assert reason == "span of 11 s used up: checkpoints in progress are at their maximum of 2 (5, 6)"
    assert gate.reason == reason


def test_a_savepoint_does_not_count_to_the_maximum() -> None:
    gate = make(max_concurrent=1)
    gate.handle(BarrierTaken(5, SAVEPOINT), 0.0)
    gate.handle(heartbeat(5, savepoint=5), 1.0)
    assert "maximum" not in close_by_time(gate)


@pytest.mark.parametrize("held_back", ["min pause of 5 s since checkpoint 4", "3 checkpoints wait to be deleted"])
def test_reason_is_the_coordinators_when_something_holds_the_next_checkpoint_back(held_back: str) -> None:
    gate = make()
    gate.handle(heartbeat(held_back=held_back), 1.0)
    assert close_by_time(gate).endswith(held_back)


def test_a_slow_coordinator_closes_it_as_well() -> None:
    assert close_by_time(make()) == "span of 11 s used up: the coordinator is slow, no barrier for 11 s"


def test_reason_follows_the_facts_while_closed() -> None:
    gate = make()
    gate.handle(BarrierTaken(1, CHECKPOINT), 0.0)
    assert "maximum of 1 (1)" in close_by_time(gate)
    gate.handle(heartbeat(held_back="min pause"), 13.0)
    assert gate.reason == "span of 11 s used up: min pause"


# -- record and byte limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "emitted"), [({"max_span_records": 10}, Emitted(10, 1)), ({"max_span_bytes": 100}, Emitted(1, 100))]
)
def test_limits_close_it_without_grace(limit: dict[str, int], emitted: Emitted) -> None:
    gate = make(**limit)
    gate.handle(Emitted(emitted.records - 1, emitted.bytes - 1), 1.0)
    assert gate.is_open
    actions = gate.handle(Emitted(1, 1), 1.0)
    assert isinstance(actions[-1], CloseGate)
    assert not gate.is_open


def test_allowance_is_what_is_left_and_nothing_while_closed() -> None:
    gate = make(max_span_records=10, max_span_bytes=1000)
    assert gate.record_allowance() == 10
    gate.handle(Emitted(7, 400), 1.0)
    assert gate.record_allowance() == 3
    gate.handle(Emitted(3, 100), 1.0)
    assert gate.record_allowance() == 0
    assert make().record_allowance() is None


def test_asks_once_a_barrier_at_eighty_percent_with_the_last_barriers_id() -> None:
    gate = make(max_span_records=100)
    gate.handle(BarrierTaken(7, CHECKPOINT), 0.0)
    assert gate.handle(Emitted(79, 0), 1.0) == []
    assert gate.handle(Emitted(1, 0), 1.0) == [AskForCheckpoint(7)]
    assert gate.handle(Emitted(1, 0), 1.0) == []
    gate.handle(BarrierTaken(8, CHECKPOINT), 2.0)
    assert gate.handle(Emitted(80, 0), 3.0) == [AskForCheckpoint(8)]


def test_asks_at_eighty_percent_of_the_bytes() -> None:
    gate = make(max_span_bytes=100)
    assert gate.handle(Emitted(1, 80), 1.0) == [AskForCheckpoint(0)]


def test_the_first_ask_of_a_restored_attempt_names_the_restored_checkpoint() -> None:
    gate = SourceGate(gate_options(interval=10.0, max_span_records=1), 0.0, last_barrier=12)
    assert gate.handle(Emitted(1, 1), 1.0)[0] == AskForCheckpoint(12)


def test_time_alone_asks_for_nothing() -> None:
    gate = make(max_span_records=100)
    assert not any(isinstance(a, AskForCheckpoint) for a in gate.handle(Tick(), 11.0))


def test_a_lost_ask_is_repeated_with_the_heartbeat_as_long_as_it_is_needed() -> None:
    gate = make(max_span_records=10)
    gate.handle(Emitted(10, 0), 1.0)
    assert not gate.is_open
    assert gate.handle(heartbeat(), 2.0) == [AskForCheckpoint(0)]
    assert gate.handle(heartbeat(), 3.0) == [AskForCheckpoint(0)]
    gate.handle(BarrierTaken(1, CHECKPOINT), 4.0)
    assert gate.handle(heartbeat(1), 5.0) == []


def test_after_a_savepoint_the_ask_carries_its_id_so_that_it_is_not_stale() -> None:
    gate = make(max_span_records=10)
    assert gate.handle(Emitted(9, 0), 1.0) == [AskForCheckpoint(0)]
    assert gate.handle(BarrierTaken(1, SAVEPOINT), 2.0) == [AskForCheckpoint(1)]


# -- lost triggers ------------------------------------------------------------------------------------------------


def test_a_checkpoint_learned_from_the_heartbeat_is_taken() -> None:
    gate = make()
    close_by_time(gate)
    assert gate.handle(heartbeat(1), 12.0) == [TakeBarrier(1, CHECKPOINT)]
    assert gate.handle(BarrierTaken(1, CHECKPOINT), 12.0) == [OpenGate()]
    assert gate.handle(heartbeat(1), 13.0) == []


def test_several_lost_triggers_are_answered_in_the_order_of_their_ids() -> None:
    gate = make(max_concurrent=3)
    event = HeartbeatReceived(Heartbeat(((6, CHECKPOINT), (4, SAVEPOINT), (5, CHECKPOINT)), 1.0, None))
    assert gate.handle(event, 1.0) == [
        TakeBarrier(4, SAVEPOINT),
        TakeBarrier(5, CHECKPOINT),
        TakeBarrier(6, CHECKPOINT),
    ]


def test_a_barrier_learned_from_a_heartbeat_that_also_closes_the_gate_opens_it_for_good() -> None:
    """Actions are carried out one after the other, and a barrier that is taken brings further ones."""
    gate = make()
    closed, take = gate.handle(heartbeat(1), 12.0)
    assert isinstance(closed, CloseGate)
    assert take == TakeBarrier(1, CHECKPOINT)
    assert gate.handle(BarrierTaken(1, CHECKPOINT), 12.0) == [OpenGate()]


def test_a_checkpoint_older_than_the_last_barrier_is_never_taken() -> None:
    gate = make(max_concurrent=2)
    gate.handle(BarrierTaken(6, CHECKPOINT), 1.0)
    assert gate.handle(heartbeat(5, 6), 2.0) == []
    assert not gate.admits_trigger(5)
    with pytest.raises(ValueError, match="barrier 5 taken after barrier 6"):
        gate.handle(BarrierTaken(5, CHECKPOINT), 3.0)


def test_a_trigger_that_comes_after_the_end_of_its_checkpoint_is_not_admitted() -> None:
    gate = make()
    assert gate.admits_trigger(1)
    gate.handle(CheckpointResolved(1, completed=True), 1.0)
    assert not gate.admits_trigger(1)
    assert gate.admits_trigger(2)


# -- spans that take longer than the timeout ----------------------------------------------------------------------


def test_expiries_shorten_the_span_and_completions_lengthen_it() -> None:
    gate = make(max_span_records=100, max_span_bytes=1000)
    gate.handle(Emitted(1, 10), 0.0)
    gate.handle(heartbeat(scale=0.5), 0.0)
    assert gate.next_deadline(0.0) == 5.5
    assert gate.record_allowance() == 49
    gate.handle(heartbeat(scale=1.0), 1.0)
    assert gate.next_deadline(1.0) == 11.0


def test_a_shortened_span_closes_it_earlier() -> None:
    gate = make()
    gate.handle(Emitted(1, 1), 0.0)
    gate.handle(heartbeat(scale=0.5), 0.0)
    assert close_by_time(gate, 5.5) == (
        "span of 5.5 s used up (shortened to 0.5 of it by expiries): the next checkpoint is not due yet"
    )


def test_a_span_is_never_shortened_below_one_fetch() -> None:
    gate = make(max_span_records=100, max_span_bytes=1000)
    gate.handle(heartbeat(scale=2.0**-20), 0.0)
    assert gate.record_allowance() == 1
    assert gate.next_deadline(0.0) is None
    assert gate.handle(Tick(), 5.0) == []
    assert isinstance(gate.handle(Emitted(1, 1), 6.0)[-1], CloseGate)
    assert gate.handle(BarrierTaken(1, CHECKPOINT), 7.0) == [OpenGate()]
    assert gate.record_allowance() == 1


# -- any schedule -------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.floats(0.0, 4.0),
        st.sampled_from(["fetch", "fetch", "fetch", "tick", "barrier", "savepoint", "resolved", "heartbeat"]),
        st.integers(1, 5),
    ),
    max_size=60,
)


@given(steps, st.sampled_from([None, 1, 7, 30]), st.sampled_from([None, 1, 40]))
@settings(max_examples=150, deadline=None)
def test_between_two_barriers_never_more_than_one_span_and_one_fetch(
    schedule: list[tuple[float, str, int]], records: int | None, size: int | None
) -> None:
    options = gate_options(interval=1.0, max_span_records=records, max_span_bytes=size, window=False)
    gate = SourceGate(options, 0.0)
    now = open_time = 0.0
    last_id = span_records = span_bytes = 0
    last_fetch = (0, 0)
    for elapsed, step, n in schedule:
        deadline = gate.next_deadline(now)
        if deadline is not None and deadline < now + elapsed:  # the runtime ticks at the deadline
            gate.handle(Tick(), deadline)
            open_time += deadline - now
            elapsed -= deadline - now
            now = deadline
        now += elapsed
        open_time += elapsed if gate.is_open else 0.0
        if step == "fetch" and gate.is_open:
            allowance = gate.record_allowance()
            assert allowance is None or allowance >= 1
            count = n if allowance is None else min(n, allowance)
            last_fetch = (count, 10 * count)
            gate.handle(Emitted(*last_fetch), now)
            span_records, span_bytes = span_records + count, span_bytes + 10 * count
        elif step in ("barrier", "savepoint"):
            last_id += n
            gate.handle(BarrierTaken(last_id, SAVEPOINT if step == "savepoint" else CHECKPOINT), now)
            if step == "barrier":
                assert gate.is_open
                open_time, span_records, span_bytes = 0.0, 0, 0
        elif step == "resolved":
            gate.handle(CheckpointResolved(last_id, completed=True), now)
        elif step == "heartbeat":
            gate.handle(heartbeat(*range(max(1, last_id - 1), last_id + 1)), now)
        else:
            gate.handle(Tick(), now)
        assert (gate.span_records, gate.span_bytes) == (span_records, span_bytes)
        assert options.span_seconds is not None
        assert open_time <= options.span_seconds + 1e-6
        assert records is None or span_records <= records  # fetches keep to the allowance
        assert size is None or span_bytes <= size + last_fetch[1]
        used_up = (
            open_time >= options.span_seconds
            or (records is not None and span_records >= records)
            or (size is not None and span_bytes >= size)
        )
        assert gate.is_open or used_up or open_time >= options.span_seconds - 1e-6
        assert (gate.reason is None) == gate.is_open


# -- where reading begins -----------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(["take", "resolve", "tick", "heartbeat"]), max_size=12),
    st.lists(st.floats(0, 20), min_size=12, max_size=12),
)
def test_where_reading_begins_the_span_is_new_and_all_barriers_stay_known(
    events: list[str], pauses: list[float]
) -> None:
    gate, now, next_id, taken = make(), 0.0, 1, []
    for event, pause in zip(events, pauses, strict=False):
        now += pause
        match event:
            case "take":
                gate.handle(BarrierTaken(next_id, CHECKPOINT), now)
                taken.append(next_id)
                next_id += 1
            case "resolve":
                gate.handle(CheckpointResolved(next_id, completed=True), now)
                taken.append(next_id)
                next_id += 1
            case "tick":
                gate.handle(Tick(), now)
            case "heartbeat":
                gate.handle(heartbeat(), now)
    opened = not gate.is_open
    assert gate.handle(ReadingBegins(), now) == ([OpenGate()] if opened else [])
    assert gate.is_open
    assert not any(gate.admits_trigger(n) for n in taken)
    assert gate.next_deadline(now) == pytest.approx(now + 11.0)
    assert gate.statistics(now).closed_seconds == 0.0
