"""The receiving ends of a subtask's channels, and how its task thread reads from all of them.

Shared by the task thread and the network thread as described in `output_channel.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from checkpoint.counted import counted
from checkpoint.elements import BarrierElement, Data, Element, EndOfInput, InFlight
from checkpoint.in_flight.input_queue import InputQueue
from pipeline.buffers import BufferConfig
from pipeline.runtime.network.channel_statistics import ChannelStatistics, InputStatistics
from pipeline.runtime.network.debloat import INTERVAL, BufferBudget, Debloater
from pipeline.runtime.network.frames import ChannelId, Credit, FrameError, Header, Kind


def _nobody_captures(checkpoint_id: int, captured: list[InFlight]) -> None:
    pass


class InputChannel:
    """The receiving end of a channel."""

    def __init__(
        self,
        channel_id: ChannelId,
        index: int,
        budget: BufferBudget,
        schedule_credit: Callable[[InputChannel], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = channel_id
        self._clock = clock
        self.index = index
        self._schedule_credit = schedule_credit
        self._lock = threading.Lock()
        self._queue = InputQueue()
        self.on_captured: Callable[[int, list[InFlight]], None] = _nobody_captures
        """Gets the checkpoint's id and what was captured once its barrier has arrived, in the network thread."""
        # written by the task thread
        self.blocked = False
        self._put_back = 0
        """Elements at the head of the queue that were taken, and counted, before."""
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
        """The next element, blocked or not; with `data` false only if it needs no room downstream. A barrier's age
        includes its time in the queue."""
        if not self._queue:
            return None
        with self._lock:
            element = self._queue.take(data)
        if element is None:
            return None
        if self._put_back:
            self._put_back -= 1
        elif type(element) is Data:
            self._consumed_bytes += element.size
            self._consumed_rows += element.rows
            self._consumed_frames += 1
            # announced in steps of half the budget, so that a message is sent now and then and not for every frame
            stale = self._consumed_bytes + self._budget.channel_bytes - self._limit
            if 2 * stale >= self._budget.channel_bytes or (self._starved and self._drained):
                self._ask_for_credit()
        elif type(element) is BarrierElement:
            return BarrierElement(element.aged(self._clock()))
        return element

    def put_back(self, element: InFlight) -> None:
        """Undo `take`, in part if the element is what is left of a batch. It counts as taken all the same."""
        with self._lock:
            self._queue.put_back(element)
        self._put_back += 1

    def capture(self, checkpoint_id: int) -> list[InFlight] | None:
        """Record what is queued and what still arrives in front of the checkpoint's barrier.

        Returns:
            What was captured, if the barrier is here already; else `on_captured` gets it.
        """
        with self._lock:
            return self._queue.capture(checkpoint_id)

    def cancel_capture(self, checkpoint_id: int) -> None:
        with self._lock:
            self._queue.cancel(checkpoint_id)

    def set_budget(self, budget: BufferBudget) -> None:
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
                raise FrameError(
                    f"a frame of {counted(header.length, 'byte')} came without credit on channel {self.id}"
                )
            self._received_bytes += header.length
            self._received_frames += 1

    def put(self, element: Element) -> None:
        if type(element) is EndOfInput:
            self.ended = True
        with self._lock:
            captured = self._queue.arrive(element)
        if captured is not None:
            assert isinstance(element, BarrierElement)
            self.on_captured(element.barrier.checkpoint_id, captured)

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


class InputChannels:
    """All input channels of a subtask, read fairly. Indices are those of `channels`."""

    def __init__(
        self,
        channels: Sequence[ChannelId],
        config: BufferConfig,
        schedule_credit: Callable[[InputChannel], None],
        wake_task: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.channels: tuple[InputChannel, ...] = ()
        self._debloater: Debloater | None = None
        if channels:
            self._debloater = Debloater(config, len(channels))
            budget = self._debloater.budget
            self.channels = tuple(InputChannel(c, i, budget, schedule_credit, clock) for i, c in enumerate(channels))
        self._wake_task = wake_task
        self._order = tuple(self.channels[i:] + self.channels[:i] for i in range(len(channels)))
        self._next = 0
        self._waiting = False
        """The task thread found nothing to read (set by it, cleared by the network thread)."""
        self._observed_at: float | None = None
        self._observed_bytes = 0
        self._observed_active = 0.0
        self._observed_overhead = 0.0

    # -- task thread ------------------------------------------------------------------------------------------

    def poll(self, data: bool = True) -> tuple[int, Element] | None:
        """The next element and the index of its channel, taken in turn from the channels that are not blocked.
        After `None` the task thread is woken when something arrives on one of them.

        Args:
            data: whether anything may be taken; else only what needs no room downstream, such as a barrier that has
                no data in front of it.
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

    def put_back(self, index: int, element: InFlight) -> None:
        """The element was taken from this channel and isn't processed, or not wholly: it comes first again."""
        self.channels[index].put_back(element)
        self._next = index

    def debloat(self, now: float, active_seconds: float, overhead_seconds: float, processed_bytes: int) -> None:
        """Adapt the budgets; call it every `debloat.INTERVAL` seconds or more often (calls in between return at once).

        Args:
            now: monotonic seconds.
            active_seconds: total time since the start that the task thread spent in operators or waiting for room
                downstream, but not waiting for input.
            overhead_seconds: the part of it that went to taking batches, however much is in them.
            processed_bytes: bytes of the batches, or parts of them, that it has processed since the start, whether
                they came on a channel or were restored.
        """
        if self._debloater is None or (self._observed_at is not None and now < self._observed_at + INTERVAL):
            return
        budget = self._debloater.observe(
            processed_bytes - self._observed_bytes,
            active_seconds - self._observed_active,
            overhead_seconds - self._observed_overhead,
        )
        self._observed_at, self._observed_bytes = now, processed_bytes
        self._observed_active, self._observed_overhead = active_seconds, overhead_seconds
        if budget is not None:
            for channel in self.channels:
                channel.set_budget(budget)

    # -- either thread ----------------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """Bytes in all input queues, frames that are still arriving included."""
        return sum(channel.queued_bytes for channel in self.channels)

    def statistics(self) -> InputStatistics:
        queued = self.queued_bytes
        debloater = self._debloater
        return InputStatistics(
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
