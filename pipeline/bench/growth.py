"""What a job costs as it grows in one way: time to start, checkpoints, memory, time and CPU of a record."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.bench.fit import Fit, fit
from pipeline.bench.growth_axes import AXES, COSTS, Axis, Point, Shape
from pipeline.bench.helpers import Helper
from pipeline.bench.input import records
from pipeline.bench.report import Figure, figure
from pipeline.bench.topics import topics
from pipeline.broker.topics import publish

_UNITS = {"start": "s", "checkpoint": "s", "memory": "bytes", "time a record": "s", "CPU a record": "s"}


@dataclass(frozen=True)
class Grown:
    """One axis."""

    axis: Axis
    points: list[Point]

    def fits(self) -> dict[str, Fit]:
        """By cost how it grows with the size; those that can't be fitted are left out."""
        sizes = [point.size for point in self.points]
        found = {name: fit(sizes, [cost(point) for point in self.points]) for name, cost in COSTS.items()}
        return {name: one for name, one in found.items() if one is not None}


@dataclass(frozen=True)
class Growth:
    shape: Shape
    """What every axis begins with."""
    interval_s: float
    axes: list[Grown]

    def superlinear(self) -> list[tuple[Axis, str, Fit]]:
        """The costs that grow faster than the size."""
        return [(grown.axis, name, one) for grown in self.axes for name, one in grown.fits().items() if one.superlinear]

    def settings(self) -> dict[str, Any]:
        points = {grown.axis: [point.size for point in grown.points] for grown in self.axes}
        return {**asdict(self.shape), "interval_s": self.interval_s, "axes": points}

    def figures(self) -> list[Figure | None]:
        at_points = [
            figure(f"{grown.axis} {point.size}, {name}", cost(point), _UNITS[name], "lower")
            for grown in self.axes
            for point in grown.points
            for name, cost in COSTS.items()
        ]
        return at_points + [
            figure(f"{grown.axis}, exponent of {name}", one.exponent, "", "lower")
            for grown in self.axes
            for name, one in grown.fits().items()
        ]

    def fields(self) -> dict[str, Any]:
        return {
            "growth": [
                {**asdict(grown), "fits": {name: asdict(one) for name, one in grown.fits().items()}}
                for grown in self.axes
            ],
            "superlinear": [f"{axis}: {name} grows as {one}" for axis, name, one in self.superlinear()],
        }


def measure(
    servers: str,
    axes: Sequence[Axis],
    points: Sequence[int],
    shape: Shape,
    interval: float,
    say: Callable[[str], None],
) -> Growth:
    """
    Args:
        points: sizes to measure instead of those of the axis; empty = those.

    Raises:
        BenchFailed: a job did not end well.
        TopicTrouble: the broker doesn't do what is needed.
    """
    grown = []
    for axis in axes:
        found = []
        for size in points or AXES[axis].points:
            found.append(_point(servers, AXES[axis].shape(shape, size), size, interval))
            say(
                f"{axis} {size:,}: "
                + ", ".join(f"{name} {shown(name, cost(found[-1]))}" for name, cost in COSTS.items())
            )
        grown.append(Grown(axis, found))
    return Growth(shape, interval, grown)


def shown(cost: str, value: float | None) -> str:
    """In the unit that suits it."""
    if value is None:
        return "–"
    match cost:
        case "memory":
            return f"{value / 2**20:,.0f} MiB"
        case "checkpoint":
            return f"{value * 1e3:,.0f} ms"
        case "start":
            return f"{value:.1f} s"
        case _:
            return f"{value * 1e6:,.1f} µs"


def _point(servers: str, shape: Shape, size: int, interval: float) -> Point:
    name = f"weir-bench-{uuid.uuid4().hex[:8]}"
    source, target = f"{name}-in", f"{name}-out"
    with (
        topics(servers, {source: shape.partitions, target: 4}),
        tempfile.TemporaryDirectory(prefix="weir-bench-") as folder,
    ):
        publish(servers, source, records(shape.records, shape.keys, size=shape.record_bytes))
        arguments = (servers, source, target, folder, interval, json.dumps(asdict(shape)))
        with Helper("pipeline.bench.growth_point", *arguments) as helper:
            return Point(shape, size, **helper.line())
