"""Counters between their reports. Pure."""

from __future__ import annotations

from bisect import bisect_right


class Counters:
    """One counter of several subtasks. Each reports now and then; in between it is taken to grow evenly, so that rates
    don't jump with the moments of the reports. All begin with 0 at time 0."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = {}
        self._values: dict[str, list[float]] = {}

    def report(self, subtask: str, at: float, value: float) -> None:
        """What the subtask's counter is at `at`, in seconds; later for each subtask from call to call."""
        self._times.setdefault(subtask, [0.0]).append(at)
        self._values.setdefault(subtask, [0.0]).append(value)

    @property
    def known_until(self) -> float:
        """Up to when every subtask that has ever reported has."""
        return min((times[-1] for times in self._times.values()), default=0.0)

    def total(self, at: float) -> int:
        """Of all subtasks at `at`; what is reported last stands from then on."""
        return round(sum(_between(times, self._values[name], at) for name, times in self._times.items()))


def _between(times: list[float], values: list[float], at: float) -> float:
    after = bisect_right(times, at)
    if after == len(times):
        return values[-1]
    if after == 0:
        return values[0]
    then, soon = times[after - 1], times[after]
    return values[after - 1] + (values[after] - values[after - 1]) * (at - then) / (soon - then)
