"""What exactly once costs against at least once, by the interval between checkpoints.

Both guarantees run the same job over the same records, one after the other and in turn, so that a machine that gets
slower meanwhile slows both.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from pipeline.bench.errors import BenchFailed
from pipeline.bench.input import records
from pipeline.bench.jobs import Job
from pipeline.bench.reading import Reading
from pipeline.bench.report import Figure, figure
from pipeline.bench.topics import topics
from pipeline.bench.watch import is_over, ran_from
from pipeline.broker.topics import Follower, publish
from pipeline.handle import JobHandle

Guarantee = Literal["at_least_once", "exactly_once"]

_GUARANTEES: Final[tuple[Guarantee, ...]] = ("at_least_once", "exactly_once")
_PARTITIONS: Final = 4
_SAMPLE_S: Final = 0.05


@dataclass(frozen=True)
class Run:
    """One job. Rates are records/s."""

    steady: float
    """What the sources read, from the first completed checkpoint until all is read."""
    whole: float
    """From the moment that all subtasks run until the last output is visible, its last commit included."""
    checkpoints: int


@dataclass(frozen=True)
class Point:
    """Both guarantees at one interval; medians of the rounds."""

    interval_s: float
    at_least_once: Run
    exactly_once: Run

    @property
    def steady_ratio(self) -> float:
        return self.exactly_once.steady / self.at_least_once.steady

    @property
    def whole_ratio(self) -> float:
        return self.exactly_once.whole / self.at_least_once.whole


@dataclass(frozen=True)
class Delivery:
    records: int
    parallelism: int
    rounds: int
    points: list[Point]

    def settings(self) -> dict[str, Any]:
        intervals = [point.interval_s for point in self.points]
        return {"intervals_s": intervals, **{k: v for k, v in asdict(self).items() if k != "points"}}

    def figures(self) -> list[Figure | None]:
        return [
            figure(f"interval {point.interval_s:g} s, {what}", value, unit, "higher")
            for point in self.points
            for what, value, unit in (
                ("at least once, steady", point.at_least_once.steady, "records/s"),
                ("exactly once, steady", point.exactly_once.steady, "records/s"),
                ("at least once, whole", point.at_least_once.whole, "records/s"),
                ("exactly once, whole", point.exactly_once.whole, "records/s"),
                ("steady ratio", point.steady_ratio, ""),
                ("whole ratio", point.whole_ratio, ""),
            )
        ]

    def fields(self) -> dict[str, Any]:
        points = [
            {**asdict(point), "steady_ratio": point.steady_ratio, "whole_ratio": point.whole_ratio}
            for point in self.points
        ]
        return {"points": points}


@dataclass(frozen=True)
class DeliveryOptions:
    intervals: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
    """Seconds between checkpoints."""
    records: int = 3_000_000
    """In each run."""
    parallelism: int = 2
    rounds: int = 1


def measure(servers: str, options: DeliveryOptions, say: Callable[[str], None]) -> Delivery:
    """
    Raises:
        BenchFailed: a run did not end well, or its output is not complete.
        TopicTrouble: the broker doesn't do what is needed.
    """
    o, name = options, f"weir-bench-{uuid.uuid4().hex[:8]}"
    source = f"{name}-in"
    with topics(servers, {source: _PARTITIONS}):
        say(f"publishing {o.records:,} records")
        publish(servers, source, records(o.records))
        points = []
        for interval in o.intervals:
            runs: dict[Guarantee, list[Run]] = {guarantee: [] for guarantee in _GUARANTEES}
            for number in range(o.rounds):
                for guarantee in _GUARANTEES if number % 2 == 0 else reversed(_GUARANTEES):
                    run = _run(servers, source, f"{name}-{guarantee}-{interval:g}-{number}", guarantee, interval, o)
                    runs[guarantee].append(run)
                    say(f"interval {interval:g} s, {guarantee}: {run.steady:,.0f} records/s ({run.whole:,.0f})")
            points.append(Point(interval, _median(runs["at_least_once"]), _median(runs["exactly_once"])))
    return Delivery(o.records, o.parallelism, o.rounds, points)


def _median(runs: list[Run]) -> Run:
    return Run(
        statistics.median(run.steady for run in runs),
        statistics.median(run.whole for run in runs),
        statistics.median_low([run.checkpoints for run in runs]),
    )


def _run(
    servers: str, source: str, target: str, guarantee: Guarantee, interval: float, options: DeliveryOptions
) -> Run:
    with topics(servers, {target: _PARTITIONS}):
        with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder, Follower(servers, target) as follower:
            job = Job("sum", options.parallelism, interval, guarantee)
            handle = job.pipeline(target, servers, source, target, folder).start(restore="none")
            try:
                run = _watch(handle, follower, options.records)
            finally:
                handle.cancel()
        with Follower(servers, target) as reader:
            seen = sum(len(batch) for batch in reader.to_end())
        if seen != options.records:
            raise BenchFailed(f"{seen} records came out of {options.records}")
        return run


def _watch(handle: JobHandle, follower: Follower, expected: int) -> Run:
    reading = Reading()
    visible_at, visible = 0.0, 0
    while not is_over(handle):
        time.sleep(_SAMPLE_S)
        now = time.monotonic()
        if (end := follower.end_offset()) > visible:
            visible_at, visible = now, end
        reading.look(handle, now)
    if (end := follower.end_offset()) > visible:
        visible_at = time.monotonic()
    running_at = ran_from(handle)
    if (steady := reading.steady) is None:
        raise BenchFailed(
            f"all {expected} records were read before the second checkpoint: raise the number of records, or leave out "
            "the long intervals"
        )
    completed = sum(row.status == "completed" for row in handle.checkpoints())
    return Run(steady, expected / (visible_at - running_at), completed)
