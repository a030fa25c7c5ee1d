"""A virtual channel: the production queues at both ends, and a wire between them that keeps order and takes time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from checkpoint.elements import BarrierElement, ChannelName, Data, Element
from checkpoint.in_flight.input_queue import InputQueue
from checkpoint.in_flight.output_queue import OutputQueue
from pipeline.partitioners import Distribution
from simulated.graph import Edge, Row

if TYPE_CHECKING:
    from simulated.scheduler import Scheduler
    from simulated.subtask import Subtask


class Channel:
    def __init__(self, name: ChannelName, edge: Edge, scheduler: Scheduler, input_room: int) -> None:
        self.name = name
        self.edge = edge
        self.output = OutputQueue(overtakes=edge.distribution is not Distribution.BROADCAST)
        self.input = InputQueue()
        self.wire: deque[Element] = deque()
        self.upstream: Subtask
        self.downstream: Subtask
        self.number = 0
        """Among the inputs of the downstream subtask."""
        self.building: list[Row] = []
        """The batch that is not sealed yet."""
        self.output_batches = 0
        self.input_batches = 0
        """On the wire or queued."""
        self._scheduler = scheduler
        self._room = input_room

    def append(self, element: Element) -> None:
        self.output.append(element)
        self.output_batches += type(element) is Data

    def send(self) -> bool:
        """Put the next element on the wire. Data needs credit; the receiver always grants one batch."""
        element = self.output.peek()
        if element is None or (type(element) is Data and self.input_batches >= self._room):
            return False
        self.output.pop()
        if type(element) is Data:
            self.output_batches -= 1
            self.input_batches += 1
        if isinstance(element, BarrierElement):
            barrier = element.aged(self._scheduler.now)
            self._scheduler.log("left", self.name, barrier)
            self.upstream.barrier_left(barrier.checkpoint_id, self)
            element = BarrierElement(barrier, at=self._scheduler.now)
        self.wire.append(element)
        return True

    def arrive(self) -> bool:
        """Take the next element off the wire."""
        if not self.wire:
            return False
        element = self.wire.popleft()
        if isinstance(element, BarrierElement):
            element = BarrierElement(element.barrier, at=self._scheduler.now)
            self._scheduler.log("arrived", self.name, element.barrier.checkpoint_id)
        captured = self.input.arrive(element)
        if isinstance(element, BarrierElement):
            if captured is not None:
                self.downstream.input_captured(element.barrier.checkpoint_id, self, captured)
            self.downstream.announce(self, element)
        return True

    def __bool__(self) -> bool:
        """Whether anything is on its way."""
        return bool(self.building or self.output or self.wire or len(self.input))
