"""The window alone: what it learns from barriers that pass."""

from __future__ import annotations

from typing import Any

import pytest
from option_values import gate_options

from checkpoint.gate.gate_events import BarrierPassed
from checkpoint.gate.gate_options import GateOptions
from checkpoint.gate.window import SpanWindow


def options(**changed: Any) -> GateOptions:
    """H = 10 s, a window of 1,000 records at the start."""
    return gate_options(**{"interval": 10.0, "alignment": "aligned", "slow_storage_span": 60.0, **changed})


def passed(window: SpanWindow, n: int, span: int, taken: float, delay: float, mean: float | None = None) -> None:
    """`mean`: span of all sources; `None` = as this one's."""
    window.barrier_taken(n, span, False, taken)
    of_all = span if mean is None else mean
    window.passed(BarrierPassed(n, delay, of_all, of_all), taken + delay)


@pytest.mark.parametrize(
    ("interval", "timeout", "first"),
    [(20.0, 600.0, 2_000), (2.0, 600.0, 1_000), (0.1, 600.0, 1_000), (600.0, 60.0, 3_000)],
)
def test_the_first_window_is_what_a_hundred_records_a_second_come_to_and_a_thousand_at_least(
    interval: float, timeout: float, first: int
) -> None:
    assert SpanWindow(options(interval=interval, timeout=timeout), 0.0).records == first


@pytest.mark.parametrize(
    ("delay", "after"),
    [(0.0, 2_000), (0.49, 2_000), (0.5, 1_250), (4.99, 1_250), (5.0, 1_000), (10.0, 1_000)],
)
def test_it_grows_by_how_quickly_a_barrier_has_passed(delay: float, after: int) -> None:
    window = SpanWindow(options(), 0.0)
    passed(window, 1, 1_000, 3.0, delay)
    assert window.records == after


@pytest.mark.parametrize(("delay", "after"), [(0.19, 200), (0.2, 125), (0.49, 125), (0.5, 100)])
def test_at_short_intervals_it_allows_for_what_messages_take(delay: float, after: int) -> None:
    window = SpanWindow(options(interval=1.0, first_window=100), 0.0)
    passed(window, 1, 100, 3.0, delay)
    assert window.records == after


@pytest.mark.parametrize(("span", "after"), [(499, 1_000), (500, 2_000), (5_000, 2_000)])
def test_it_grows_only_if_half_of_it_was_used(span: int, after: int) -> None:
    window = SpanWindow(options(), 0.0)
    passed(window, 1, span, 3.0, 0.1)
    assert window.records == after


@pytest.mark.parametrize("at_a_time", [1, 2, 4])
def test_it_becomes_what_is_processed_in_h_shared_by_the_checkpoints_at_a_time(at_a_time: int) -> None:
    window = SpanWindow(options(max_concurrent=at_a_time, first_window=8_000), 0.0)
    passed(window, 1, 6_000, 10.0, 20.0)  # 200 a second
    assert window.records == 1_600 // at_a_time
    assert "shrank from 8,000 to" in window.change
    assert "checkpoint 1" in window.change
    assert "20 s" in window.change


def test_it_never_grows_by_a_slow_barrier_and_is_one_record_at_least() -> None:
    window = SpanWindow(options(first_window=100), 0.0)
    passed(window, 1, 90_000, 10.0, 20.0)
    assert window.records == 100
    passed(window, 2, 100, 60.0, 5_000.0)
    assert window.records == 1
    assert window.change.startswith("shrank from 100 to 1 record at checkpoint 2,")


@pytest.mark.parametrize(("alignment", "waits"), [("aligned", True), ("unaligned", False), (9.9, False), (10.0, True)])
def test_where_barriers_overtake_data_in_bearable_time_it_never_shrinks(alignment: Any, waits: bool) -> None:
    """As on a machine with too many processes, where each checkpoint takes 12 s however little is read."""
    window = SpanWindow(options(alignment=alignment), 0.0)
    for n in range(1, 11):
        passed(window, n, window.records, 20.0 * n, 12.0)
    window.barrier_taken(11, 1_000, False, 220.0)
    window.aborted(11, 240.0)
    assert (window.records < 900, window.records == 1_000) == (waits, not waits)
    at_least_once = SpanWindow(options(alignment=alignment, mode="at_least_once"), 0.0)  # nothing overtakes
    passed(at_least_once, 1, 1_000, 20.0, 12.0)
    assert at_least_once.records < 1_000


