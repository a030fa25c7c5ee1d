"""A model of a subtask that reads channels: real input queues and a real barrier handler, virtual threads and time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from checkpoint.barriers.events import (
    Barrier,
    BarrierAnnounced,
    BarrierArrived,
    BlockChannel,
    CancelArrived,
    CaptureChannel,
    CheckpointAborted,
    EndOfInputArrived,
    Event,
    ForwardCancel,
    HoldInput,
    ReleaseInput,
    TakeSnapshot,
    Tick,
    UnblockChannel,
)
from checkpoint.barriers.handler import BarrierHandler
from checkpoint.elements import (
    BarrierElement,
    CancelMarker,
    Data,
    Element,
    EndOfInput,
    IdleStatus,
    InFlight,
    Watermark,
)
from checkpoint.in_flight.input_queue import InputQueue

Unit = tuple[bytes, int] | Watermark | IdleStatus
"""A record (its batch and row), or another element that is channel state."""


def units(elements: list[InFlight]) -> list[Unit]:
    result: list[Unit] = []
    for element in elements:
        if isinstance(element, Data):
            result += [(bytes(element.payload), row) for row in range(element.start, element.rows)]
        else:
            result.append(element)
    return result


@dataclass
class Receiver:
    """Network thread, input queues and task thread of a subtask. It does what the barrier handler says, and asserts
    that this makes sense."""

    channels: int
    broadcast: frozenset[int]
    now: float = 100.0
    taken: dict[int, TakeSnapshot] = field(default_factory=dict)
    cuts: dict[int, list[list[Unit]]] = field(default_factory=dict)
    """By checkpoint: what had been processed of each channel."""
    captured: dict[tuple[int, int], list[InFlight]] = field(default_factory=dict)
    """By checkpoint and channel."""
    capturing: set[tuple[int, int]] = field(default_factory=set)
    """Captures that wait for their barrier."""
    cancelled: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    """Before they were taken or cancelled."""
    dropped: set[int] = field(default_factory=set)
    """Aborted at any time."""
    emitted: list[int] = field(default_factory=list)
    """Ids of the barriers and cancel markers sent downstream."""
    due: dict[int, float] = field(default_factory=dict)
    """When a checkpoint turns unaligned, by the barriers seen so far."""

    def __post_init__(self) -> None:
        count = self.channels
        self.handler = BarrierHandler(count, self.now, self.broadcast)
        self.announced: list[deque[Barrier]] = [deque() for _ in range(count)]
        self.queues = [InputQueue() for _ in range(count)]
        self.processed: list[list[Unit]] = [[] for _ in range(count)]
        self.ended: set[int] = set()
        self.blocked: set[int] = set()
        self.holding: int | None = None
        self.current: tuple[int, Data] | None = None

    # -- steps ------------------------------------------------------------------------------------------------------

    def deliver(self, channel: int, element: Element) -> None:
        """The network thread queues an element, and announces it if it is a barrier."""
        if isinstance(element, BarrierElement):
            self.announced[channel].append(element.barrier)
        if (captured := self.queues[channel].arrive(element)) is not None:
            assert isinstance(element, BarrierElement)
            self._complete(element.barrier.checkpoint_id, channel, captured)

    def read_announcement(self, channel: int) -> None:
        barrier = self.announced[channel].popleft()
        self._saw(barrier)
        self.tell(BarrierAnnounced(channel, barrier))

    def ready(self) -> list[int]:
        """Channels of which the task may process something."""
        if self.current is not None:
            return [self.current[0]]
        return [c for c, queue in enumerate(self.queues) if queue and c not in self.blocked]

    def process(self, channel: int) -> None:
        """One row, or one element that is no batch."""
        if self.holding is not None:
            assert channel in self.broadcast, "only broadcast channels are read while the input is held"
        if self.current is None:
            element = self.queues[channel].take()
            assert element is not None
            self._take(channel, element)
        if self.current is not None:
            _, batch = self.current
            self.processed[channel].append((bytes(batch.payload), batch.start))
            self.current = (channel, batch.from_row(batch.start + 1)) if batch.rest > 1 else None

    def _take(self, channel: int, element: Element) -> None:
        match element:
            case Data():
                self.current = (channel, element)
            case BarrierElement(barrier):
                self._saw(barrier)
                self.tell(BarrierArrived(channel, barrier))
            case CancelMarker(n):
                self.tell(CancelArrived(channel, n))
            case EndOfInput():
                self.ended.add(channel)
                self.tell(EndOfInputArrived(channel))
            case Watermark() | IdleStatus():
                self.processed[channel].append(element)

    def abort(self, n: int) -> None:
        if n not in self.taken and n not in self.cancelled:
            self.aborted.add(n)
        self.dropped.add(n)
        for queue in self.queues:
            queue.cancel(n)
        self.capturing = {(m, channel) for m, channel in self.capturing if m != n}
        self.tell(CheckpointAborted(n))

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def tick(self) -> None:
        self.tell(Tick())

    # -- what it comes to -------------------------------------------------------------------------------------------

    def state_of(self, n: int, channel: int) -> list[Unit]:
        """What the checkpoint has of the channel: processed before the snapshot, then captured here."""
        return self.cuts[n][channel] + units(self.captured.get((n, channel), []))

    @property
    def idle(self) -> bool:
        """Nothing is queued, blocked or held, and no checkpoint is under way."""
        return not (any(self.queues) or self.current or self.blocked or self.capturing or self.holding) and (
            self.handler.pending is None
        )

    # -- actions ----------------------------------------------------------------------------------------------------

    def _saw(self, barrier: Barrier) -> None:
        if barrier.alignment_timeout is not None:
            due = self.now if barrier.unaligned else self.now - barrier.age + barrier.alignment_timeout
            n = barrier.checkpoint_id
            self.due[n] = min(self.due.get(n, due), due)

    def over(self) -> set[int]:
        return self.taken.keys() | self.cancelled | self.aborted

    def tell(self, event: Event) -> None:
        actions = self.handler.handle(event, self.now)
        if actions and self.current is not None:
            channel, batch = self.current
            self.queues[channel].put_back(batch)
            self.current = None
        capturing: int | None = None
        """The checkpoint whose captures may come."""
        for action in actions:
            if not isinstance(action, CaptureChannel):
                capturing = None
            match action:
                case BlockChannel(channel):
                    assert channel not in self.blocked
                    self.blocked.add(channel)
                case UnblockChannel(channel):
                    self.blocked.remove(channel)
                case TakeSnapshot(barrier):
                    capturing = barrier.checkpoint_id
                    self._snapshot(action)
                case CaptureChannel(n, channel):
                    assert n == capturing, "captures come right behind their snapshot"
                    self._capture(n, channel)
                case HoldInput(n):
                    assert self.holding is None
                    assert n not in self.over()
                    self.holding = n
                case ReleaseInput(n):
                    assert self.holding == n
                    self.holding = None
                case ForwardCancel(n, _):
                    assert n not in self.over()
                    self.cancelled.add(n)
                    self.emitted.append(n)
        self._check()

    def _snapshot(self, snapshot: TakeSnapshot) -> None:
        n = snapshot.barrier.checkpoint_id
        assert n not in self.over(), "one snapshot a checkpoint, and none of one that is over"
        self.taken[n] = snapshot
        self.emitted.append(n)
        self.cuts[n] = [list(units) for units in self.processed]
        reason = self.due.get(n, self.now + 1) <= self.now
        newer = any(due <= self.now for m, due in self.due.items() if m > n)
        assert snapshot.unaligned or not reason, "it has to be unaligned"
        assert not snapshot.unaligned or reason or newer, "nothing made it unaligned"
        assert snapshot.barrier.unaligned == snapshot.unaligned

    def _capture(self, n: int, channel: int) -> None:
        assert self.taken[n].unaligned, "an aligned checkpoint captures nothing"
        assert channel not in self.broadcast
        captured = self.queues[channel].capture(n)
        if captured is None:
            self.capturing.add((n, channel))
        else:
            self._complete(n, channel, captured)

    def _complete(self, n: int, channel: int, captured: list[InFlight]) -> None:
        self.capturing.discard((n, channel))
        assert (n, channel) not in self.captured
        self.captured[n, channel] = captured

    def _check(self) -> None:
        assert self.handler.blocked == self.blocked
        assert self.handler.holding == (self.holding is not None)
        assert not self.blocked or self.handler.pending is not None, "blocked for nothing"
        late = [n for n, due in self.due.items() if due <= self.now and n not in self.over()]
        if late and not self.broadcast:
            assert all(self.handler.missing(n) == () for n in late), "unaligned checkpoints wait for nothing"
        if self.holding is not None:
            missing = set(self.handler.missing(self.holding))
            assert missing & self.broadcast, "held for nothing"
            assert set(range(self.channels)) - self.broadcast <= self.blocked
