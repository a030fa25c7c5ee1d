"""A channel in memory, and how far a subtask goes at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from checkpoint.elements import BarrierElement, ChannelName, Element, InFlight, is_in_flight
from checkpoint.in_flight.output_queue import Captured
from pipeline.runtime.subtask.mailbox import Mailbox


def _nobody_waits(checkpoint_id: int) -> None:
    pass


class MemoryChannel:
    """Both ends of a channel, in place of `OutputChannel` and `InputChannel`. Each record has a frame of its own.

    No barriers travel: a harness takes its snapshots everywhere at once, and what is queued is in flight.
    """

    target_bytes: Final = 1
    has_room: Final = True
    overdrawn_bytes: Final = 0

    def __init__(self, name: ChannelName) -> None:
        self.name = name
        self.queue: deque[Element] = deque()
        self.on_barrier_left: Callable[[int], None] = _nobody_waits

    def send(self, element: Element) -> None:
        self.queue.append(element)

    def overtake(self, barrier: BarrierElement, record: Callable[[Captured], None]) -> None:
        """The barrier is at the other end at once: what it has overtaken there is captured by the receiver."""
        self.on_barrier_left(barrier.barrier.checkpoint_id)

    def in_flight(self) -> list[InFlight]:
        """What a checkpoint has of the channel."""
        return [element for element in self.queue if is_in_flight(element)]


class SteppingMailbox(Mailbox):
    """Has the record loop, and the firing of timers, left after a number of steps."""

    def __init__(self) -> None:
        self.steps: int | None = None
        """How many are left; `None` = any number."""
        super().__init__()

    @property
    def interrupt(self) -> bool:
        if self.steps is None:
            return False
        self.steps -= 1
        return self.steps < 0

    @interrupt.setter
    def interrupt(self, value: bool) -> None:
        """Nobody else has the loop left."""