def test_a_quiet_source_does_not_pay_for_what_others_made_slow() -> None:
    window = SpanWindow(options(), 0.0)
    passed(window, 1, 900, 10.0, 0.1)
    assert window.records == 2_000
    passed(window, 2, 0, 10.2, 0.1)
    passed(window, 3, 10, 20.0, 20.0)  # half a record a second
    assert window.records == 1_000


@pytest.mark.parametrize(
    ("span", "mean", "delay", "after"),
    [
        (1_000, 1_251.0, 7.0, 1_250),
        (1_000, 1_249.0, 7.0, 1_000),
        (1_000, 834.0, 7.0, 1_000),
        (1_000, 833.0, 7.0, 950),
        (499, 5_000.0, 7.0, 1_000),
        (1_000, 1_251.0, 20.0, 1_000),
        (1_000, 1_249.0, 20.0, 275),
    ],
)
def test_sources_come_to_share_operators_evenly(span: int, mean: float, delay: float, after: int) -> None:
    """Smaller ones grow at the cost of larger ones, and don't shrink for what these did."""
    window = SpanWindow(options(max_concurrent=1), 0.0)
    passed(window, 1, span, 9.0, delay, mean)
    assert window.records == pytest.approx(after, abs=1)


def test_a_slow_barrier_without_records_in_front_changes_nothing() -> None:
    window = SpanWindow(options(first_window=7), 0.0)
    passed(window, 1, 7, 1.0, 0.1)
    passed(window, 2, 0, 10.0, 20.0)
    assert window.records == 14
    passed(window, 3, 20, 40.0, 20.0)
    assert window.records == 5


def test_where_less_only_costs_throughput_it_does_not_shrink_on() -> None:
    """An operator holds each barrier for 20 s, however much is in front. A span begins when the barrier before is
    taken, with the window of then."""
    window, now, processed = SpanWindow(options(max_concurrent=1, first_window=10_000), 0.0), 0.0, []
    span = window.records
    for n in range(1, 60):
        processed.append(span)
        span_after = window.records
        passed(window, n, span, now, 20.0)
        span, now = span_after, now + 20.0
    assert min(processed) >= 10_000 / 2.5
    assert sum(processed) / len(processed) >= 0.7 * 10_000


@pytest.mark.parametrize(
    ("span", "delay", "after"),
    [
        (900, 20.0, 360),  # of 45: too much alike to tell
        (400, 11.0, 290),  # of 36 with less than half of the span: the queues are it
        (150, 20.0, 400),  # of 8, but it had less to emit than it might
        (400, 20.0, 800),  # of 20: the rate goes with the span
    ],
)
def test_what_the_second_of_two_slow_barriers_tells(span: int, delay: float, after: int) -> None:
    window = SpanWindow(options(), 0.0)
    passed(window, 1, 1_000, 0.0, 20.0)
    assert window.records == 400
    passed(window, 2, 1_000, 20.0, 20.0)
    assert window.records == 400, "its span began before the window changed"
    passed(window, 3, span, 40.0, delay)
    assert window.records == after


def test_two_slow_barriers_with_a_quick_one_in_between_are_not_compared() -> None:
    window = SpanWindow(options(first_window=8_000), 0.0)
    passed(window, 1, 8_000, 0.0, 20.0)
    passed(window, 2, 4_000, 21.0, 1.0)
    assert window.records == 4_000
    passed(window, 3, 4_000, 23.0, 6.0)
    passed(window, 4, 5_000, 29.0, 20.0)  # 250 a second after 400
    assert window.records == 2_000


def test_operators_that_slow_down_shrink_it_however_steeply() -> None:
    window, now = SpanWindow(options(first_window=100_000), 0.0), 0.0
    span = window.records
    for n, rate in enumerate([2_000, 2_000, 400, 400, *[100] * 8], 1):
        span_after = window.records
        passed(window, n, span, now, span / rate)
        span, now = span_after, now + span / rate
    assert window.records == 0.8 * 100 * 10


