"""What grows in `weir bench growth`, and which costs are looked at. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

Axis = Literal["parallelism", "keys", "record-bytes", "partitions", "steps", "subtasks"]


@dataclass(frozen=True)
class Shape:
    """A job to be measured: source, steps that hand records on, a running sum by key, sink."""

    parallelism: int = 2
    keys: int = 10_000
    record_bytes: int = 110
    partitions: int = 4
    steps: int = 1
    """Maps between source and key."""
    records: int = 200_000

    @property
    def subtasks(self) -> int:
        return 2 * self.parallelism


@dataclass(frozen=True)
class Point:
    """One job, exactly once, that has read its topic to the end."""

    shape: Shape
    size: int
    """On the axis."""
    start_s: float
    """From `Pipeline.start` until all subtasks run; Spark's start is in it."""
    checkpoint_s: float | None
    """Median of the completed ones; `None` without any."""
    memory: int
    """Bytes (PSS) of all processes at the worst time."""
    second_a_record: float
    """From the moment that all subtasks run until the last output is visible, for each record."""
    cpu_a_record: float
    """CPU seconds of all processes for each record, from the same moment on."""


@dataclass(frozen=True)
class AxisPlan:
    points: tuple[int, ...]
    shape: Callable[[Shape, int], Shape]
    """The shape with a size on this axis."""


_MOST_BYTES: Final = 200_000_000
"""Of input, so that long records don't fill the disk."""

AXES: Final[dict[Axis, AxisPlan]] = {
    "parallelism": AxisPlan(
        (1, 2, 4, 8), lambda shape, n: replace(shape, parallelism=n, partitions=max(shape.partitions, n))
    ),
    "keys": AxisPlan(
        (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000),
        # Each key is met twice on average, so that nearly all are in the state at the end.
        lambda shape, n: replace(shape, keys=n, records=max(shape.records, 2 * n)),
    ),
    "record-bytes": AxisPlan(
        (100, 1_000, 10_000, 100_000),
        lambda shape, n: replace(shape, record_bytes=n, records=max(1000, min(shape.records, _MOST_BYTES // n))),
    ),
    "partitions": AxisPlan((1, 5, 20, 100, 200), lambda shape, n: replace(shape, partitions=n)),
    "steps": AxisPlan((1, 5, 10, 20), lambda shape, n: replace(shape, steps=n)),
    "subtasks": AxisPlan(
        (2, 4, 8, 16, 32, 64),
        lambda shape, n: replace(shape, parallelism=n // 2, partitions=max(shape.partitions, n // 2)),
    ),
}

COSTS: Final[dict[str, Callable[[Point], float | None]]] = {
    "start": lambda point: point.start_s,
    "checkpoint": lambda point: point.checkpoint_s,
    "memory": lambda point: point.memory,
    "time a record": lambda point: point.second_a_record,
    "CPU a record": lambda point: point.cpu_a_record,
}
