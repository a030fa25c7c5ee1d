"""What users' code and the outside world of a simulated job share, beyond all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virtual.scheduler import Scheduler

from jobs.graph import Edge, Graph, Row, Step
from jobs.output import OutputSystem

WORLDS: dict[str, World] = {}
"""By name: a pickled step finds its own again."""


_SLOW_SECONDS = 0.4
"""The most that a record takes in a slow step."""


class LateRecord(AssertionError):
    """A watermark has promised that it doesn't come."""


class EndsTooSoon(AssertionError):
    """Event time has ended before the input has."""


class World:
    def __init__(self, name: str, graph: Graph, scheduler: Scheduler, faults: frozenset[str]) -> None:
        self.name = name
        self.graph = graph
        self.scheduler = scheduler
        self.rng = scheduler.rng
        self.faults = faults
        self.output = OutputSystem()
        self.slow_steps: tuple[str, ...] = ()
        """How the ids of steps begin that take long."""
        self.exact = True
        """Nothing may be doubled."""
        self.strict_time = True
        """No record may be late."""
        self.idle_after: float | None = None
        """Seconds after which a split without records is idle; `None`: none ever is."""
        self._read: dict[tuple[str, int], int] = {}
        """By attempt and split: how many rows are read."""
        self.drained = False
        """The user has asked for the end of event time."""
        self.dropped: set[Row] = set()
        """Rows that were in flight in checkpoints which were restored without."""
        self.happened: Callable[[str], None] = lambda moment: None
        """Told of moments at which a crash is of interest; it may kill."""
        WORLDS[name] = self

    def pause(self, chance: float = 1.0, step: str = "") -> None:
        """Code of the user's takes time."""
        if self.slow_steps and step.startswith(self.slow_steps):
            self.scheduler.pause(self.rng.random() * _SLOW_SECONDS)
        elif chance >= 1.0 or self.rng.random() < chance:
            self.scheduler.pause()

    def received(self, step: str, value: Any, ctx: Any) -> tuple[Edge, Row]:
        """A record has come to a step: by which edge, and what it is with its way so far."""
        split, sequence, path, last = value
        edge = self.graph.between(last, step)
        row = Row(split, sequence, (*path, edge.index))
        if self.strict_time and ctx.timestamp is not None:
            watermark = ctx.watermark
            if watermark is not None and ctx.timestamp <= watermark:
                raise LateRecord(f"{step}: {row} at {ctx.timestamp} comes behind watermark {watermark}")
        return edge, row

    def has_read(self, split: int, rows: int) -> None:
        """A reader has read so many rows, those before a restore included."""
        self._read[self._attempt, split] = rows

    def check_all_is_read(self, step: Step) -> None:
        """Event time has ended at a step."""
        if self.drained or not self.exact:
            return  # at least once, a snapshot may know of the end of a channel whose records are read again
        left = [
            split
            for source in self.graph.awaited(step)
            for split in source.splits
            if self._read.get((self._attempt, split), 0) < source.records
        ]
        if left:
            raise EndsTooSoon(f"{step.id}: event time has ended, and of these splits more is to come: {left}")

    @property
    def _attempt(self) -> str:
        """Whose code runs now."""
        current = self.scheduler.current
        assert current is not None
        return current.process.name.partition("/")[0]


def sent(step: str, row: Row) -> list[Any]:
    """A record as a step emits it."""
    return [row.split, row.sequence, list(row.path), step]