def test_what_a_larger_span_came_to_is_forgotten_once_operators_are_slower() -> None:
    window = SpanWindow(options(max_concurrent=1), 0.0)
    passed(window, 1, 1_000, 0.0, 20.0)
    passed(window, 2, 1_000, 20.0, 20.0)
    passed(window, 3, 400, 40.0, 20.0)  # 20 a second after 50: the rate goes with the span
    assert window.records == 800
    passed(window, 4, 400, 60.0, 20.0)
    passed(window, 5, 800, 80.0, 80.0)  # 10 a second
    assert window.records == 400
    passed(window, 6, 400, 160.0, 40.0)  # its span began before the window changed
    assert window.records == 80, "no span is needed any more"


def test_while_a_barrier_is_under_way_there_is_no_pace() -> None:
    window = SpanWindow(options(), 0.0)
    passed(window, 1, 1_000, 1.0, 0.1)
    assert window.pace > 0
    window.barrier_taken(2, 1_000, False, 2.0)
    assert window.pace == 0
    assert window.limit(100.0) == window.records
    window.passed(BarrierPassed(2, 0.1, 1_000.0, 1_000.0), 2.1)
    assert window.limit(100.0) > window.records


@pytest.mark.parametrize(
    ("delay", "seconds", "factor"),
    [(0.1, 1.0, 2.0), (1.0, 1.0, 1.25), (7.0, 1.0, 1.0), (11.0, 1.0, 0.75), (1.0, 50.0, 1.05), (11.0, 50.0, 0.95)],
)
def test_the_pace_follows_what_was_processed_and_turns_the_queues_by_a_quarter_of_h_at_most(
    delay: float, seconds: float, factor: float
) -> None:
    window = SpanWindow(options(), 0.0)
    passed(window, 1, 0, 100.0, 0.0)
    passed(window, 2, 4_000, 100.0 + seconds, delay)
    processed = 4_000 / (seconds + delay)
    assert window.pace == pytest.approx(factor * processed)


def test_the_most_that_was_processed_counts_until_a_barrier_passes_slowly() -> None:
    window = SpanWindow(options(), 0.0)
    passed(window, 1, 10_000, 1.0, 0.1)
    quick = window.pace
    passed(window, 2, 10, 9.0, 0.1)  # a trickle
    assert window.pace == quick
    passed(window, 3, 10, 20.0, 6.0)
    assert window.pace == pytest.approx(10 / 16.9)


def test_time_before_reading_begins_does_not_count() -> None:
    window = SpanWindow(options(), 0.0)
    window.begin(100.0)
    passed(window, 1, 1_000, 101.0, 11.0)
    assert window.pace == pytest.approx(0.75 * 1_000 / 12.0)


def test_a_moment_makes_no_rate() -> None:
    window = SpanWindow(options(), 0.0)
    passed(window, 1, 1_000, 0.01, 0.01)
    assert window.pace == pytest.approx(2 * 1_000 / 0.05)


def test_messages_that_arrive_at_one_time_make_no_rate() -> None:
    window = SpanWindow(options(), 0.0)
    window.barrier_taken(1, 1_000, False, 1.0)
    window.barrier_taken(2, 1_000, False, 2.0)
    window.passed(BarrierPassed(1, 1.0, 1_000.0, 1_000.0), 4.0)
    window.passed(BarrierPassed(2, 1.0, 1_000.0, 1_000.0), 4.0001)
    assert window.pace <= 2 * 2_000 / 4


def test_a_repetition_or_an_older_barrier_counts_nothing() -> None:
    window = SpanWindow(options(), 0.0)
    for n in (1, 2):
        window.barrier_taken(n, 1_000, False, float(n))
    window.passed(BarrierPassed(2, 0.1, 1_000.0, 1_000.0), 2.1)
    before = (window.records, window.pace, window.under_way)
    for n in (2, 1, 7):
        window.passed(BarrierPassed(n, 500.0, 1_000.0, 1_000.0), 3.0)
    assert (window.records, window.pace, window.under_way) == before
    assert window.under_way == ()


def test_a_completed_checkpoint_whose_barrier_nobody_said_has_passed_counts_as_late_as_it_can_be() -> None:
    window = SpanWindow(options(), 0.0)
    window.barrier_taken(1, 1_000, False, 1.0)
    window.completed(1, 1.2)
    assert window.records == 2_000
    window.barrier_taken(2, 2_000, False, 2.0)
    window.completed(2, 100.0)  # storage, or operators: who knows
    assert (window.records, window.under_way) == (2_000, ())
