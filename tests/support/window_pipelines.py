"""Pipelines with windows, of the shapes that failure tests have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from schedules import Ends

from pipeline import Count, Pipeline, WatermarkStrategy
from pipeline.aggregates import Aggregate
from pipeline.streams import Stream
from pipeline.windows import Session, Sliding, Tumbling, Window

Kind = Literal["tumbling", "sliding", "session"]
Shape = Literal["pipeline", "union", "repeated"]
SIZE: Final = 200
"""Milliseconds."""
SLIDE: Final = 60
GAP: Final = 50
SOURCES: Final = {"pipeline": ("first",), "union": ("first", "second", "third"), "repeated": ("first", "second")}


class Ids(Aggregate):
    """The ids of the records."""

    def create(self) -> Any:
        return ()

    def add(self, acc: Any, value: Any) -> Any:
        return (*acc, value["id"])

    def merge(self, a: Any, b: Any) -> Any:
        return (*a, *b)

    def result(self, acc: Any) -> Any:
        return list(acc)


def window_of(kind: Kind) -> Window:
    match kind:
        case "tumbling":
            return Tumbling(SIZE / 1000)
        case "sliding":
            return Sliding(SIZE / 1000, SLIDE / 1000)
        case "session":
            return Session(GAP / 1000)


def by_id(value: Any, n: int) -> int:
    return int(value["id"] + 1) % n


def by_window(result: Any, n: int) -> int:
    return int(result["start"]) // SLIDE % n


def with_windows(
    p: Pipeline,
    ends: Ends,
    some: Callable[[], int | None],
    strategy: Callable[[], WatermarkStrategy],
    kind: Kind,
    shape: Shape,
    lateness: int,
    early: Any = None,
    ids: Aggregate | None = None,
) -> None:
    """Add the steps, up to the sinks `out` and `late`.

    Args:
        some: a parallelism for each step; `None` = the pipeline's.
        lateness: of the windows, in milliseconds.
        ids: a slower `Ids`.
    """

    def source(name: str) -> Stream:
        read = p.source(name, ends.source(name), parallelism=some())
        return read.assign_timestamps(strategy(), id=f"time of {name}").map(dict)

    first, *others = [source(name) for name in SOURCES[shape]]
    stream = first.union(*others) if others else first
    if shape == "repeated":
        stream = stream.partition_custom(by_id).map(dict, id="again", parallelism=some())
    windowed = stream.key_by("key").window(window_of(kind), lateness=lateness / 1000, early=early)
    results = windowed.aggregate("windows", parallelism=some(), n=Count(), ids=ids or Ids())
    shifted = results.partition_custom(by_window).map(dict, id="shifted", parallelism=some())
    shifted.rebalance().sink("out", ends.sink("out"), parallelism=some())
    results.late().sink("late", ends.sink("late"))
