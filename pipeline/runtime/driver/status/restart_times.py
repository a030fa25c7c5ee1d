"""Where the time of restarts went."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from pipeline.runtime.driver.attempt_context import Progress

_KEPT: Final = 1_000
"""Restarts that are remembered."""


@dataclass(frozen=True)
class Recovery:
    """One restart. Times are seconds of the monotonic clock; `None` = not reached."""

    failed_at: float
    """The first sign of the failure came."""
    ended_at: float
    """The failed attempt's last process was gone."""
    submitted_at: float
    """The next attempt began, after the restart strategy's delay."""
    deployed_at: float | None = None
    """All its processes were up."""
    running_at: float | None = None
    """All subtasks ran, state restored."""
    first_commit_at: float | None = None
    """First output was committed."""
    cause: str = ""
    """Why the attempt before failed, in a line."""
    restarted: float = 0.0
    """When the next attempt began, in seconds since 1970."""

    @property
    def phases(self) -> dict[str, float | None]:
        """Seconds by phase, in order; `None` for one whose end was not reached. How long it took until the first sign
        of the failure came can't be known from inside. Restored output may be committed before all subtasks run: then
        nothing is left for `catch_up`."""
        times = (
            self.failed_at,
            self.ended_at,
            self.submitted_at,
            self.deployed_at,
            self.running_at,
            self.first_commit_at,
        )
        names = ("cancel", "wait", "start", "restore", "catch_up")
        return {
            name: None if begin is None or end is None else max(0.0, end - begin)
            for name, begin, end in zip(names, times, times[1:], strict=False)
        }


class Recoveries:
    """The newest restarts of a job. Written by the job's thread; what is read is a copy."""

    def __init__(self) -> None:
        self._restarts: deque[tuple[Recovery, Progress]] = deque(maxlen=_KEPT)
        """What was known when the next attempt began, and how far that came."""

    def begun(self, failed_at: float, ended_at: float, now: float, progress: Progress, cause: str = "") -> None:
        """An attempt begins after one that failed."""
        self._restarts.append((Recovery(failed_at, ended_at, now, cause=cause, restarted=time.time()), progress))

    def all(self) -> list[Recovery]:
        """Oldest first."""
        return [
            replace(
                known,
                deployed_at=progress.deployed_at,
                running_at=progress.running_at,
                first_commit_at=progress.first_commit_at,
            )
            for known, progress in list(self._restarts)
        ]
