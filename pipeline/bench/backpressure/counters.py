"""Counters between their reports. Pure."""

from __future__ import annotations

from bisect import bisect_right


class Counters:
    """One counter of several subtasks. Each reports now and then; in between it is taken to grow evenly, so that rates
    don't jump with the moments of the reports. All begin with 0 at time 0."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = {}
        self._values: dict[str, list[float]] = {}
        self._began = 0.0
        """When the subtasks that there are now began."""
        self._before: dict[str, float] = {}
        """What subtasks of the same name had counted by then."""
        self._reporting: set[str] = set()
        """Those that have reported since."""

    def report(self, subtask: str, at: float, value: float) -> None:
        """What the subtask's counter is at `at`, in seconds; later for each subtask from call to call."""
        self._times.setdefault(subtask, [self._began]).append(at)
        self._values.setdefault(subtask, [0.0]).append(self._before.get(subtask, 0.0) + value)
        self._reporting.add(subtask)

    def begin_again(self, at: float) -> None:
        """A restarted job's subtasks begin with 0 at `at`; what was counted before stays, and stands until then."""
        self._began = at
        self._before = {name: values[-1] for name, values in self._values.items()}
        self._reporting = set()
        for name, value in self._before.items():
            self._times[name].append(at)
            self._values[name].append(value)

    @property
    def known_until(self) -> float:
        """Up to when every subtask has reported that ever has, since all began."""
        return min((self._times[name][-1] for name in self._reporting), default=self._began)

    def total(self, at: float) -> int:
        """The sum over all subtasks at `at`; a figure counts until the next one is reported."""
        return round(sum(_between(times, self._values[name], at) for name, times in self._times.items()))


def _between(times: list[float], values: list[float], at: float) -> float:
    after = bisect_right(times, at)
    if after == len(times):
        return values[-1]
    if after == 0:
        return values[0]
    then, soon = times[after - 1], times[after]
    return values[after - 1] + (values[after] - values[after - 1]) * (at - then) / (soon - then)
