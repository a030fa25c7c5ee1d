"""When a source that is closed pauses its consumer."""

from __future__ import annotations

import pytest

from sources.kafka.client_pauses import PAUSE_AFTER_S, REFETCH_SHARE, PausePolicy

PREFETCH = 1000
ENOUGH = int(PREFETCH / REFETCH_SHARE)


@pytest.fixture
def policy() -> PausePolicy:
    """That of a source which has delivered enough for one pause."""
    policy = PausePolicy(PREFETCH)
    policy.delivered(ENOUGH)
    return policy


def test_a_closing_becomes_a_pause_only_when_it_lasts(policy: PausePolicy) -> None:
    assert not policy.due(10.0)
    policy.close(10.0)
    assert policy.closed
    assert not policy.due(10.0 + PAUSE_AFTER_S / 2)
    assert policy.due(10.0 + PAUSE_AFTER_S)


def test_a_source_that_is_told_to_close_again_has_been_closed_since_the_first_time(policy: PausePolicy) -> None:
    policy.close(10.0)
    policy.close(10.0 + PAUSE_AFTER_S / 2)
    assert policy.due(10.0 + PAUSE_AFTER_S)


def test_after_an_opening_the_time_begins_anew(policy: PausePolicy) -> None:
    policy.close(10.0)
    policy.open()
    assert not policy.closed
    assert not policy.due(20.0)
    policy.close(20.0)
    assert not policy.due(20.0 + PAUSE_AFTER_S / 2)


def test_a_pause_must_be_paid_off_by_what_was_delivered_since_the_last_one() -> None:
    policy = PausePolicy(PREFETCH)
    policy.close(0.0)
    policy.delivered(ENOUGH - 1)
    assert not policy.due(10.0)
    policy.delivered(1)
    assert policy.due(10.0)
    policy.paused()
    assert not policy.due(20.0)
    policy.delivered(ENOUGH)
    assert policy.due(20.0)
