"""Pipelines with joins, of the shapes that failure tests have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from schedules import Ends

from pipeline import Pipeline, WatermarkStrategy
from pipeline.streams import KeyedStream

Shape = Literal["two", "three", "self", "as of"]
SOURCES: Final = {
    "two": ("first", "second"),
    "three": ("first", "second", "third"),
    "self": ("first",),
    "as of": ("first", "second"),
}


class Join(NamedTuple):
    """`low`, `high`: milliseconds."""

    low: int
    high: int
    how: Any

    @property
    def within(self) -> tuple[float, float]:
        return self.low / 1000, self.high / 1000


def together(left: Any, right: Any) -> dict[str, Any]:
    one = right if left is None else left
    return {"key": one["key"], "id": [None if side is None else side["id"] for side in (left, right)]}


def by_key(result: Any, n: int) -> int:
    return len(result["key"]) % n


def with_joins(
    p: Pipeline,
    ends: Ends,
    some: Callable[[], int | None],
    readers: Callable[[], int | None],
    strategy: Callable[[], WatermarkStrategy],
    shape: Shape,
    first: Join,
    second: Join,
    select: Callable[[Any, Any], Any] = together,
) -> None:
    """Add the steps, up to the sinks `out`, `late` and, of three sources, `late three`.

    Args:
        some: a parallelism for each step; `None` = the pipeline's.
        readers: a parallelism for each source.
        second: of what the first join gives with the third source, if there are three.
        select: a slower `together`.
    """

    def source(name: str) -> KeyedStream:
        read = p.source(name, ends.source(name), parallelism=readers())
        return read.assign_timestamps(strategy(), id=f"time of {name}").map(dict).key_by("key")

    one, *others = [source(name) for name in SOURCES[shape]]
    if shape == "as of":
        joined = one.join_as_of(others[0], first.how, select=select, id="join", parallelism=some())
    else:
        other = others[0] if others else one
        joined = one.join(other, first.within, first.how, select=select, id="join", parallelism=some())
    joined.late().sink("late", ends.sink("late"))
    if shape == "three":
        pairs = joined.map(dict, id="pairs").key_by("key")
        joined = pairs.join(others[1], second.within, second.how, select=select, id="join three", parallelism=some())
        joined.late().sink("late three", ends.sink("late three"))
    shifted = joined.partition_custom(by_key).map(dict, id="shifted", parallelism=some())
    shifted.rebalance().sink("out", ends.sink("out"), parallelism=some())
