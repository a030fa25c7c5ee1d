"""What can be seen of the running job, put together for the display and the report."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from pipeline.demo.job import OPERATOR, SOURCE
from pipeline.handle import JobHandle
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointStats

_RATE_WINDOW: Final = 2.0


@dataclass(frozen=True)
class Snapshot:
    """The job at one moment."""

    phase: str
    seconds: float
    """Since the job's start."""
    records: int
    """In the input topic."""
    read: int
    """How many of them the source has read."""
    out: int
    """Output records that a `read_committed` reader has seen."""
    rate: float
    """Records/s that the operator has processed of late."""
    checkpoints: tuple[CheckpointStats, ...]
    gates: tuple[str | None, ...]
    """For each source subtask why its gate is closed; `None` = open."""
    restarts: int


class Observer:
    """Follows the metrics over attempts, each of which begins to count anew."""

    def __init__(self, handle: JobHandle, records: int) -> None:
        self._handle = handle
        self._records = records
        self._read = 0
        self._closed = _OverAttempts()
        self._processed = _OverAttempts()
        self._rates: deque[tuple[float, float]] = deque()

    def observe(self, phase: str, seconds: float, out: int) -> Snapshot:
        subtasks = self._handle.metrics()["subtasks"]
        sources = {name: values for name, values in subtasks.items() if _source(name)}
        for name, values in subtasks.items():
            if _source(name):
                self._closed.update(name, values.get("sourceGateClosedMs", 0.0))
            elif OPERATOR in name:
                self._processed.update(name, values.get("recordsIn", 0))
        # Before its first record a reader doesn't know how far it is behind.
        lags = [values.get("recordsLag") for values in sources.values() if values.get("recordsIn")]
        if lags and len(lags) == len(sources) and None not in lags:
            self._read = self._records - int(sum(lags))
        return Snapshot(
            phase,
            seconds,
            self._records,
            max(self._read, out),  # the metrics come later
            out,
            self._rate(seconds),
            tuple(self._handle.checkpoints()),
            tuple(values.get("sourceGateReason") for values in sources.values()),
            self._handle.restarts,
        )

    @property
    def gate_closed(self) -> float:
        """Seconds that the gate was closed, of the source subtask where it was longest."""
        return max(self._closed.totals().values(), default=0.0) / 1000

    def _rate(self, now: float) -> float:
        self._rates.append((now, sum(self._processed.totals().values())))
        while now - self._rates[0][0] > _RATE_WINDOW:
            self._rates.popleft()
        (then, before), (_, count) = self._rates[0], self._rates[-1]
        return (count - before) / (now - then) if now > then else 0.0


class _OverAttempts:
    """Counters by subtask that begin at 0 again when the job restarts."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}
        self._current: dict[str, float] = {}

    def update(self, name: str, value: float) -> None:
        before = self._current.get(name, 0.0)
        if value < before:
            self._ended[name] = self._ended.get(name, 0.0) + before
        self._current[name] = value

    def totals(self) -> dict[str, float]:
        return {name: value + self._ended.get(name, 0.0) for name, value in self._current.items()}


def _source(name: str) -> bool:
    return name.startswith(SOURCE)


def victim(processes: dict[str, int]) -> tuple[str, int] | None:
    """The process to kill: one of those that hold the operator's state."""
    return next(((name, pid) for name, pid in sorted(processes.items()) if OPERATOR in name), None)


def durations(checkpoints: list[CheckpointStats]) -> list[float]:
    """Durations of the completed checkpoints, in seconds."""
    return [row.duration for row in checkpoints if row.status == "completed" and row.duration is not None]


def largest_span(checkpoints: list[CheckpointStats]) -> int:
    """Records between two barriers of one source subtask."""
    return max((row.span_records for row in checkpoints), default=0)
