"""Days in time zones against walking through the local clock, minute by minute."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from window_oracle import Oracle, TimedHarness, operator, told

from pipeline import Tumbling
from pipeline.windows.days import BeyondCalendar, Days

HOUR = 3_600_000


def ms(zone: str, *when: int, fold: int = 0) -> int:
    return round(datetime(*when, tzinfo=ZoneInfo(zone), fold=fold).timestamp()) * 1000


def bounds(zone: str, at: int, days: int = 1, offset: timedelta = timedelta()) -> tuple[int, int]:
    return Days(ZoneInfo(zone), days, offset).bounds(at)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", (2026, 3, 29), 23),
        ("Europe/Berlin", (2026, 10, 25), 25),
        ("Europe/Berlin", (2026, 6, 1), 24),
        ("America/New_York", (2026, 3, 8), 23),
        ("America/New_York", (2026, 11, 1), 25),
        ("Australia/Lord_Howe", (2026, 4, 5), 24.5),
        ("Australia/Lord_Howe", (2026, 10, 4), 23.5),
        ("Asia/Kolkata", (2026, 3, 29), 24),
        ("America/Sao_Paulo", (2018, 11, 4), 23),  # its clocks skip midnight
        ("America/Havana", (2026, 11, 1), 25),  # its clocks show midnight twice
        ("Pacific/Apia", (2011, 12, 29), 24),  # the next day is skipped
        ("America/New_York", (1883, 11, 18), 24 + 3 / 60 + 58 / 3600),  # railways get standard time
    ],
)
def test_a_day_has_the_hours_of_the_zone(zone, day, hours):
    start = ms(zone, *day)
    assert bounds(zone, start) == (start, start + hours * HOUR)
    assert bounds(zone, start + round(hours * HOUR) - 1) == (start, start + hours * HOUR)
    assert bounds(zone, start - 1)[1] == start


def test_a_day_that_a_zone_skips_has_no_time():
    start, end = bounds("Pacific/Apia", ms("Pacific/Apia", 2011, 12, 31, 5))
    assert (start, end) == (ms("Pacific/Apia", 2011, 12, 31), ms("Pacific/Apia", 2012, 1, 1))


def test_weeks_may_begin_on_mondays_and_days_in_the_morning():
    monday = ms("Europe/Berlin", 2026, 3, 23)
    week = bounds("Europe/Berlin", ms("Europe/Berlin", 2026, 3, 29, 12), 7, timedelta(days=4))
    assert week == (monday, ms("Europe/Berlin", 2026, 3, 30))
    morning = bounds("Europe/Berlin", ms("Europe/Berlin", 2026, 3, 29, 5, 59), 1, timedelta(hours=6))
    assert morning == (ms("Europe/Berlin", 2026, 3, 28, 6), ms("Europe/Berlin", 2026, 3, 29, 6))


ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana", "Asia/Kathmandu")


@settings(deadline=None, max_examples=50)
@given(
    zone=st.sampled_from(ZONES),
    at=st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    days=st.sampled_from((1, 2, 7, 30)),
    offset=st.integers(0, 40).map(lambda hours: timedelta(hours=hours)),
)
def test_windows_follow_each_other_without_gaps_and_begin_when_the_clock_says_so(zone, at, days, offset):
    at = round(at.replace(tzinfo=UTC).timestamp()) * 1000
    one = pickle.loads(pickle.dumps(Days(ZoneInfo(zone), days, offset)))
    start, end = one.bounds(at)
    assert start <= at < end
    assert one.bounds(start) == (start, end)
    assert one.bounds(end - 1) == (start, end)
    assert one.bounds(end)[0] == end
    local = datetime.fromtimestamp(start // 1000, ZoneInfo(zone))
    shown = local - offset
    if local.astimezone(UTC).astimezone(ZoneInfo(zone)) == local and shown.time().minute == 0:
        assert (shown.toordinal() - datetime(1970, 1, 1).toordinal()) % days == 0


def test_what_no_calendar_has_is_refused_by_its_timestamp():
    for at in (-(10**15), 10**15):
        with pytest.raises(BeyondCalendar, match=str(at)):
            bounds("Europe/Berlin", at)


def test_a_day_of_25_hours_gives_one_result_and_the_next_one_begins_behind_it():
    zone = "Europe/Berlin"
    first, second = (ms(zone, 2026, 10, day) for day in (25, 26))
    window = Tumbling(timedelta(days=1), time_zone=zone)
    harness = TimedHarness(operator(window, 1000))
    for number, at in enumerate((first, second - 1, second)):
        harness.process(number, key="ann", timestamp=at)
    harness.watermark(first + 24 * HOUR)
    assert harness.outputs == []
    harness.end_of_input()
    third = ms(zone, 2026, 10, 27)
    assert told(harness.outputs) == [("ann", first, second, True, (0, 1)), ("ann", second, third, True, (2,))]


def test_days_go_by_the_oracle_too():
    zone = "America/New_York"

    def windows_of(at):
        day = datetime.fromtimestamp(at // 1000, ZoneInfo(zone)).date()
        start, end = (ms(zone, *(day + timedelta(days=i)).timetuple()[:3]) for i in (0, 1))
        return [(start, end)]

    harness = TimedHarness(operator(Tumbling(timedelta(days=1), time_zone=zone), HOUR))
    oracle = Oracle(windows_of, HOUR)
    begin = ms(zone, 2026, 3, 7)
    for number in range(500):
        at = begin + (number * 7_919_000) % (5 * 24 * HOUR)
        harness.process(number, key="ann", timestamp=at)
        oracle.record("ann", at, number)
        if number % 9 == 0:
            to = begin + number * 10 * 60_000
            harness.watermark(to)
            oracle.watermark(to)
    harness.end_of_input()
    oracle.watermark(2**63 - 1)
    assert sorted(told(harness.outputs)) == sorted(oracle.results)
    assert harness.side_outputs.get("late", []) == oracle.late
