"""Where the time of a restart went."""

from __future__ import annotations

from dataclasses import dataclass


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
