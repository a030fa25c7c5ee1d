"""How long a start takes until there is output: a fresh one, one in a Spark session that runs, one after a kill.

Output counts when a `read_committed` consumer has it. The jobs are exactly once, so the first checkpoint is in it.
Records come all the while, from a producer that doesn't wait for the job.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

import psutil

from pipeline.bench.errors import BenchFailed
from pipeline.bench.helpers import Helper
from pipeline.bench.report import Figure, figure
from pipeline.bench.topics import topics
from pipeline.broker.topics import Follower
from pipeline.runtime.driver.start.start_phases import OUTPUT_PHASES

Kind = Literal["fresh", "in a running session", "after a kill"]
KINDS: Final[tuple[Kind, ...]] = ("fresh", "in a running session", "after a kill")

_PARTITIONS: Final = 4
_RATE: Final = 1_000
_LONGEST_S: Final = 120.0
"""Until the first output, beyond the interval."""
_AFTER_OUTPUT_S: Final = 2.0
"""A job that is to be killed goes on for so long, and for an interval, after its first output."""
_SETTLED_S: Final = 0.5


@dataclass(frozen=True)
class Start:
    """One start. Seconds; they count from the start of the process, in a running session from `Pipeline.start`."""

    first_output: float
    phases: dict[str, float]
    """In their order: Python until `Pipeline.start`, those of `JobHandle.start_phases`, and what was left until a
    consumer had it. If restored output came first, that is all from the moment that the job ran."""


@dataclass(frozen=True)
class Starts:
    """Those of one kind, at one interval."""

    kind: Kind
    interval_s: float
    runs: list[Start]

    @property
    def first_output(self) -> float:
        """The median."""
        return statistics.median(run.first_output for run in self.runs)

    @property
    def phases(self) -> dict[str, float]:
        """Medians, phase by phase; they need not add up to the median of the whole."""
        names = dict.fromkeys(name for run in self.runs for name in run.phases)
        return {name: statistics.median(run.phases.get(name, 0.0) for run in self.runs) for name in names}


@dataclass(frozen=True)
class StartOptions:
    intervals: tuple[float, ...] = (1.0, 5.0)
    """Seconds between checkpoints."""
    runs: int = 3
    parallelism: int = 2
    kinds: tuple[Kind, ...] = KINDS


@dataclass(frozen=True)
class StartReport:
    options: StartOptions
    starts: list[Starts] = field(default_factory=list)

    def settings(self) -> dict[str, Any]:
        return {**asdict(self.options), "job": "sum", "delivery": "exactly_once", "rate": _RATE}

    def figures(self) -> list[Figure | None]:
        return [
            figure(f"{one.kind}, interval {one.interval_s:g} s, {what}", value, "s", "lower")
            for one in self.starts
            for what, value in {"first output": one.first_output, **one.phases}.items()
        ]

    def fields(self) -> dict[str, Any]:
        return {
            "starts": [{**asdict(one), "first_output_s": one.first_output, "phases": one.phases} for one in self.starts]
        }


def measure(servers: str, options: StartOptions, say: Callable[[str], None]) -> StartReport:
    """
    Raises:
        BenchFailed: a job did not start, or has no output.
        TopicTrouble: the broker doesn't do what is needed.
    """
    measured = StartReport(options)
    for interval in options.intervals:
        runs: dict[Kind, list[Start]] = {kind: [] for kind in options.kinds}
        for number in range(options.runs):
            for kind, start in _round(servers, interval, options):
                runs[kind].append(start)
                say(f"interval {interval:g} s, {number + 1}, {kind}: first output after {start.first_output:.1f} s")
        measured.starts.extend(Starts(kind, interval, found) for kind, found in runs.items())
    return measured


def _round(servers: str, interval: float, options: StartOptions) -> list[tuple[Kind, Start]]:
    name = f"weir-bench-{uuid.uuid4().hex[:8]}"
    source = f"{name}-in"
    targets = {kind: f"{name}-{number}" for number, kind in enumerate(KINDS)}
    with (
        topics(servers, dict.fromkeys((source, *targets.values()), _PARTITIONS)),
        tempfile.TemporaryDirectory(prefix="weir-bench-") as folder,
        Helper("pipeline.bench.open_loop", servers, source, _RATE, 3600 * _RATE) as sender,
    ):
        sender.line()
        sender.tell(time.monotonic_ns())

        def job(target: str, name: str, session: str) -> _Job:
            return _Job(servers, source, target, folder, interval, options.parallelism, name, session)

        found: list[tuple[Kind, Start]] = []
        if "fresh" in options.kinds or "after a kill" in options.kinds:
            with Follower(servers, targets["fresh"]) as follower:
                found += _fresh_and_killed(
                    lambda: job(targets["fresh"], f"{name}-a", "new"), follower, interval, options
                )
        if "in a running session" in options.kinds:
            target = targets["in a running session"]
            with Follower(servers, target) as follower, job(target, f"{name}-b", "running") as running:
                running.helper.line()
                _follow(follower, _SETTLED_S)
                began = time.monotonic()
                running.helper.tell("")
                found.append(("in a running session", running.first_output(began, follower, interval)))
    return found


def _fresh_and_killed(
    start: Callable[[], _Job], follower: Follower, interval: float, options: StartOptions
) -> Iterator[tuple[Kind, Start]]:
    """`start`: starts a job, and the same one again."""
    began = time.monotonic()
    with start() as job:
        fresh = job.first_output(began, follower, interval)
        if "after a kill" in options.kinds:
            _follow(follower, interval + _AFTER_OUTPUT_S)
    if "fresh" in options.kinds:
        yield "fresh", fresh
    if "after a kill" in options.kinds:
        _follow(follower, _SETTLED_S)  # what the killed job had committed
        began = time.monotonic()
        with start() as job:
            yield "after a kill", job.first_output(began, follower, interval)


class _Job:
    """The process of a job, and all that it has started: killed at the end of the block."""

    def __init__(self, *arguments: object) -> None:
        self.helper = Helper("pipeline.bench.start_job", *arguments)

    def first_output(self, began: float, follower: Follower, interval: float) -> Start:
        """
        Raises:
            BenchFailed: it doesn't start, or nothing comes.
        """
        told = self.helper.line()
        until = time.monotonic() + interval + _LONGEST_S
        while not follower.poll(0.02):
            if time.monotonic() > until:
                raise BenchFailed(f"the job has no output {interval + _LONGEST_S:g} s after its start")
        now = time.monotonic()
        return Start(now - began, _phases(began, told["began"], told["running"], now, self.helper.line()["phases"]))

    def __enter__(self) -> _Job:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            others = psutil.Process(self.helper.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            others = []
        with self.helper:
            self.helper.kill()
        for other in others:
            try:
                other.kill()
            except psutil.NoSuchProcess:
                pass  # it has ended with the job
        psutil.wait_procs(others, 10)


def _phases(began: float, started: float, running: float, came: float, told: dict[str, float]) -> dict[str, float]:
    """
    Args:
        began, started, running, came: when the process began, the job was started, it ran, its output came.
        told: `JobHandle.start_phases`.
    """
    phases = {name: took for name, took in told.items() if name not in OUTPUT_PHASES}
    left = came - running
    for name in OUTPUT_PHASES:
        # What was restored may come before the first new record, and a commit is seen before the driver hears of it.
        phases[name] = min(left, told.get(name, 0.0))
        left -= phases[name]
    return {"Python": started - began, **phases, "read": left}


def _follow(follower: Follower, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        follower.poll(min(0.1, left))
