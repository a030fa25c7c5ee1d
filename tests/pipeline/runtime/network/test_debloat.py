"""Input budgets follow the measured rate."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.buffers import MIN_FRAME_BYTES, BufferConfig
from pipeline.runtime.network.debloat import Debloater

MIB = 1024 * 1024
A_RECORD = 256
"""Bytes: no frame is meant to be smaller."""
configs = st.builds(
    lambda frame, factor, target, debloat: BufferConfig(
        max_bytes=frame * factor, frame_bytes=frame, target=target, debloat=debloat
    ),
    st.integers(MIN_FRAME_BYTES, MIB),
    st.integers(1, 64),
    st.floats(0.01, 10),
    st.booleans(),
)
observations = st.lists(
    st.builds(
        lambda consumed, active, overhead: (consumed, active, overhead * active),
        st.integers(0, 100 * MIB),
        st.floats(0, 0.2),
        st.floats(0, 1),
    ),
    max_size=40,
)


def settle(debloater, rate, ticks=60, active=0.2, overhead=0.0):
    """`overhead`: part of the active time."""
    for _ in range(ticks):
        debloater.observe(int(rate * active), active, overhead * active)
    return debloater.budget


@given(configs, st.integers(1, 200), observations)
def test_budgets_stay_between_one_frame_and_the_configured_maximum(config, channels, observations):
    debloater = Debloater(config, channels)
    for observation in [(0, 0.0, 0.0), *observations]:
        debloater.observe(*observation)
        budget = debloater.budget
        assert budget.channel_bytes <= MIN_FRAME_BYTES or budget.channel_bytes * channels <= config.max_bytes
        assert A_RECORD <= budget.frame_bytes <= min(config.frame_bytes, budget.channel_bytes)
        if not config.debloat:
            assert budget.frame_bytes >= MIN_FRAME_BYTES


@given(st.floats(10_000, 5_000_000), st.integers(1, 8), st.floats(0.1, 1.5))
def test_what_is_in_flight_takes_the_target_time_at_a_steady_rate(rate, channels, target):
    debloater = Debloater(BufferConfig(target=target), channels)
    total = settle(debloater, rate).channel_bytes * channels
    wanted = max(rate * target, channels * min(MIN_FRAME_BYTES, max(2 * A_RECORD, 2 * int(rate * 0.005))))
    # announced within 25 %; the rest is rounding
    assert wanted * 0.74 - channels <= total <= wanted * 1.35 + channels


@given(st.floats(5_000, 400_000), st.integers(1, 64))
def test_the_frames_of_a_slow_operator_take_it_some_milliseconds_at_most_unless_more_is_wanted(rate, channels):
    budget = settle(Debloater(BufferConfig(target=0.1), channels), rate)
    assert budget.frame_bytes <= max(A_RECORD, rate * max(0.006, 0.1 / channels / 4 * 1.35) + 1)
    assert budget.channel_bytes >= min(2 * budget.frame_bytes, MIN_FRAME_BYTES)


def test_an_operator_that_was_stuck_gets_a_usual_budget_at_once():
    debloater = Debloater(BufferConfig(), 1)
    stuck = settle(debloater, rate=2_000_000), settle(debloater, rate=0)
    assert stuck[1].channel_bytes == 2 * A_RECORD
    assert settle(debloater, rate=2_000_000, ticks=1).channel_bytes == 2 * MIN_FRAME_BYTES


@given(observations)
def test_a_change_is_announced_only_beyond_a_quarter(observations):
    debloater = Debloater(BufferConfig(), 2)
    for observation in observations:
        before = debloater.budget
        announced = debloater.observe(*observation)
        if announced is None:
            assert debloater.budget == before
        else:
            assert debloater.budget == announced
            assert abs(announced.channel_bytes - before.channel_bytes) > 0.25 * before.channel_bytes


def test_a_slow_operator_gets_a_small_budget_and_small_batches():
    budget = settle(Debloater(BufferConfig(), channels=2), rate=55_000)  # 2 ms a record of 110 bytes
    assert budget.channel_bytes * 2 <= 7_000
    assert budget.frame_bytes <= 900


@pytest.mark.parametrize("channels", [16, 64, 500])
def test_frames_that_cost_more_than_what_is_in_them_become_larger_until_they_do_not(channels):
    """With many processes on a machine small frames themselves would make an operator slow."""
    debloater = Debloater(BufferConfig(), channels)
    slow = settle(debloater, rate=50_000)
    assert slow.frame_bytes < 400
    assert settle(debloater, rate=50_000, overhead=0.15) == slow  # as it may be at any time
    larger = settle(debloater, rate=50_000, overhead=0.25)
    assert (larger.frame_bytes, larger.channel_bytes) == (4_096, 8_192)
    assert settle(debloater, rate=50_000, overhead=0.15) == larger
    assert settle(debloater, rate=50_000, overhead=0.05) == slow


@pytest.mark.parametrize(
    ("config", "channels", "frame"),
    [(BufferConfig(frame_bytes=3_000), 4, 3_000), (BufferConfig(max_bytes=16_384, frame_bytes=16_384), 8, 1_024)],
)
def test_frames_become_no_larger_than_the_options_allow(config, channels, frame):
    budget = settle(Debloater(config, channels), rate=1_000, overhead=1.0)
    assert (budget.frame_bytes, budget.channel_bytes) == (frame, 2 * frame)


def test_time_without_input_does_not_count():
    busy, mostly_idle = Debloater(BufferConfig(), 1), Debloater(BufferConfig(), 1)
    assert settle(busy, rate=2_000_000) == settle(mostly_idle, rate=2_000_000, ticks=600, active=0.02)
    before = mostly_idle.budget
    assert mostly_idle.observe(0, 0.0, 0.0) is None
    assert mostly_idle.budget == before


def test_an_operator_that_becomes_slow_shrinks_its_budget_even_if_it_finishes_no_batch():
    debloater = Debloater(BufferConfig(), 1)
    fast = settle(debloater, rate=2_000_000).channel_bytes
    slow = settle(debloater, rate=0, ticks=25).channel_bytes
    assert slow < fast / 20


def test_before_anything_is_measured_the_budget_is_small_and_the_time_to_consume_unknown():
    debloater = Debloater(BufferConfig(), 4)
    assert debloater.budget.channel_bytes <= 64 * 1024
    assert debloater.observe(0, 5.0, 0.0) is None  # the first batch is still in progress
    assert debloater.estimated_time_to_consume(1000) is None
    assert debloater.estimated_time_to_consume(0) == 0.0


def test_the_time_to_consume_follows_the_rate():
    debloater = Debloater(BufferConfig(), 1)
    settle(debloater, rate=1_000_000)
    assert debloater.estimated_time_to_consume(500_000) == pytest.approx(0.5, rel=0.01)


def test_switched_off_the_budget_is_the_configured_one_whatever_is_measured():
    debloater = Debloater(BufferConfig(max_bytes=MIB, frame_bytes=100_000, debloat=False), 2)
    assert settle(debloater, rate=1_000).channel_bytes == MIB // 2
    assert debloater.budget.frame_bytes == 100_000
    assert debloater.rate == pytest.approx(1_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_bytes": 10}, "max_bytes must be"),
        ({"max_bytes": 1.5e6}, "max_bytes must be"),
        ({"frame_bytes": True}, "frame_bytes must be"),
        ({"max_bytes": 10_000, "frame_bytes": 20_000}, "must not be above max_bytes"),
        ({"target": 0}, "target must be"),
        ({"linger": -1}, "linger must be"),
        ({"linger": "1s"}, "linger must be"),
        ({"debloat": "yes"}, "debloat must be"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        BufferConfig(**options)


def test_durations_may_be_timedeltas():
    config = BufferConfig(target=timedelta(seconds=2), linger=timedelta(milliseconds=10))
    assert (config.target_s, config.linger_s) == (2.0, 0.01)
