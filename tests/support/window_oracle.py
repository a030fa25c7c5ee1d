"""What windows must give, computed in another way: all records are kept, and each question goes through all of them.

Every result is (key, start, end, final, the records' numbers, sorted), whatever the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from checkpoint.state import read_batches
from pipeline.aggregates import Aggregate, Aggregation
from pipeline.operators import KeyedOperator
from pipeline.testing import OperatorHarness
from pipeline.windows import Window
from pipeline.windows.operator import Options
from pipeline.windows.operator_choice import operator_of

END = 2**63 - 1
LONG_AGO = -(10**30)

Bounds: TypeAlias = tuple[int, int]
WindowsOf: TypeAlias = Callable[[int], Iterable[Bounds]]


class Numbers(Aggregate):
    """The records themselves."""

    def create(self) -> Any:
        return ()

    def add(self, acc: Any, value: Any) -> Any:
        return (*acc, value)

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def result(self, acc: Any) -> Any:
        return sorted(acc)


class TimedHarness(OperatorHarness):
    """Outputs come with their timestamps."""

    def _emit(self, output: Any) -> None:
        self.outputs.append((self._record.timestamp, output))


def operator(window: Window, lateness: int = 0, early: int | None = None) -> KeyedOperator:
    """`lateness`, `early`: milliseconds."""
    return operator_of(window, Aggregation({"numbers": Numbers()}), Options(lateness, early))


def told(outputs: Iterable[Any]) -> list[tuple[Any, ...]]:
    """What a `TimedHarness` has given, as the oracle has it. Each must have the last time of its window."""
    found = []
    for timestamp, output in outputs:
        assert timestamp == min(output["end"] - 1, END)
        found.append((output["key"], output["start"], output["end"], output["final"], tuple(output["numbers"])))
    return found


def is_empty(harness: OperatorHarness) -> bool:
    """Whether there is no keyed state left, nor a timer."""
    return not list(read_batches(harness.snapshot().keyed_state))


def every(size: int, slide: int, offset: int = 0) -> WindowsOf:
    """All windows that a time lies in, found by going through those near to it."""

    def windows_of(at: int) -> Iterator[Bounds]:
        near = (at - offset) // slide
        for number in range(near - size // slide - 2, near + 3):
            start = offset + number * slide
            if start <= at < start + size:
                yield start, start + size

    return windows_of


class Oracle:
    """Windows with fixed bounds."""

    def __init__(self, windows_of: WindowsOf, lateness: int = 0) -> None:
        self._windows_of = windows_of
        self._lateness = lateness
        self.reached = LONG_AGO
        """The watermark."""
        self._ahead: dict[Any, int] = {}
        """By key, what its watermark was at least."""
        self._taken: dict[tuple[Any, int, int], list[int]] = {}
        """By key and window the records' numbers."""
        self.results: list[tuple[Any, ...]] = []
        self.late: list[int] = []

    def _time(self, key: Any) -> int:
        return max(self.reached, self._ahead.get(key, LONG_AGO))

    def record(self, key: Any, at: int, number: int) -> None:
        now = self._time(key)
        self._ahead.setdefault(key, now)
        still = [(start, end) for start, end in self._windows_of(at) if now < end - 1 + self._lateness]
        if not still:
            self.late.append(number)
            return
        for start, end in still:
            self._taken.setdefault((key, start, end), []).append(number)
            if now >= end - 1:
                self._tell(key, start, end, False)

    def watermark(self, to: int) -> None:
        if to <= self.reached:
            return
        before = {key: self._time(key) for key in self._ahead}
        self.reached = to
        for key, start, end in list(self._taken):
            closes, now = end - 1 + self._lateness, self._time(key)
            if before[key] < closes and (now >= closes or to == END):
                self._tell(key, start, end, True)
            elif before[key] < end - 1 <= now:
                self._tell(key, start, end, False)

    def _tell(self, key: Any, start: int, end: int, final: bool) -> None:
        self.results.append((key, start, end, final, tuple(sorted(self._taken[key, start, end]))))

    def one_with(self, other: Oracle) -> None:
        """Two subtasks become one."""
        for one in (self, other):
            for key in one._ahead:
                one._ahead[key] = one._time(key)
        self._ahead.update(other._ahead)
        self._taken.update(other._taken)
        self.reached = min(self.reached, other.reached)
        self.results += other.results
        self.late += other.late


class SessionOracle(Oracle):
    """Sessions. Each is all its records, of which its bounds are found anew each time."""

    def __init__(self, gap: int, lateness: int = 0) -> None:
        super().__init__(lambda at: (), lateness)
        self._gap = gap
        self._open: list[tuple[Any, list[tuple[int, int]]]] = []
        """Of each session the key, and of its records time and number."""

    def _bounds(self, records: list[tuple[int, int]]) -> Bounds:
        return min(at for at, _ in records), max(at for at, _ in records) + self._gap

    def record(self, key: Any, at: int, number: int) -> None:
        now = self._time(key)
        self._ahead.setdefault(key, now)
        joined, rest = [(at, number)], []
        for session in self._open:
            start, end = self._bounds(session[1])
            if session[0] == key and start <= at + self._gap and at <= end:
                joined = joined + session[1]
            else:
                rest.append(session)
        end = self._bounds(joined)[1]
        if now >= end - 1 + self._lateness:
            self.late.append(number)
            return
        self._open = [*rest, (key, joined)]
        if now >= end - 1:
            self._tell_session(key, joined, False)

    def watermark(self, to: int) -> None:
        if to <= self.reached:
            return
        before = {key: self._time(key) for key in self._ahead}
        self.reached = to
        for session in list(self._open):
            key, records = session
            end, now = self._bounds(records)[1], self._time(key)
            if now >= end - 1 + self._lateness or to == END:
                self._tell_session(key, records, True)
                self._open.remove(session)
            elif before[key] < end - 1 <= now:
                self._tell_session(key, records, False)

    def _tell_session(self, key: Any, records: list[tuple[int, int]], final: bool) -> None:
        self.results.append((key, *self._bounds(records), final, tuple(sorted(number for _, number in records))))

    def one_with(self, other: Oracle) -> None:
        assert isinstance(other, SessionOracle)
        super().one_with(other)
        self._open += other._open
