"""How the export of a job's metrics goes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Sending:
    to: str
    """Scheme, host and port. The rest of an address may have a secret in it."""
    every: float
    """Seconds."""
    sent: int = 0
    """How often all metrics have got there."""
    last: float | None = None
    """When they last did, in seconds since 1970."""
    failing_since: float | None = None
    """Since when they don't; `None`: they do, or none were sent yet."""
    why: str | None = None
    """What went wrong last, since then."""

    def after(self, problem: str | None, now: float) -> Sending:
        """They were sent, unless there was a problem."""
        if problem is None:
            return replace(self, sent=self.sent + 1, last=now, failing_since=None, why=None)
        return replace(self, failing_since=now if self.failing_since is None else self.failing_since, why=problem)
