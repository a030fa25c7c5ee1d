"""How many of a step's records may fail: `AtMost` says it, `FailureRate` counts. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from checkpoint.counted import counted
from checkpoint.options import Seconds, is_number, named_options, seconds, whole_number

_PARTS: Final = 60
"""A window is counted in so many parts, and moves on by one."""


@named_options
@dataclass(frozen=True)
class AtMost:
    """A bound for records that fail: `AtMost(0.01)` is 1 % within a minute. More of them fail the attempt.

    `(0.01, 60)` says the same where it is an option. Each step counts for itself, in each subtask.

    Args:
        share: of the records, from 0 to below 1.
        within: seconds or `timedelta`: the window that moves with the clock of the host. Default: 60 s.
        minimum: so many must have failed in the window before the share counts. The first record of a quiet stream
            would be 100 %. Default: 10.

    Raises:
        ValueError: an argument has a value that it can't have.
    """

    share: float
    within: Seconds = 60
    minimum: int = 10

    def __post_init__(self) -> None:
        if not is_number(self.share) or not 0 <= self.share < 1:
            raise ValueError(f"share must be a number from 0 to below 1, such as 0.01 for 1 %, not {self.share!r}")
        seconds(self.within, "within", 0.1, finite=True)
        whole_number(self.minimum, "minimum", 1)


def at_most_of(given: Any) -> AtMost | None:
    """The option `at_most`.

    Raises:
        ValueError: it is none.
    """
    if given is None or isinstance(given, AtMost):
        return given
    if isinstance(given, tuple) and len(given) in (2, 3):
        try:
            return AtMost(*given)
        except ValueError as error:
            raise ValueError(f"at_most: {error}") from None
    raise ValueError(f"at_most must be AtMost(share, within), or such a pair as (0.01, 60), or None; not {given!r}")


@dataclass(frozen=True)
class Exceeded:
    """More records have failed than may."""

    failed: int
    records: int
    """All that came in the same time, the failed ones included."""
    at_most: AtMost

    def __str__(self) -> str:
        within = seconds(self.at_most.within, "within")
        return (
            f"{self.failed:,} of {counted(self.records, 'record')} failed within {within:g} s, which is "
            f"{self.failed / self.records:.2%} and more than at_most={self.at_most.share:.2%} allows"
        )


class FailureRate:
    """Counts the records of one step in one subtask over a window that moves. A new attempt begins at nothing."""

    def __init__(self, at_most: AtMost) -> None:
        self._at_most = at_most
        self._part = seconds(at_most.within, "within") / _PARTS
        self._parts: deque[tuple[int, int, int]] = deque()
        """Number of the part, and what it had: records, failures. The newest one is counted in what follows."""
        self._number = 0
        self._records = 0
        self._failed = 0
        self._sums = [0, 0]
        """Of `_parts`."""

    def record(self, now: float) -> None:
        """A record comes.

        Args:
            now: seconds, monotonic.
        """
        number = int(now / self._part)
        if number != self._number:
            self._move(number)
        self._records += 1

    def failure(self) -> Exceeded | None:
        """The record that came last has failed. Whether that is one too many."""
        self._failed += 1
        failed, records = self._sums[1] + self._failed, self._sums[0] + self._records
        if failed < self._at_most.minimum or failed <= self._at_most.share * records:
            return None
        return Exceeded(failed, records, self._at_most)

    def _move(self, number: int) -> None:
        if self._records:
            self._parts.append((self._number, self._records, self._failed))
            self._sums[0] += self._records
            self._sums[1] += self._failed
        self._number, self._records, self._failed = number, 0, 0
        while self._parts and self._parts[0][0] <= number - _PARTS:
            _, records, failed = self._parts.popleft()
            self._sums[0] -= records
            self._sums[1] -= failed
