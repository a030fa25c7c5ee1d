"""What the source could give and the operators take, over time. Pure; times are seconds since all subtasks run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """Another rate or delay from `begin` to `end`, and again each `period` seconds."""

    begin: float
    end: float
    period: float | None = None
    """From one begin to the next; `None` = it comes once."""
    rate: float | None = None
    """Records/s of the whole source meanwhile; `None` = as usual."""
    delay: float | None = None
    """Seconds an operator takes for a record meanwhile; `None` = as usual."""
    returns: bool = True
    """Whether the source should get to full speed afterwards, so that the time until then says something."""

    def covers(self, seconds: float) -> bool:
        if seconds < self.begin:
            return False
        since = seconds - self.begin
        return (since if self.period is None else since % self.period) < self.end - self.begin

    def turns(self, until: float) -> Iterator[tuple[float, float]]:
        """Begin and end of each time that begins before `until`."""
        begin, length = self.begin, self.end - self.begin
        while begin < until:
            yield begin, begin + length
            if self.period is None:
                return
            begin += self.period


@dataclass(frozen=True)
class Load:
    rate: float
    """Records/s that the whole source could give; 0 = nothing."""
    delay: float
    """Seconds that an operator subtask takes for each record."""
    change: Change | None = None

    def rate_at(self, seconds: float) -> float:
        change = self.change
        return self.rate if change is None or change.rate is None or not change.covers(seconds) else change.rate

    def delay_at(self, seconds: float) -> float:
        change = self.change
        return self.delay if change is None or change.delay is None or not change.covers(seconds) else change.delay

    @property
    def top_rate(self) -> float:
        """The most that the source could give at any time."""
        return max(self.rate, self.change.rate or 0.0) if self.change else self.rate

    def returns(self, until: float) -> list[tuple[float, float]]:
        """The times before `until` at which the source can be at full speed again, each with the time up to which it
        stays so."""
        change = self.change
        if change is None or not change.returns:
            return []
        turns = list(change.turns(until))
        better = (change.rate is not None and change.rate > self.rate) or (
            change.delay is not None and change.delay < self.delay
        )
        if better:
            return [(begin, min(end, until)) for begin, end in turns]
        following = [begin for begin, _ in turns[1:]] + [until]
        return [(end, min(then, until)) for (_, end), then in zip(turns, following, strict=True) if end < until]
