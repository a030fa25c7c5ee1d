"""Restart strategies, with a clock that is passed in."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import RestartStrategy
from pipeline.runtime.driver.restart import STRATEGIES


def test_none_gives_up_at_once() -> None:
    policy = RestartStrategy.none().start()
    assert policy.on_failure(0.0) is None
    assert policy.describe() == "no restarts are configured"


def test_a_fixed_delay_is_given_so_many_times_however_far_apart_failures_are() -> None:
    policy = RestartStrategy.fixed_delay(attempts=3, delay=2.5).start()
    assert [policy.on_failure(now) for now in (0.0, 1e6, 2e6, 3e6)] == [2.5, 2.5, 2.5, None]
    assert policy.describe() == "3 restarts are used up"


def test_jobs_do_not_share_a_strategys_count() -> None:
    strategy = RestartStrategy.fixed_delay(attempts=1)
    assert strategy.start().on_failure(0.0) is not None
    assert strategy.start().on_failure(0.0) is not None


def test_an_exponential_delay_grows_to_its_maximum() -> None:
    policy = RestartStrategy.exponential(initial=1, maximum=10, multiplier=3, jitter=0).start()
    assert [policy.on_failure(float(now)) for now in range(5)] == [1, 3, 9, 10, 10]


def test_an_exponential_delay_starts_anew_after_enough_time_without_failure() -> None:
    policy = RestartStrategy.exponential(initial=1, maximum=60, multiplier=2, jitter=0, reset_after=100).start()
    assert [policy.on_failure(now) for now in (0.0, 10.0)] == [1, 2]
    # The two seconds that the job waited for its restart don't count as time without failure.
    assert policy.on_failure(10.0 + 101.9) == 4
    assert policy.on_failure(111.9 + 104.0) == 1


def test_attempts_bound_the_failures_between_resets() -> None:
    policy = RestartStrategy.exponential(initial=1, jitter=0, reset_after=100, attempts=2).start()
    assert [policy.on_failure(now) is None for now in (0.0, 1.0, 200.0, 201.0, 202.0)] == [
        False,
        False,
        False,
        False,
        True,
    ]
    assert policy.describe() == "2 restarts are used up, without 100 s of rest"


@given(st.floats(0, 0.99), st.integers(0, 2**32), st.integers(1, 12))
def test_jitter_changes_a_delay_by_its_fraction_at_most(jitter: float, seed: int, failures: int) -> None:
    strategy = RestartStrategy.exponential(initial=1, maximum=50, multiplier=2, jitter=jitter)
    policy = strategy.start(random.Random(seed))
    for n in range(failures):
        delay = policy.on_failure(float(n))
        plain = min(50.0, 2.0**n)
        assert delay is not None
        assert plain * (1 - jitter) <= delay <= plain * (1 + jitter)


def test_jitter_spreads_the_delays_of_jobs_that_fail_together() -> None:
    strategy = RestartStrategy.exponential(jitter=0.5)
    assert len({strategy.start(random.Random(seed)).on_failure(0.0) for seed in range(20)}) == 20


def test_jitter_does_not_build_up() -> None:
    policy = RestartStrategy.exponential(initial=1, maximum=1, multiplier=1, jitter=0.5).start(random.Random(1))
    delays = [policy.on_failure(0.0) for _ in range(1000)]
    assert all(delay is not None and 0.5 <= delay <= 1.5 for delay in delays)


@pytest.mark.parametrize("strategy", [RestartStrategy.none(), RestartStrategy.fixed_delay(attempts=1)])
def test_a_policy_that_gave_up_stays_given_up(strategy: RestartStrategy) -> None:
    policy = strategy.start()
    while policy.on_failure(0.0) is not None:
        pass
    assert policy.on_failure(1e9) is None


# -- options ----------------------------------------------------------------------------------------------------------


def test_defaults_are_those_that_the_docs_name() -> None:
    assert RestartStrategy.none().options == {}
    assert RestartStrategy.fixed_delay().options == {"attempts": 3, "delay": 1.0}
    assert RestartStrategy.exponential().options == {
        "initial": 0.5,
        "maximum": 60.0,
        "multiplier": 2.0,
        "jitter": 0.1,
        "reset_after": 300.0,
        "attempts": None,
    }


@pytest.mark.parametrize(
    "strategy",
    [
        RestartStrategy.none(),
        RestartStrategy.fixed_delay(attempts=7, delay=4),
        RestartStrategy.exponential(2, 30, 1.5, 0.2, 77, 5),
    ],
)
def test_a_strategys_options_make_the_same_strategy(strategy: RestartStrategy) -> None:
    assert STRATEGIES[strategy.kind](**strategy.options) == strategy


@pytest.mark.parametrize(
    "options",
    [
        {"initial": 0.0009},
        {"maximum": 0.0009},
        {"initial": 2, "maximum": 1.9},
        {"multiplier": 0.99},
        {"multiplier": float("inf")},
        {"multiplier": "2"},
        {"jitter": -0.01},
        {"jitter": 1},
        {"jitter": 1.5},
        {"jitter": "0.1"},
        {"attempts": 0},
        {"attempts": 1.5},
        {"reset_after": -1},
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        RestartStrategy.exponential(**options)


@pytest.mark.parametrize("options", [{"attempts": 0}, {"delay": -1}])
def test_so_are_those_of_a_fixed_delay(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        RestartStrategy.fixed_delay(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"initial": 0.001},
        {"initial": 5, "maximum": 5},
        {"multiplier": 1},
        {"jitter": 0},
        {"jitter": 0.99},
        {"attempts": 1},
    ],
)
def test_the_bounds_themselves_are_fine(options: dict[str, Any]) -> None:
    assert options.items() <= RestartStrategy.exponential(**options).options.items()
