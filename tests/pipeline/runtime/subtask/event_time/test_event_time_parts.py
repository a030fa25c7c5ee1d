"""The parts of event time in a subtask, each by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from checkpoint.elements import IdleStatus, Watermark
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.event_time.generator import PERIOD
from pipeline import Pipeline, WatermarkStrategy
from pipeline.runtime.subtask.context import contexts_of
from pipeline.runtime.subtask.event_time.domains import TimeDomains
from pipeline.runtime.subtask.event_time.event_time import OutputTime
from pipeline.runtime.subtask.event_time.generated import GeneratedTime
from pipeline.runtime.subtask.event_time.own_state import Identity
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.testing import TestingSource

STRATEGY = WatermarkStrategy.bounded("at", 0)


def domains() -> TimeDomains:
    """Of a source with two `assign_timestamps` behind it, one behind the other."""
    p = Pipeline("job")
    stream = p.source("in", TestingSource()).assign_timestamps(STRATEGY, id="first")
    stream.assign_timestamps(STRATEGY, id="second").map(lambda v: v, id="last")
    vertex = p.plan().vertices[0]
    return TimeDomains(vertex, contexts_of(vertex, RecordInProgress(), 0), lambda: 0.0)


# -- whose state a subtask goes on from -----------------------------------------------------------------------


def of(subtask: int, parallelism: int) -> dict[str, int]:
    return {"subtask": subtask, "parallelism": parallelism, "rest": subtask}


@pytest.mark.parametrize(
    ("states", "own"),
    [
        ([of(0, 2), of(1, 2)], of(1, 2)),
        ([of(0, 3), of(1, 3), of(2, 3)], None),
        ([of(0, 1)], None),
        ([], None),
    ],
)
def test_a_subtasks_own_state_is_that_of_its_index_at_the_same_parallelism(states: Any, own: Any) -> None:
    assert Identity(1, 2).own(states) == own


@pytest.mark.parametrize(
    ("before", "now", "heirs"),
    [
        (2, Identity(1, 2), {1}),
        (4, Identity(1, 2), {1, 3}),
        (2, Identity(1, 4), {1}),
        (2, Identity(3, 4), {1}),
        (1, Identity(2, 3), {0}),
    ],
)
def test_operator_state_comes_from_the_old_subtasks_of_the_same_remainder(
    before: int, now: Identity, heirs: set[int]
) -> None:
    assert now.heirs([of(i, before) for i in range(before)]) == heirs


def test_where_there_were_no_old_subtasks_there_are_no_heirs() -> None:
    assert Identity(1, 2).heirs([]) == set()


# -- watermarks made ------------------------------------------------------------------------------------------


class Made:
    """`GeneratedTime` whose splits are read by the test."""

    def __init__(self) -> None:
        self.domains = domains()
        self.splits: list[Any] | None = None
        self.asked = 0
        self.time = GeneratedTime(self.domains.generated, Identity(0, 1), self.read, lambda: ())
        self.first, self.second = self.domains.generated
        self.time.refresh_splits(0.0)

    def read(self) -> list[Any] | None:
        self.asked += 1
        return self.splits

    def record(self, domain: Any, at: int) -> None:
        split = domain.generator.split(None)
        domain.generator.touch(split, at)
        split.largest = at


def test_watermarks_are_taken_in_the_order_of_the_chain_and_once() -> None:
    one = Made()
    one.record(one.second, 20)
    one.record(one.first, 10)
    assert one.time.on_clock(1.0, False, 10.0)
    assert one.time.take() == [(one.first, 9), (one.second, 19)]
    assert one.time.take() == []


def test_there_is_something_to_pass_on_if_one_of_several_has_news() -> None:
    one = Made()
    assert not one.time.on_clock(1.0, False, 10.0)
    one.record(one.first, 10)
    assert one.time.on_clock(2.0, False, 10.0)


def test_an_idle_status_that_was_not_told_is_something_to_pass_on() -> None:
    one = Made()
    one.splits = []
    one.time.refresh_splits(0.1)
    assert one.time.on_clock(0.1, False, 10.0)
    assert one.time.take() == []
    for domain in one.domains.generated:
        domain.idle = True
    assert not one.time.on_clock(0.2, False, 10.0)


def test_a_generator_whose_event_time_has_ended_makes_nothing_any_more() -> None:
    one = Made()
    one.record(one.first, 10)
    one.record(one.second, 10)
    one.first.watermark = MAX_WATERMARK
    assert [domain for domain, _ in one.time.running()] == [one.second]
    one.time.on_clock(1.0, False, 10.0)
    assert one.time.take() == [(one.second, 9)]


def test_which_splits_are_read_is_asked_once_a_period() -> None:
    one = Made()
    assert one.asked == 1
    one.time.on_clock(PERIOD / 2, False, 10.0)
    assert one.asked == 1
    one.time.on_clock(PERIOD, False, 10.0)
    assert one.asked == 2


# -- what goes downstream -------------------------------------------------------------------------------------


class Edge:
    def __init__(self, step: str) -> None:
        self.edge = SimpleNamespace(upstream_step=step)
        self.sent: list[Any] = []

    def broadcast(self, element: Any) -> None:
        self.sent.append(element)


def test_each_edge_gets_the_time_of_the_domain_that_it_begins_in() -> None:
    found = domains()
    edges: dict[str, Any] = {step: Edge(step) for step in ("in", "first", "second", "last")}
    time = OutputTime(found, list(edges.values()))
    first, second = found.generated
    second.watermark = 5
    time.tell_watermark(second)
    time.tell_idle(first, True)
    time.tell_idle(first, True)
    assert {step: edge.sent for step, edge in edges.items()} == {
        "in": [],
        "first": [IdleStatus(True)],
        "second": [Watermark(5)],
        "last": [Watermark(5)],
    }


def test_all_is_told_once_more_the_watermark_before_the_idle_status() -> None:
    found = domains()
    edges: dict[str, Any] = {step: Edge(step) for step in ("in", "first", "last")}
    time = OutputTime(found, list(edges.values()))
    first, second = found.generated
    first.watermark, first.idle, second.idle = 0, True, False
    found.head.idle = True
    time.repeat()
    assert {step: edge.sent for step, edge in edges.items()} == {
        "in": [IdleStatus(True)],
        "first": [Watermark(0), IdleStatus(True)],
        "last": [],
    }
