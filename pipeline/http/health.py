"""Whether a job is up and moving. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.runtime.driver.status.job_statuses import ENDED
from pipeline.shown_times import human_time, time_of

_LEAST_BOUND: Final = 60.0
_INTERVALS: Final = 3


def default_bound(interval: float | None) -> float:
    """Seconds without a record and without a checkpoint that are no sign of trouble: three intervals between
    checkpoints, and at least a minute."""
    return max(_LEAST_BOUND, _INTERVALS * (interval or 0.0))


@dataclass(frozen=True)
class Readiness:
    ready: bool
    why: str
    """A sentence."""


class Movement:
    """When records or checkpoints have come last, from statuses."""

    def __init__(self, bound: float) -> None:
        """
        Args:
            bound: how long neither may come, in seconds.
        """
        self._bound = bound
        self._seen: tuple[int, float, int] | None = None
        """Restarts, records in all vertices, and checkpoints completed."""
        self._moved: float | None = None

    def note(self, status: Mapping[str, Any], now: float) -> None:
        """
        Args:
            status: a job's, as `WatchedJob` has it.
            now: monotonic clock, seconds.
        """
        records = sum(vertex["recordsIn"] + vertex["recordsOut"] for vertex in status["vertices"].values())
        seen = (status["restarts"], records, status["checkpoints_completed"])
        if seen != self._seen:
            restarted = self._seen is not None and self._seen[0] != seen[0] and self._seen[2] == seen[2]
            if self._seen is not None and not restarted:
                self._moved = now
            self._seen = seen

    def readiness(self, status: Mapping[str, Any], now: float, wall: float) -> Readiness:
        """Ready is a job that runs and has had a record or a completed checkpoint within the bound, has begun to run
        within it, or has nothing to read.

        Args:
            now: as of `note`, so that setting the host's clock makes no job ready or unready.
            wall: the same moment in seconds since 1970, to tell times.
        """
        waits = "".join(
            f"; it waits for {wait['what']} since {time_of(wait['since'])} UTC" for wait in status["waits"][:3]
        )
        running_for = status["running_for"]
        if status["status"] in ENDED:
            return Readiness(False, f"the job is {status['status']}")
        if status["status"] != "running" or running_for is None:
            doing = "restarting" if status["restarts"] else "starting"
            doing = status["status"] if status["status"] in ("restarting", "rescaling") else doing
            phase = next(reversed(status["start"]), None)
            at = "" if phase is None else f": {phase} for {human_time(status['start'][phase])}"
            return Readiness(False, f"the job is {doing}{at}{waits}")
        stands_for = running_for if self._moved is None else min(running_for, now - self._moved)
        if stands_for <= self._bound:
            return Readiness(True, "the job runs and moves")
        if _nothing_to_read(status):
            return Readiness(True, "the job runs, and there is nothing to read")
        return Readiness(
            False,
            f"no record and no completed checkpoint since {time_of(wall - stands_for)} UTC, for "
            f"{human_time(stands_for)}, which is more than {self._bound:g} s{waits}",
        )


def _nothing_to_read(status: Mapping[str, Any]) -> bool:
    """All lag is known, and is 0."""
    lags = [values["recordsLag"] for values in status["subtasks"].values() if "recordsLag" in values]
    return bool(lags) and not status["waits"] and not any(lag is None or lag > 0 for lag in lags)
