"""How long an outage is waited for, when a refusal counts, and what is told of both."""

from __future__ import annotations

import pytest

from checkpoint.outage import REFUSAL_S, Outage, Refusals
from checkpoint.waiting import Waiting


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def waiting(clock: Clock) -> Waiting:
    return Waiting(clock)


def test_an_outage_without_a_timeout_is_waited_for_however_long_it_lasts(clock: Clock, waiting: Waiting) -> None:
    outage = Outage(waiting, "brokers", None, clock)
    assert outage.away()
    clock.now += 10**7
    assert outage.away()


def test_an_outage_is_over_time_once_it_has_lasted_that_long(clock: Clock, waiting: Waiting) -> None:
    outage = Outage(waiting, "brokers", 5.0, clock)
    assert not outage.lasts
    assert outage.away()
    assert outage.lasts
    clock.now += 4.75
    assert outage.away()
    clock.now += 0.25
    assert not outage.away()


def test_an_outage_that_is_over_begins_anew(clock: Clock, waiting: Waiting) -> None:
    outage = Outage(waiting, "brokers", 5.0, clock)
    outage.away()
    clock.now += 4.0
    outage.over()
    assert not outage.lasts
    assert outage.away()
    clock.now += 4.0
    assert outage.away()


def test_the_first_try_may_say_when_the_outage_began_and_later_ones_do_not_change_it(
    clock: Clock, waiting: Waiting
) -> None:
    outage = Outage(waiting, "brokers", 5.0, clock)
    assert outage.away(clock.now - 4.0)
    clock.now += 1.0
    assert not outage.away(clock.now)


def test_an_outage_is_told_after_two_seconds_with_its_begin_until_it_is_over(clock: Clock, waiting: Waiting) -> None:
    outage = Outage(waiting, "brokers", None, clock)
    outage.away()
    clock.now += 1.75
    outage.away()
    assert not waiting
    clock.now += 0.25
    outage.away()
    assert waiting.report() == [("brokers", 2.0, "brokers")]
    clock.now += 3.0
    assert waiting.report() == [("brokers", 5.0, "brokers")]
    outage.over()
    assert not waiting
    assert waiting.report() == []


def test_a_refusal_counts_once_it_has_gone_on_for_ten_seconds(clock: Clock, waiting: Waiting) -> None:
    outage = Outage(waiting, "brokers", None, clock)
    assert outage.refused()
    clock.now += REFUSAL_S - 0.25
    assert outage.refused()
    clock.now += 0.25
    assert not outage.refused()


def test_a_service_that_goes_away_meanwhile_has_not_refused_for_that_long(clock: Clock, waiting: Waiting) -> None:
    outage = Outage(waiting, "brokers", None, clock)
    outage.refused()
    clock.now += 9.0
    assert outage.away()
    clock.now += 9.0
    assert outage.refused()
    clock.now += 9.0
    assert outage.refused()


def test_a_refusal_is_no_longer_waited_for_than_an_outage(clock: Clock, waiting: Waiting) -> None:
    outage = Outage(waiting, "brokers", 3.0, clock)
    assert outage.refused()
    clock.now += 3.0
    assert not outage.refused()
    outage.over()
    assert outage.refused()


def test_refusals_beside_connections_that_work_count_after_ten_seconds(clock: Clock, waiting: Waiting) -> None:
    refusals = Refusals(waiting, "brokers", clock)
    assert not refusals.count()
    clock.now += 9.75
    assert not refusals.count()
    clock.now += 0.25
    assert refusals.count()


def test_refusals_with_more_than_a_minute_in_between_have_nothing_to_do_with_each_other(
    clock: Clock, waiting: Waiting
) -> None:
    refusals = Refusals(waiting, "brokers", clock)
    refusals.count()
    clock.now += 60.0
    assert refusals.count()
    clock.now += 60.1
    assert not refusals.count()


def test_a_refusal_is_told_as_what_it_is_and_an_outage_again_when_the_service_goes_away(
    clock: Clock, waiting: Waiting
) -> None:
    outage = Outage(waiting, "brokers", None, clock)
    outage.refused()
    clock.now += 2.0
    outage.refused()
    assert waiting.report() == [("brokers, which refuse its user, password or certificate", 2.0, "credentials")]
    clock.now += 1.0
    outage.away()
    assert waiting.report() == [("brokers", 3.0, "brokers")]
    outage.refused(credentials=False)
    assert waiting.report() == [("brokers", 3.0, "brokers")]
    outage.refused()
    outage.over()
    assert waiting.report() == []


def test_refusals_are_told_until_none_has_come_for_a_minute(clock: Clock, waiting: Waiting) -> None:
    refusals = Refusals(waiting, "brokers", clock)
    refusals.count()
    assert waiting.report() == []
    clock.now += 2.0
    refusals.count()
    refusals.look()
    assert waiting.report() == [("brokers, which refuse its user, password or certificate", 2.0, "credentials")]
    clock.now += 60.0
    refusals.look()
    assert waiting
    clock.now += 0.25
    refusals.look()
    assert not waiting


class Error:
    def __init__(self, refused: bool = False, credentials: bool = False) -> None:
        self.refused, self.credentials = refused, credentials


def test_what_a_service_has_not_got_counts_at_once_unless_it_was_away(clock: Clock, waiting: Waiting) -> None:
    outage = Outage(waiting, "brokers", None, clock)
    assert not outage.after_look(None, clock.now)
    assert outage.after_look(Error(), clock.now - 5.0)
    assert waiting.report() == [("brokers", 5.0, "brokers")]
    assert outage.after_look(None, clock.now)
    clock.now += REFUSAL_S
    assert not outage.after_look(None, clock.now)
    assert not outage.lasts
    assert waiting.report() == []


@pytest.mark.parametrize(("credentials", "kind"), [(True, "credentials"), (False, "brokers")])
def test_a_look_that_is_refused_is_tried_for_ten_seconds_and_told_as_what_it_is(
    clock: Clock, waiting: Waiting, credentials: bool, kind: str
) -> None:
    outage = Outage(waiting, "brokers", None, clock)
    assert outage.after_look(Error(True, credentials), clock.now)
    clock.now += REFUSAL_S - 0.1
    assert outage.after_look(Error(True, credentials), clock.now)
    assert [told for _, _, told in waiting.report()] == [kind]
    clock.now += 0.1
    assert not outage.after_look(Error(True, credentials), clock.now)
    assert not outage.lasts
