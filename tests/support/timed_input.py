"""Input with times as bad as they come, by a seed: out of order, late, twice, from the future; and silence."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple


class Arrival(NamedTuple):
    """A record as a source reads it."""

    source: str
    partition: int
    id: int
    """Unique over all sources."""
    key: str
    at: int
    """Milliseconds."""
    wait: float
    """Seconds for which nothing happens before it comes."""

    @property
    def value(self) -> dict[str, Any]:
        return {"id": self.id, "key": self.key, "at": self.at}


class _Partition:
    def __init__(self, rng: random.Random, source: str, number: int, start: int) -> None:
        self.source = source
        self.number = number
        self.now = start
        self.largest: int | None = None
        self.weight = rng.choice((1, 1, 3))
        self.silent_until = 0


def timed_input(
    rng: random.Random,
    sources: Sequence[str],
    partitions: int,
    count: int,
    disorder: int,
    wild: bool,
    keys: int = 4,
) -> list[Arrival]:
    """All arrivals, in order of arrival.

    Args:
        partitions: of each source.
        disorder: milliseconds by which a record may be behind the newest one of its partition.
        wild: some records are further behind, or far ahead, and at times nothing comes for a while. Else no record is
            late behind a `WatermarkStrategy.bounded` with this lateness, however partitions are read.
    """
    start = rng.choice((-1000, 0, 10_000))
    parts = [_Partition(rng, source, k, start + rng.randint(-50, 50)) for source in sources for k in range(partitions)]
    step = rng.choice((2, 10, 40))
    names = [f"k{number}" for number in range(rng.randint(1, keys))]
    found: list[Arrival] = []
    while len(found) < count:
        awake = [one for one in parts if one.silent_until <= len(found)] or parts
        part = rng.choices(awake, [one.weight for one in awake])[0]
        if rng.random() < 0.03:
            part.silent_until = len(found) + rng.randint(5, 40)
        part.now += rng.choice((0, 0, 1, step, step, 2 * step, rng.randint(0, 30 * step)))
        at, key = part.now - rng.randint(0, disorder), rng.choice(names)
        if found and rng.random() < 0.1:  # once more what was there before
            twin = rng.choice(found[-20:])
            if wild or (part.largest is None or twin.at >= part.largest - disorder):
                at, key = twin.at, twin.key
        wait = 0.0
        if wild:
            chance = rng.random()
            if chance < 0.08:
                at = part.now - disorder - rng.randint(1, 30 * step)
            elif chance < 0.1:
                at = part.now + rng.randint(1, 100 * step)
            wait = rng.choice((0.0,) * 12 + (0.05, 0.5, 2.0))
        elif part.largest is not None:
            at = max(at, part.largest - disorder)
        part.largest = at if part.largest is None else max(part.largest, at)
        part.now = max(part.now, part.largest) if not wild else part.now
        found.append(Arrival(part.source, part.number, len(found), key, at, wait))
    return found
