"""The sending end of a channel.

It is shared by exactly two threads, the subtask's task thread and its network thread; every counter has one writer, so
reads need no lock. Flow control is credit-based in bytes (see `frames.Credit`): nothing is sent that the receiver
hasn't allowed, so the network thread can always drain its sockets, and elements other than data, which cost no
credit, are never stuck in a socket behind data that nobody may read.

Both ends of a channel follow the same pattern wherever one thread may wait for the other: raise a flag, look again,
then wait; the other changes the facts first and looks at the flag second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from checkpoint.elements import BarrierElement, Data, Element, EndOfInput
from checkpoint.in_flight.output_queue import Captured, OutputQueue
from pipeline.buffers import BufferConfig
from pipeline.runtime.network.channel_statistics import ChannelStatistics
from pipeline.runtime.network.debloat import initial_frame_bytes
from pipeline.runtime.network.frames import ChannelId, Credit

_QUEUED_FRAMES: Final = 2
"""An output queue has room up to so many frames: one may travel while the next is built."""


def _nobody_waits(checkpoint_id: int) -> None:
    pass


class OutputChannel:
    """The sending end: a queue that is bounded between records, never within one."""

    def __init__(
        self,
        channel_id: ChannelId,
        config: BufferConfig,
        schedule: Callable[[OutputChannel], None],
        wake_task: Callable[[], None],
        overtakes: bool = True,
    ) -> None:
        """
        Args:
            schedule: tells the network thread that there may be something to send.
            wake_task: tells the task thread that there is room again.
            overtakes: whether unaligned barriers overtake data here (not on broadcast edges).
        """
        self.id = channel_id
        self._schedule = schedule
        self._wake_task = wake_task
        self._lock = threading.Lock()  # removing from the queue, or looking at more than one place in it
        self._queue = OutputQueue(overtakes)
        self.on_barrier_left: Callable[[int], None] = _nobody_waits
        """Told the checkpoint's id when its barrier goes on the wire, in the network thread."""
        # written by the task thread
        self._put_bytes = 0
        self._put_rows = 0
        self._ended = False
        self._awaits_room = False
        # written by the network thread
        self._credit: Credit | None = None
        self._sent_bytes = 0
        self._sent_frames = 0
        self._sequence = 0
        self.target_bytes = initial_frame_bytes(config)
        """Size at which a batch should be sent, as the receiver wishes. Read for every record."""
        self._stalled = True
        """The head of the queue waits for credit: what is added behind it is no news to the network thread."""
        self._backlogged_frame = -1
        # set by the task thread, cleared by the network thread
        self._scheduled = False

    # -- task thread ------------------------------------------------------------------------------------------

    def send(self, element: Element) -> None:
        """Append to the queue; never blocks."""
        if type(element) is Data:
            self._put_bytes += element.size
            self._put_rows += element.rows
        elif type(element) is EndOfInput:
            self._ended = True
        self._queue.append(element)
        if not self._stalled:
            self._ask_to_send()

    def overtake(self, barrier: BarrierElement, record: Callable[[Captured], None]) -> None:
        """Put an unaligned barrier in front of all that is queued, behind older barriers.

        Args:
            record: gets what was overtaken, by this barrier and by those that it made unaligned, before any of them
                can leave. (A frame of which a part is on the wire is the receiver's, and not in it.)
        """
        with self._lock:
            record(self._queue.overtake(barrier))
        self._ask_to_send()

    def make_unaligned(self, checkpoint_id: int, record: Callable[[Captured], None]) -> None:
        """Let the aligned barriers up to this id overtake what is queued; `record` as for `overtake`."""
        with self._lock:
            record(self._queue.make_unaligned(checkpoint_id))
        self._ask_to_send()

    def _ask_to_send(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._schedule(self)

    @property
    def has_room(self) -> bool:
        """Whether the next record may be processed. After `False` the task thread is woken once the queue has
        fallen below half of its limit."""
        limit = _QUEUED_FRAMES * self.target_bytes
        if self._put_bytes - self._sent_bytes < limit:
            return True
        self._awaits_room = True
        return self._put_bytes - self._sent_bytes < limit

    @property
    def overdrawn_bytes(self) -> int:
        """By how much the queue exceeds its limit."""
        return max(0, self._put_bytes - self._sent_bytes - _QUEUED_FRAMES * self.target_bytes)

    # -- either thread ----------------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """Bytes of the data frames that are not on the wire yet."""
        return self._put_bytes - self._sent_bytes

    @property
    def finished(self) -> bool:
        """Whether the end of input, and all else that was queued, is on the wire."""
        return self._ended and self.empty

    @property
    def empty(self) -> bool:
        return not self._queue

    def statistics(self) -> ChannelStatistics:
        limit = self._credit.limit_bytes if self._credit else 0
        return ChannelStatistics(self.id, self._sent_bytes, self._put_rows, self.queued_bytes, limit, self.target_bytes)

    # -- network thread ---------------------------------------------------------------------------------------

    def unschedule(self) -> None:
        """The network thread is about to look at the queue; what is sent from now on has to be announced again."""
        self._scheduled = False

    def grant(self, credit: Credit) -> None:
        """The receiver's latest word."""
        self._credit = credit
        self.target_bytes = credit.frame_bytes
        self._stalled = False

    def take(self) -> tuple[Element, int] | None:
        """The next element that may be sent, with its sequence number. It counts as sent from here on."""
        credit = self._credit
        if credit is None:  # the receiver doesn't know the channel yet
            return None
        with self._lock:
            element = self._queue.peek()
            if element is None:
                return None
            if type(element) is Data and not self._admits(credit, element.size):
                self._stalled = True
                return None
            self._queue.pop()
        if type(element) is Data:
            self._sent_bytes += element.size
            self._sent_frames += 1
            if self._awaits_room and 2 * self.queued_bytes < _QUEUED_FRAMES * self.target_bytes:
                self._awaits_room = False
                self._wake_task()
        elif type(element) is BarrierElement:
            self.on_barrier_left(element.barrier.checkpoint_id)
        sequence = self._sequence
        self._sequence += 1
        return element, sequence

    def _admits(self, credit: Credit, size: int) -> bool:
        return self._sent_bytes + size <= credit.limit_bytes or self._sent_frames == credit.consumed_frames

    def backlog(self) -> bool:
        """Whether the receiver must be told, now and once for this frame, that only an empty receiver may admit the
        head of the queue. (Smaller frames pass without: an empty receiver has announced half its budget.)"""
        if not self._stalled or self._credit is None or self._backlogged_frame == self._sent_frames:
            return False
        with self._lock:
            head = self._queue.peek()
        if type(head) is not Data or 2 * head.size <= self._credit.budget_bytes:
            return False
        self._backlogged_frame = self._sent_frames
        return True
