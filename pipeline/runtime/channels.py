"""The two ends of a channel, and the gate through which a subtask reads its inputs.

Each object is shared by exactly two threads, the subtask's task thread and its network thread; every counter has one
writer, so reads need no lock. Flow control is credit-based in bytes (see `frames.Credit`): nothing is sent that the
receiver hasn't allowed, so the network thread can always drain its sockets, and elements other than data, which
cost no credit, are never stuck in a socket behind data that nobody may read.

Both sides follow the same pattern wherever one thread may wait for the other: raise a flag, look again, then wait;
the other changes the facts first and looks at the flag second.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.buffers import BufferConfig
from pipeline.runtime.debloat import INTERVAL, Budget, Debloater, initial_frame_bytes
from pipeline.runtime.frames import (
    BarrierElement,
    ChannelId,
    Credit,
    Data,
    Element,
    EndOfInput,
    FrameError,
    Header,
    Kind,
)

_QUEUED_FRAMES: Final = 2
"""An output queue has room up to so many frames: one may travel while the next is built."""


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """One end of a channel. Counters are cumulative over the attempt."""

    channel: ChannelId
    bytes: int
    """Bytes of data frames put on the wire (sender) or received, at least in part (receiver)."""
    records: int
    """Records put into the output queue (sender) or taken out of the input queue (receiver)."""
    queued_bytes: int
    """Bytes of data frames in the queue."""
    limit_bytes: int
    """Up to which total the receiver has allowed bytes to be sent."""
    target_bytes: int
    """Size at which a batch should be sent."""


class OutputChannel:
    """The sending end: a queue that is bounded between records, never within one."""

    def __init__(
        self,
        channel_id: ChannelId,
        config: BufferConfig,
        schedule: Callable[[OutputChannel], None],
        wake_task: Callable[[], None],
    ) -> None:
        """`schedule` tells the network thread that there may be something to send; `wake_task` tells the task
        thread that there is room again."""
        self.id = channel_id
        self._schedule = schedule
        self._wake_task = wake_task
        self._lock = threading.Lock()  # removing from the queues, or looking at more than one place in them
        self._queue: deque[Element] = deque()
        self._front: deque[Element] = deque()
        """Elements that overtake `_queue`, in the order in which they were sent."""
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
        self._target_bytes = initial_frame_bytes(config)
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

    def send_priority(self, element: Element) -> list[Element]:
        """Put an element in front of all that is queued, behind earlier ones of this kind.

        Returns:
            What it overtook, in order; it stays queued. (For an unaligned barrier: the channel state. A frame of
            which a part is on the wire is the receiver's, and not in it.)
        """
        with self._lock:
            overtaken = list(self._queue)
            self._front.append(element)
        self._ask_to_send()
        return overtaken

    def _ask_to_send(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._schedule(self)

    @property
    def has_room(self) -> bool:
        """Whether the next record may be processed. After `False` the task thread is woken once the queue has
        fallen below half of its limit."""
        limit = _QUEUED_FRAMES * self._target_bytes
        if self._put_bytes - self._sent_bytes < limit:
            return True
        self._awaits_room = True
        return self._put_bytes - self._sent_bytes < limit

    # -- either thread ----------------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """Bytes of the data frames that are not on the wire yet."""
        return self._put_bytes - self._sent_bytes

    @property
    def target_bytes(self) -> int:
        """Size at which a batch should be sent, as the receiver wishes."""
        return self._target_bytes

    @property
    def finished(self) -> bool:
        """Whether the end of input, and all else that was queued, is on the wire."""
        return self._ended and self.empty

    @property
    def empty(self) -> bool:
        return not self._queue and not self._front

    def statistics(self) -> ChannelStatistics:
        limit = self._credit.limit_bytes if self._credit else 0
        return ChannelStatistics(
            self.id, self._sent_bytes, self._put_rows, self.queued_bytes, limit, self._target_bytes
        )

    # -- network thread ---------------------------------------------------------------------------------------

    def unschedule(self) -> None:
        """The network thread is about to look at the queue; what is sent from now on has to be announced again."""
        self._scheduled = False

    def grant(self, credit: Credit) -> None:
        """The receiver's latest word."""
        self._credit = credit
        self._target_bytes = credit.frame_bytes
        self._stalled = False

    def take(self) -> tuple[Element, int] | None:
        """The next element that may be sent, with its sequence number. It counts as sent from here on."""
        credit = self._credit
        if credit is None:  # the receiver doesn't know the channel yet
            return None
        with self._lock:
            if self._front:
                element = self._front.popleft()
            elif self._queue:
                element = self._queue[0]
                if type(element) is Data and not self._admits(credit, element.size):
                    self._stalled = True
                    return None
                self._queue.popleft()
            else:
                return None
        if type(element) is Data:
            self._sent_bytes += element.size
            self._sent_frames += 1
            if self._awaits_room and 2 * self.queued_bytes < _QUEUED_FRAMES * self._target_bytes:
                self._awaits_room = False
                self._wake_task()
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
            head = self._queue[0] if self._queue else None
        if type(head) is not Data or 2 * head.size <= self._credit.budget_bytes:
            return False
        self._backlogged_frame = self._sent_frames
        return True


class InputChannel:
    """The receiving end of a channel."""

    def __init__(
        self, channel_id: ChannelId, index: int, budget: Budget, schedule_credit: Callable[[InputChannel], None]
    ) -> None:
        self.id = channel_id
        self.index = index
        self._schedule_credit = schedule_credit
        self._queue: deque[Element] = deque()
        # written by the task thread
        self.blocked = False
        self._budget = budget
        self._consumed_bytes = 0
        self._consumed_frames = 0
        self._consumed_rows = 0
        # written by the network thread
        self._received_bytes = 0
        self._received_frames = 0
        self._sequence = 0
        self._limit = 0
        self._admitted_frame = -1
        """Number of the frame that was let in whatever its size."""
        self._starved = False
        self.ended = False
        # set by the task thread, cleared by the network thread
        self._credit_scheduled = False

    # -- task thread ------------------------------------------------------------------------------------------

    def take(self, data: bool = True) -> Element | None:
        """The next element, blocked or not; with `data` false only if it is a control element. A barrier's age
        includes its time in the queue."""
        if not self._queue or not (data or type(self._queue[0]) is not Data):
            return None
        element = self._queue.popleft()
        if type(element) is Data:
            self._consumed_bytes += element.size
            self._consumed_rows += element.rows
            self._consumed_frames += 1
            # announced in steps of half the budget, so that a message is sent now and then and not for every frame
            stale = self._consumed_bytes + self._budget.channel_bytes - self._limit
            if 2 * stale >= self._budget.channel_bytes or (self._starved and self._drained):
                self._ask_for_credit()
        elif type(element) is BarrierElement:
            return BarrierElement(element.aged(time.monotonic()))
        return element

    def set_budget(self, budget: Budget) -> None:
        """Credit that was granted already stays granted: a smaller budget takes effect as the queue drains."""
        self._budget = budget
        self._ask_for_credit()

    def _ask_for_credit(self) -> None:
        if not self._credit_scheduled:
            self._credit_scheduled = True
            self._schedule_credit(self)

    # -- either thread ----------------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """Bytes of the data frames received, even in part, and not taken."""
        return self._received_bytes - self._consumed_bytes

    @property
    def consumed_bytes(self) -> int:
        return self._consumed_bytes

    @property
    def _drained(self) -> bool:
        return self._consumed_frames == self._received_frames

    def statistics(self) -> ChannelStatistics:
        return ChannelStatistics(
            self.id,
            self._received_bytes,
            self._consumed_rows,
            self.queued_bytes,
            self._limit,
            self._budget.frame_bytes,
        )

    # -- network thread ---------------------------------------------------------------------------------------

    def receiving(self, header: Header) -> None:
        """The header of an element's frame is in: from here on the frame is this side's.

        Raises:
            FrameError: an element is missing before it, or it was sent without credit.
        """
        if header.sequence != self._sequence:
            raise FrameError(
                f"element {self._sequence} of channel {self.id} is missing: {header.sequence} came instead"
            )
        self._sequence += 1
        if header.kind == Kind.DATA:
            if self._received_bytes + header.length > self._limit and self._received_frames != self._admitted_frame:
                raise FrameError(f"a frame of {header.length} bytes came without credit on channel {self.id}")
            self._received_bytes += header.length
            self._received_frames += 1

    def put(self, element: Element) -> None:
        if type(element) is EndOfInput:
            self.ended = True
        self._queue.append(element)

    def starve(self) -> bool:
        """The sender waits with a frame that only an empty receiver may admit. Whether credit is due at once."""
        self._starved = True
        return self._drained

    def credit(self) -> Credit:
        """The grant as of now; the caller sends it."""
        self._credit_scheduled = False
        budget = self._budget
        frames = self._consumed_frames
        self._limit = max(self._limit, self._consumed_bytes + budget.channel_bytes)
        if frames == self._received_frames:
            self._starved = False
            self._admitted_frame = frames
        return Credit(self._limit, frames, budget.channel_bytes, budget.frame_bytes)


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """The inputs of a subtask."""

    channels: tuple[ChannelStatistics, ...]
    queued_bytes: int
    """Bytes in all input queues."""
    budget_bytes: int
    """Current input budget of the subtask."""
    rate: float | None
    """Measured bytes per second of active time; `None` before anything was measured."""
    estimated_time_to_consume: float | None
    """Seconds that the queued input takes at the measured rate; `None` if there is no rate to go by."""


class InputGate:
    """All input channels of a subtask, read fairly. Indices are those of `channels`."""

    def __init__(
        self,
        channels: Sequence[ChannelId],
        config: BufferConfig,
        schedule_credit: Callable[[InputChannel], None],
        wake_task: Callable[[], None],
    ) -> None:
        self.channels: tuple[InputChannel, ...] = ()
        self._debloater: Debloater | None = None
        if channels:
            self._debloater = Debloater(config, len(channels))
            budget = self._debloater.budget
            self.channels = tuple(InputChannel(c, i, budget, schedule_credit) for i, c in enumerate(channels))
        self._wake_task = wake_task
        self._order = tuple(self.channels[i:] + self.channels[:i] for i in range(len(channels)))
        self._next = 0
        self._waiting = False
        """The task thread found nothing to read (set by it, cleared by the network thread)."""
        self._observed_at: float | None = None
        self._observed_bytes = 0
        self._observed_active = 0.0

    # -- task thread ------------------------------------------------------------------------------------------

    def poll(self, data: bool = True) -> tuple[int, Element] | None:
        """The next element and the index of its channel, taken in turn from the channels that are not blocked.
        After `None` the task thread is woken when something arrives on one of them.

        Args:
            data: whether data may be taken; else only control elements that have no data in front of them, such as
                a barrier, which needs no room downstream.
        """
        polled = self._poll(data)
        if polled is None:
            self._waiting = True
            polled = self._poll(data)
        return polled

    def _poll(self, data: bool) -> tuple[int, Element] | None:
        if not self._order:
            return None
        for channel in self._order[self._next]:
            if not channel.blocked and (element := channel.take(data)) is not None:
                self._next = (channel.index + 1) % len(self._order)
                return channel.index, element
        return None

    def block(self, index: int) -> None:
        """Take nothing from this channel until `unblock`. It goes on receiving within its budget."""
        self.channels[index].blocked = True

    def unblock(self, index: int) -> None:
        self.channels[index].blocked = False

    def debloat(self, now: float, active_seconds: float, in_hand_bytes: int = 0) -> None:
        """Adapt the budgets; call it every `debloat.INTERVAL` seconds or more often (calls in between return at once).

        Args:
            now: monotonic seconds.
            active_seconds: total time since the start that the task thread spent in operators or waiting for room
                downstream, but not waiting for input.
            in_hand_bytes: bytes of the batch that was polled and is not processed yet.
        """
        if self._debloater is None or (self._observed_at is not None and now < self._observed_at + INTERVAL):
            return
        consumed = sum(channel.consumed_bytes for channel in self.channels) - in_hand_bytes
        budget = self._debloater.observe(consumed - self._observed_bytes, active_seconds - self._observed_active)
        self._observed_at, self._observed_bytes, self._observed_active = now, consumed, active_seconds
        if budget is not None:
            for channel in self.channels:
                channel.set_budget(budget)

    # -- either thread ----------------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """Bytes in all input queues, frames that are still arriving included."""
        return sum(channel.queued_bytes for channel in self.channels)

    def statistics(self) -> GateStatistics:
        queued = self.queued_bytes
        debloater = self._debloater
        return GateStatistics(
            channels=tuple(channel.statistics() for channel in self.channels),
            queued_bytes=queued,
            budget_bytes=debloater.budget.channel_bytes * len(self.channels) if debloater else 0,
            rate=debloater.rate if debloater else None,
            estimated_time_to_consume=debloater.estimated_time_to_consume(queued) if debloater else None,
        )

    # -- network thread ---------------------------------------------------------------------------------------

    def put(self, channel: InputChannel, element: Element) -> None:
        """Queue an element that has arrived, and wake the task thread if it waits for one."""
        channel.put(element)
        if self._waiting and not channel.blocked:
            self._waiting = False
            self._wake_task()
