"""What leaves a channel's output queue in front of a barrier, and what the barrier has overtaken, is all there was."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.elements import (
    BarrierElement,
    CancelMarker,
    Data,
    Element,
    EndOfInput,
    IdleStatus,
    InFlight,
    RestoreBarrier,
    Watermark,
    is_in_flight,
)
from checkpoint.in_flight.output_queue import OutputQueue


def data(name: str) -> Data:
    return Data(name.encode(), size=10, rows=1)


def aligned(checkpoint_id: int, timeout: float | None = None) -> BarrierElement:
    return BarrierElement(Barrier(checkpoint_id, alignment_timeout=timeout))


def unaligned(checkpoint_id: int) -> BarrierElement:
    return aligned(checkpoint_id, timeout=0.0)


def queue_of(*elements: Element, overtakes: bool = True) -> OutputQueue:
    queue = OutputQueue(overtakes)
    for element in elements:
        queue.append(element)
    return queue


def drained(queue: OutputQueue) -> list[Element]:
    elements = []
    while queue:
        assert queue.peek() is not None
        elements.append(queue.pop())
    assert queue.peek() is None
    return elements


def test_elements_leave_in_the_order_they_came() -> None:
    elements: list[Element] = [data("a"), aligned(1), Watermark(5), CancelMarker(2), data("b"), EndOfInput()]
    assert drained(queue_of(*elements)) == elements


def test_an_unaligned_barrier_overtakes_all_and_captures_what_is_in_flight() -> None:
    queue = queue_of(data("a"), Watermark(5), RestoreBarrier(), IdleStatus(True), EndOfInput())
    assert queue.overtake(unaligned(1)) == {1: [data("a"), Watermark(5), IdleStatus(True)]}
    left = [unaligned(1), data("a"), Watermark(5), RestoreBarrier(), IdleStatus(True), EndOfInput()]
    assert drained(queue) == left


def test_a_barrier_that_overtakes_nothing_captures_nothing() -> None:
    assert OutputQueue().overtake(unaligned(1)) == {1: []}


def test_a_newer_unaligned_barrier_stays_behind_the_older_ones() -> None:
    queue = queue_of(data("a"))
    queue.overtake(unaligned(1))
    queue.append(data("b"))
    assert queue.overtake(unaligned(2)) == {2: [data("a"), data("b")]}
    assert drained(queue) == [unaligned(1), unaligned(2), data("a"), data("b")]


def test_an_aligned_barrier_that_would_be_overtaken_is_turned_and_goes_first() -> None:
    queue = queue_of(data("a"), aligned(1), data("b"), aligned(2, timeout=9.0), data("c"))
    a, b, c = data("a"), data("b"), data("c")
    assert queue.overtake(unaligned(3)) == {1: [a], 2: [a, b], 3: [a, b, c]}
    assert drained(queue) == [unaligned(1), unaligned(2), unaligned(3), a, b, c]


def test_turning_leaves_newer_aligned_barriers_where_they_are() -> None:
    queue = queue_of(data("a"), aligned(1, timeout=9.0), data("b"), aligned(2, timeout=9.0))
    assert queue.make_unaligned(1) == {1: [data("a")]}
    assert drained(queue) == [unaligned(1), data("a"), data("b"), aligned(2, timeout=9.0)]


def test_turning_a_barrier_that_has_left_or_was_turned_does_nothing() -> None:
    queue = queue_of(aligned(1), data("a"), aligned(2), data("b"))
    queue.pop()
    assert queue.make_unaligned(1) == {}
    assert queue.make_unaligned(2) == {2: [data("a")]}
    assert queue.make_unaligned(2) == {}
    assert drained(queue) == [unaligned(2), data("a"), data("b")]


def test_a_turned_barrier_keeps_its_age_and_its_kind() -> None:
    barrier = Barrier(1, CheckpointKind.SAVEPOINT, alignment_timeout=9.0, age=3.0)
    queue = queue_of(data("a"), BarrierElement(barrier, at=100.0))
    queue.make_unaligned(1)
    turned = queue.pop()
    assert isinstance(turned, BarrierElement)
    assert turned.aged(102.0) == Barrier(1, CheckpointKind.SAVEPOINT, alignment_timeout=0.0, age=5.0)


def test_older_cancel_markers_go_along_so_that_ids_stay_in_order() -> None:
    queue = queue_of(data("a"), CancelMarker(1), aligned(2), CancelMarker(3), data("b"))
    queue.overtake(unaligned(4))
    assert drained(queue) == [CancelMarker(1), unaligned(2), CancelMarker(3), unaligned(4), data("a"), data("b")]


def test_on_a_broadcast_edge_barriers_stay_behind_the_data_and_are_marked_all_the_same() -> None:
    queue = queue_of(data("a"), aligned(1, timeout=9.0), CancelMarker(2), data("b"), overtakes=False)
    assert queue.overtake(unaligned(3)) == {1: [], 3: []}
    assert drained(queue) == [data("a"), unaligned(1), CancelMarker(2), data("b"), unaligned(3)]


def test_what_is_captured_does_not_change_when_the_queue_does() -> None:
    queue = queue_of(data("a"))
    captured = queue.overtake(unaligned(1))
    queue.append(data("b"))
    drained(queue)
    assert captured == {1: [data("a")]}


@dataclass
class Sent:
    """A queue beside a record of what was appended."""

    queue: OutputQueue
    appended: list[InFlight] = field(default_factory=list)
    before: dict[int, list[InFlight]] = field(default_factory=dict)
    """What was appended before each barrier."""
    markers: list[int] = field(default_factory=list)
    captured: dict[int, list[InFlight]] = field(default_factory=dict)
    left: list[Element] = field(default_factory=list)
    last_id: int = 0

    def append(self, element: Element) -> None:
        self.queue.append(element)
        if is_in_flight(element):
            self.appended.append(element)  # type: ignore[arg-type]

    def step(self, what: str, which: int) -> None:
        match what:
            case "in flight":
                self.append(Watermark(len(self.appended)) if which == 0 else data(str(len(self.appended))))
            case "no data":
                self.append(RestoreBarrier())
            case "aligned" | "unaligned" | "cancel":
                self.last_id += 1
                if what == "cancel":
                    self.markers.append(self.last_id)
                    self.append(CancelMarker(self.last_id))
                    return
                self.before[self.last_id] = list(self.appended)
                if what == "aligned":
                    self.append(aligned(self.last_id, timeout=9.0 if which else None))
                else:
                    self.record(self.queue.overtake(unaligned(self.last_id)))
            case "turn":
                self.record(self.queue.make_unaligned(which))
            case "pop" if self.queue:
                head = self.queue.peek()
                self.left.append(self.queue.pop())
                assert self.left[-1] is head

    def record(self, captured: dict[int, list[InFlight]]) -> None:
        gone = {e.barrier.checkpoint_id for e in self.left if isinstance(e, BarrierElement)}
        for n, elements in captured.items():
            assert n not in self.captured, "captured once"
            assert n not in gone, "a barrier that has left overtakes nothing"
            self.captured[n] = elements


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["in flight"] * 4 + ["no data", "aligned", "aligned", "unaligned", "cancel", "turn"] + ["pop"] * 4
        ),
        st.integers(0, 6),
    ),
    max_size=40,
)


@pytest.mark.parametrize("overtakes", [True, False])
@given(steps)
@settings(max_examples=300)
def test_what_leaves_in_front_of_a_barrier_and_what_it_captured_is_all_that_came_before_it(
    overtakes: bool, order: list[tuple[str, int]]
) -> None:
    sent = Sent(OutputQueue(overtakes))
    for what, which in order:
        sent.step(what, which)
    while sent.queue:
        sent.step("pop", 0)
    front: list[InFlight] = []
    ids = []
    for element in sent.left:
        match element:
            case BarrierElement(barrier):
                n = barrier.checkpoint_id
                ids.append(n)
                assert front + sent.captured.get(n, []) == sent.before[n]
                assert barrier.unaligned == (n in sent.captured), "it says whether it was turned"
            case CancelMarker(n):
                ids.append(n)
            case Data() | Watermark():
                front.append(element)
    assert front == sent.appended
    assert ids == list(range(1, sent.last_id + 1))
    if not overtakes:
        assert not any(sent.captured.values())
