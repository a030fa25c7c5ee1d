"""What a subtask takes from a channel, and what is captured on it, in front of the barriers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.barriers.events import Barrier
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
from checkpoint.in_flight.input_queue import InputQueue


def data(name: str, rows: int = 1) -> Data:
    return Data(name.encode(), size=10, rows=rows)


def barrier(checkpoint_id: int) -> BarrierElement:
    return BarrierElement(Barrier(checkpoint_id))


def queue_of(*elements: Element) -> InputQueue:
    queue = InputQueue()
    for element in elements:
        assert queue.arrive(element) is None
    return queue


def drained(queue: InputQueue) -> list[Element]:
    elements = []
    while (element := queue.take()) is not None:
        elements.append(element)
    assert len(queue) == 0
    return elements


def test_elements_are_taken_in_the_order_they_arrived() -> None:
    elements: list[Element] = [data("a"), barrier(1), Watermark(3), CancelMarker(2), EndOfInput()]
    assert drained(queue_of(*elements)) == elements


def test_without_room_downstream_only_barriers_and_markers_are_taken() -> None:
    queue = queue_of(barrier(1), CancelMarker(2), RestoreBarrier(), Watermark(3), data("a"), barrier(4))
    assert [queue.take(data=False) for _ in range(4)] == [barrier(1), CancelMarker(2), RestoreBarrier(), None]
    assert drained(queue) == [Watermark(3), data("a"), barrier(4)]
    assert queue.take(data=False) is None


def test_what_is_put_back_comes_first_again() -> None:
    queue = queue_of(data("a", rows=3), data("b"))
    batch = queue.take()
    assert isinstance(batch, Data)
    queue.put_back(batch.from_row(2))
    assert len(queue) == 2
    assert drained(queue) == [data("a", rows=3).from_row(2), data("b")]


def test_a_capture_is_what_is_queued_and_what_arrives_in_front_of_the_barrier() -> None:
    queue = queue_of(data("a"), RestoreBarrier(), IdleStatus(False))
    assert queue.capture(1) is None
    for element in (data("b"), CancelMarker(0), Watermark(7), EndOfInput()):
        assert queue.arrive(element) is None
    assert queue.arrive(barrier(1)) == [data("a"), IdleStatus(False), data("b"), Watermark(7)]
    queue.arrive(data("c"))
    left = [data("a"), RestoreBarrier(), IdleStatus(False), data("b"), CancelMarker(0), Watermark(7), EndOfInput()]
    assert drained(queue) == [*left, data("c")]  # the barrier has done its work


def test_a_capture_ends_at_a_barrier_that_is_queued_already() -> None:
    queue = queue_of(data("a"), barrier(1), data("b"), barrier(2))
    assert queue.capture(1) == [data("a")]
    assert drained(queue) == [data("a"), data("b"), barrier(2)]


def test_a_capture_goes_past_barriers_of_other_checkpoints() -> None:
    queue = queue_of(data("a"), barrier(1), data("b"), barrier(2))
    assert queue.capture(2) == [data("a"), data("b")]
    assert drained(queue) == [data("a"), barrier(1), data("b")]


def test_several_captures_each_end_at_their_own_barrier() -> None:
    queue = queue_of(data("a"))
    assert queue.capture(1) is None
    queue.arrive(data("b"))
    assert queue.take() == data("a")
    assert queue.capture(2) is None
    assert queue.arrive(barrier(1)) == [data("a"), data("b")]
    queue.arrive(data("c"))
    assert queue.arrive(barrier(2)) == [data("b"), data("c")]


def test_a_capture_has_once_what_is_put_back_while_it_is_open() -> None:
    queue = queue_of(data("a", rows=4))
    assert queue.capture(1) is None
    batch = queue.take()
    assert isinstance(batch, Data)
    queue.put_back(batch.from_row(1))
    assert queue.capture(2) is None
    assert queue.arrive(barrier(1)) == [data("a", rows=4)]
    assert queue.arrive(barrier(2)) == [data("a", rows=4).from_row(1)]


def test_taking_goes_on_while_a_capture_is_open_and_changes_nothing_in_it() -> None:
    queue = queue_of(data("a"))
    queue.capture(1)
    assert drained(queue) == [data("a")]
    assert queue.arrive(barrier(1)) == [data("a")]


def test_a_cancelled_capture_leaves_the_barrier_in_the_queue() -> None:
    queue = queue_of(data("a"))
    queue.capture(1)
    queue.cancel(1)
    queue.cancel(2)
    assert queue.arrive(barrier(1)) is None
    assert drained(queue) == [data("a"), barrier(1)]


def test_a_checkpoint_is_captured_once_at_a_time() -> None:
    queue = InputQueue()
    queue.capture(4)
    with pytest.raises(ValueError, match="checkpoint 4 is being captured"):
        queue.capture(4)


Row = tuple[int, int]
"""Number of the element and row in it."""


def rows_of(elements: list[InFlight]) -> list[Row]:
    return [
        (int(element.payload), row) if isinstance(element, Data) else (element.timestamp, 0)
        for element in elements
        if isinstance(element, Data | Watermark)
        for row in (range(element.start, element.rows) if isinstance(element, Data) else [0])
    ]


@dataclass
class Reader:
    """Takes from a queue, and knows what has arrived on it."""

    queue: InputQueue = field(default_factory=InputQueue)
    arrived: list[InFlight] = field(default_factory=list)
    in_front: dict[int, list[Row]] = field(default_factory=dict)
    """By checkpoint: what arrived in front of its barrier."""
    processed: list[Row] = field(default_factory=list)
    at_capture: dict[int, list[Row]] = field(default_factory=dict)
    """What was processed when the capture began."""
    open: set[int] = field(default_factory=set)
    """Captures."""
    captured: dict[int, list[InFlight]] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    """Barriers; nothing is captured for them any more."""
    current: InFlight | None = None
    last_id: int = 0

    def step(self, what: str, which: int) -> None:
        match what:
            case "data":
                self._arrive(Data(str(len(self.arrived)).encode(), 1, rows=1 + which))
            case "watermark":
                self._arrive(Watermark(len(self.arrived)))
            case "end":
                self._arrive(EndOfInput())
            case "barrier" | "cancel marker":
                self.last_id += 1
                self._arrive(barrier(self.last_id) if what == "barrier" else CancelMarker(self.last_id))
            case "capture":
                self._capture(which)
            case "give up":
                self.queue.cancel(which)
                self.open.discard(which)
            case "process":
                self._process(which)
            case "take":
                self._process(rows=5)
                self._take(data=which > 0)

    def _arrive(self, element: Element) -> None:
        if is_in_flight(element):
            self.arrived.append(element)  # type: ignore[arg-type]
        captured = self.queue.arrive(element)
        if not isinstance(element, BarrierElement):
            assert captured is None
            return
        n = element.barrier.checkpoint_id
        self.in_front[n] = rows_of(self.arrived)
        assert (captured is not None) == (n in self.open)
        if captured is not None:
            self.open.remove(n)
            self.captured[n] = captured

    def _take(self, data: bool) -> None:
        element = self.queue.take(data)
        assert data or not isinstance(element, Data | Watermark)
        if isinstance(element, BarrierElement):
            n = element.barrier.checkpoint_id
            assert n not in self.captured, "a barrier that ended a capture isn't queued"
            assert self.processed == self.in_front[n]
            self.taken.add(n)
        elif isinstance(element, Data | Watermark):
            self.current = element

    def _process(self, rows: int) -> None:
        """So many rows of what is in progress; the rest goes back."""
        if self.current is None:
            return
        todo = rows_of([self.current])
        self.processed += todo[:rows]
        if rows < len(todo):
            self.queue.put_back(
                self.current.from_row(todo[rows][1]) if isinstance(self.current, Data) else self.current
            )
        self.current = None

    def _capture(self, which: int) -> None:
        free = [n for n in range(1, self.last_id + 3) if n not in self.at_capture and n not in self.taken]
        self._process(rows=which)
        if not free:
            return
        n = free[which % len(free)]
        self.at_capture[n] = list(self.processed)
        captured = self.queue.capture(n)
        assert (captured is not None) == (n in self.in_front)
        if captured is None:
            self.open.add(n)
        else:
            self.captured[n] = captured


STEPS = ["data"] * 4 + ["watermark", "end", "barrier", "cancel marker", "capture", "capture", "give up"]
steps = st.lists(st.tuples(st.sampled_from(STEPS + ["take"] * 4 + ["process"] * 3), st.integers(0, 4)), max_size=50)


@given(steps)
@settings(max_examples=400)
def test_what_was_processed_and_what_is_captured_is_all_that_arrived_in_front_of_the_barrier(
    order: list[tuple[str, int]],
) -> None:
    reader = Reader()
    for what, which in order:
        reader.step(what, which)
    while reader.queue or reader.current:
        reader.step("take", 1)
    assert reader.processed == rows_of(reader.arrived)
    for n, captured in reader.captured.items():
        assert reader.at_capture[n] + rows_of(captured) == reader.in_front[n]
