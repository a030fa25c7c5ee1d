"""Days in a time zone: from one midnight to the next, 24 hours long or not (pure)."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from checkpoint.errors import Explained

_DAY: Final = timedelta(days=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MARGIN: Final = 10
"""Days, and half as many windows, near the ends of what Python's dates can say that are left out, whatever the zone."""
_NEAR: Final = 3
"""A day of the local clock begins within so many days of the same day in UTC, where a zone skips one, too."""


class BeyondCalendar(Explained, ValueError):
    """A timestamp that lies in no year from 1 to 9999, so that no day of a time zone can be told."""


class Days:
    """Windows of whole days by the clock of a time zone.

    A day begins when the clock shows midnight (and `offset`) for the first time. Where clocks are put forward over that
    moment, it is the moment at which they would have shown it. So each time belongs to one window exactly.
    """

    def __init__(self, zone: ZoneInfo, days: int, offset: timedelta) -> None:
        """
        Args:
            days: how many a window has; the first one of a window is so many behind 1970-01-01.
            offset: when windows begin, by the clock.
        """
        self._zone = zone
        self._days = days
        whole, self._time = divmod(offset, _DAY)
        self._first_day = _EPOCH_DAY + whole
        self._begin = lru_cache(maxsize=4096)(self._begin_of)
        margin = _MARGIN + _MARGIN // 2 * days
        self._least = self._begin(margin)
        self._most = self._begin(date.max.toordinal() - margin)

    def __reduce__(self) -> tuple[type[Days], tuple[ZoneInfo, int, timedelta]]:
        whole = timedelta(days=self._first_day - _EPOCH_DAY)
        return Days, (self._zone, self._days, whole + self._time)

    def knows(self, at: int) -> bool:
        """Whether there is a window for that time."""
        return self._least <= at < self._most

    def bounds(self, at: int) -> tuple[int, int]:
        """Begin and end of the window that a time lies in, all in milliseconds since the epoch.

        Raises:
            BeyondCalendar: it lies in no year from 1 to 9999.
        """
        if not self.knows(at):
            raise BeyondCalendar(
                f"timestamp {at} lies outside of the years that a time zone's days can be told of (1 to 9999); is it "
                "milliseconds since the epoch?"
            )
        here = (at // 86_400_000) + _EPOCH_DAY
        # Windows may have no time at all in them: a zone has skipped whole days.
        first = self._window_of(here - _NEAR) - 1
        begins = [self._begin_of_window(first + i) for i in range(2 * _NEAR // self._days + 5)]
        i = bisect_right(begins, at)
        return begins[i - 1], begins[i]

    def _window_of(self, day: int) -> int:
        return (day - self._first_day) // self._days

    def _begin_of_window(self, number: int) -> int:
        return self._begin(self._first_day + number * self._days)

    def _begin_of(self, day: int) -> int:
        """When a day begins."""
        local = datetime.combine(date.fromordinal(day), time(), self._zone) + self._time
        return (local.replace(fold=0).astimezone(UTC) - _EPOCH) // _MILLISECOND
