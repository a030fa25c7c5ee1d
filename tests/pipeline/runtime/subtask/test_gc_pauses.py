"""Full collections stay short, and cycles are found all the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from deadlines import eventually

from pipeline.runtime.subtask.gc_pauses import GcTime, ShortCollections

HOUR = 3600.0


class Node:
    """Refers to itself once `close` was called."""

    def close(self) -> None:
        self.itself = self


class Collector:
    """Full collections, with a clock that says how long each took."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lasts = 0.0
        self.policy = ShortCollections(self._clock)

    def _clock(self) -> float:
        self.now += self._lasts
        return self.now

    def collect(self, seconds: float = 0.0, generation: int = 2) -> None:
        self._lasts = seconds
        gc.collect(generation)
        self._lasts = 0.0


@pytest.fixture
def collector() -> Iterator[Collector]:
    gc.collect()
    gc.disable()  # no collection but the ones asked for
    collector = Collector()
    collector.policy.start()
    try:
        yield collector
    finally:
        collector.policy.stop()
        gc.enable()


def dropped(node: Node) -> weakref.ref[Node]:
    """What finds out whether a cycle is still there."""
    node.close()
    return weakref.ref(node)


def test_what_survives_a_long_collection_is_not_looked_at_again(collector: Collector) -> None:
    kept = [Node()]
    before = gc.get_freeze_count()
    collector.collect(seconds=0.001)
    assert gc.get_freeze_count() <= before
    collector.collect(seconds=0.02)
    assert gc.get_freeze_count() > before
    assert not any(each is kept for each in gc.get_objects())


def test_a_long_collection_is_followed_by_one_that_finds_little(collector: Collector) -> None:
    def full() -> int:
        return int(gc.get_stats()[2]["collections"])

    before = full()
    collector.collect(seconds=0.001)
    collector.collect(seconds=0.02)
    eventually(lambda: full() >= before + 3)


def test_what_survives_a_long_collection_of_young_objects_is_set_aside_too(collector: Collector) -> None:
    kept = [Node()]
    collector.collect(seconds=0.001, generation=1)
    assert any(each is kept for each in gc.get_objects())
    collector.collect(seconds=0.02, generation=1)
    assert not any(each is kept for each in gc.get_objects())


def test_cycles_among_what_is_new_go_at_once_and_others_within_the_hour(collector: Collector) -> None:
    old = [Node()]
    collector.collect(seconds=0.02)
    set_aside, new = dropped(old.pop()), dropped(Node())
    collector.collect(seconds=0.02)
    assert new() is None
    assert set_aside() is not None
    collector.now += HOUR
    collector.collect()
    collector.collect()
    assert set_aside() is None


@pytest.mark.parametrize("generation", [1, 2])
def test_everything_is_looked_at_once_an_hour_if_something_was_set_aside(collector: Collector, generation: int) -> None:
    def look(at: float) -> None:
        collector.now = at
        collector.collect()
        collector.collect()

    look(HOUR)
    kept = [Node()]
    collector.collect(seconds=0.02, generation=generation)
    cycle = dropped(kept.pop())
    look(2 * HOUR - 0.1)
    assert cycle() is not None
    look(2 * HOUR)
    assert cycle() is None


def test_what_is_kept_without_cycles_is_freed_as_ever(collector: Collector) -> None:
    kept = [Node()]
    collector.collect(seconds=0.02)
    gone = weakref.ref(kept[0])
    kept.clear()
    assert gone() is None


def test_afterwards_python_collects_as_before() -> None:
    before = gc.get_threshold()
    policy = ShortCollections()
    policy.start()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (2_000, 3, 3)
    policy.stop()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
    assert policy._collection not in gc.callbacks


def test_counts_collections_between_start_and_stop_only() -> None:
    ticks = iter(range(100))
    time = GcTime(lambda: float(next(ticks)))
    gc.disable()  # no collection but the ones asked for
    try:
        gc.collect()
        time.start()
        gc.collect()
        gc.collect()
        time.stop()
        gc.collect()
    finally:
        gc.enable()
    assert time.seconds == 2
