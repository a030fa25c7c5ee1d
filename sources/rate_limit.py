"""How many records a source may emit now: a token bucket apart from the clock."""

from __future__ import annotations

import time
from typing import Final

from checkpoint.options import is_number

_BURST_S: Final = 0.1
"""Seconds of the rate that may be saved up: long enough for whole batches, short enough to keep the rate even."""


class RateLimit:
    """At most `rate` records/s. Times are seconds of one monotonic clock, passed in."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * _BURST_S)
        self._tokens = 1.0
        self._filled_at = now

    def allowance(self, now: float) -> int:
        """The records that may be emitted at `now`."""
        self._fill(now)
        return int(self._tokens)

    def take(self, records: int) -> None:
        """Count `records` as emitted."""
        self._tokens -= records

    def wait(self, now: float, records: float = 1.0) -> float:
        """Seconds from `now` until so many records may be emitted at once, which are no more than the burst."""
        self._fill(now)
        return max(0.0, (records - self._tokens) / self._rate)

    def set_rate(self, rate: float, now: float) -> None:
        """Go on with another rate; what was saved up at the old one stays, up to the new burst."""
        self._fill(now)
        self._rate = rate
        self._capacity = max(1.0, rate * _BURST_S)
        self._tokens = min(self._tokens, self._capacity)

    def _fill(self, now: float) -> None:
        self._tokens = min(self._capacity, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now


def admit(limit: RateLimit | None, records: int, timeout: float) -> int:
    """How many of `records` a poll may emit now, `limit` being on `time.monotonic`. Sleeps before it says none: until
    there may be one, at most for `timeout` seconds."""
    if limit is None:
        return records
    now = time.monotonic()
    allowed = min(records, limit.allowance(now))
    if allowed < 1:
        time.sleep(min(timeout, limit.wait(now)))
    return allowed


def check_rate(rate: object, name: str) -> float | None:
    """`rate` as records/s, `None` = unlimited.

    Raises:
        ValueError: it is no number above 0; the message names the option.
    """
    if rate is None:
        return None
    if not (is_number(rate) and 0 < rate < float("inf")):
        raise ValueError(f"{name} must be a number of records/s above 0, or None for no limit; not {rate!r}")
    return float(rate)
