"""The barrier handler: when a subtask with several inputs takes its snapshot.

*Aligned:* a channel that has delivered barrier n is blocked until every other channel has delivered it too; then the
snapshot holds exactly what came in front of the barriers. *Unaligned:* on the first sight of barrier n, though it may
be queued behind data, the subtask takes its snapshot, and what lies in front of the barriers becomes channel state.
An aligned checkpoint turns unaligned when it has been under way for its alignment timeout, when its barrier arrives
made unaligned upstream, or when the barrier of a newer checkpoint would overtake it here.

Barriers and cancel markers keep the order of their ids on every channel, so a channel that shows a newer id will never
show an older one.

*Broadcast channels* always align, since a subtask that has emitted for a broadcast element and one that has not can't
be told apart after rescaling. Once a checkpoint is unaligned the subtask reads its broadcast channels up to their
barriers, before anything else, and then takes the snapshot.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from checkpoint.barriers.events import (
    Action,
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
from checkpoint.counted import counted


@dataclass(slots=True)
class _Known:
    """A checkpoint of which this subtask has seen a barrier and has not taken its snapshot."""

    barrier: Barrier
    started: float
    """When its first barrier was seen."""
    born: float
    """Clock value of the trigger, by the oldest barrier so far."""
    unaligned: bool = False
    announced: set[int] = field(default_factory=set)
    """Channels on which the barrier has arrived and is queued."""
    delivered: set[int] = field(default_factory=set)
    """Channels from which the barrier was taken."""

    @property
    def shown(self) -> set[int]:
        return self.announced | self.delivered

    @property
    def due(self) -> float | None:
        """When it turns unaligned, a clock value."""
        timeout = self.barrier.alignment_timeout
        return None if timeout is None else self.born + timeout


class BarrierHandler:
    """Aligns the barriers of one subtask, or doesn't. Pure: events in, actions out, the clock passed in.

    `BarrierArrived`, `CancelArrived` and `EndOfInputArrived` are elements of a channel and come in its order, never
    while it is blocked; `BarrierAnnounced` and `CheckpointAborted` come at any time, announcements of a channel in its
    order, before or after the barrier is taken from it.

    The end of a channel's data does not exempt it: its upstream subtask stays until the final checkpoint is
    committed and sends the barrier of every checkpoint until then.
    """

    def __init__(self, channels: int, now: float, broadcast: Collection[int] = ()) -> None:
        """`broadcast`: the channels of broadcast edges."""
        if channels < 1:
            raise ValueError(f"a barrier handler needs at least one channel, not {channels}")
        self._channels = channels
        self._broadcast = frozenset(broadcast)
        if not self._broadcast <= set(range(channels)):
            raise ValueError(
                f"broadcast channels {sorted(self._broadcast)} are not all among {counted(channels, 'channel')}"
            )
        self._now = now
        """Last clock value; threads read the clock apart, so it is never taken back."""
        self._known: dict[int, _Known] = {}
        self._last = 0
        """Largest id taken or cancelled here. All up to it are over."""
        self._over: set[int] = set()
        """Ids above `_last` that are over although an older checkpoint may still be taken."""
        self._lost: dict[int, str] = {}
        """Those of `_over` that are cancelled downstream, with the message, once no older checkpoint is known: in front
        of the older one's barrier the cancel marker would say that it never comes."""
        self._blocked: set[int] = set()
        self._holding: int | None = None
        """The unaligned checkpoint that waits for barriers on broadcast channels."""

    # -- what the runtime reads -------------------------------------------------------------------------------------

    @property
    def pending(self) -> int | None:
        """The checkpoint whose barriers are being waited for."""
        return min((n for n, known in self._known.items() if known.delivered), default=self._holding)

    @property
    def blocked(self) -> frozenset[int]:
        """Channels from which nothing may be taken."""
        return frozenset(self._blocked)

    @property
    def holding(self) -> bool:
        """Between `HoldInput` and `ReleaseInput`."""
        return self._holding is not None

    def missing(self, checkpoint_id: int) -> tuple[int, ...]:
        """Channels that have not delivered the barrier; none once the checkpoint is over here."""
        if self._is_over(checkpoint_id):
            return ()
        known = self._known.get(checkpoint_id)
        delivered = known.delivered if known is not None else frozenset()
        return tuple(c for c in range(self._channels) if c not in delivered)

    def next_deadline(self, now: float) -> float | None:
        """When to send the next `Tick`, a clock value; `None`: nothing will turn unaligned."""
        return min((k.due for k in self._known.values() if not k.unaligned and k.due is not None), default=None)

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Action]:
        """What to do about `event`, in this order.

        Raises:
            ValueError: there is no such channel, or an element of a blocked channel was taken.
        """
        self._now = max(self._now, now)
        match event:
            case BarrierArrived(channel, barrier):
                self._check_element(channel)
                return self._seen(channel, barrier, taken=True)
            case BarrierAnnounced(channel, barrier):
                self._check_channel(channel)
                return self._seen(channel, barrier, taken=False)
            case CancelArrived(channel, checkpoint_id):
                self._check_element(channel)
                return self._cancel(channel, checkpoint_id)
            case EndOfInputArrived(channel):
                self._check_element(channel)
                return []
            case CheckpointAborted(checkpoint_id):
                return self._aborted(checkpoint_id)
            case Tick():
                return self._settle()

    def _seen(self, channel: int, barrier: Barrier, taken: bool) -> list[Action]:
        checkpoint_id = barrier.checkpoint_id
        actions = self._give_up_older(channel, checkpoint_id)
        if self._is_over(checkpoint_id):
            return actions
        if self._skipped_elsewhere(channel, checkpoint_id):
            message = f"input channel {channel} has reached it when others had gone on to a newer one"
            self._give_up(checkpoint_id, message)
            return [*actions, *self._settle()]
        born = self._now - barrier.age
        known = self._known.setdefault(checkpoint_id, _Known(barrier, started=self._now, born=born))
        known.born = min(known.born, born)
        known.unaligned |= barrier.unaligned
        (known.delivered if taken else known.announced).add(channel)
        return [*actions, *self._settle()]

    def _cancel(self, channel: int, checkpoint_id: int) -> list[Action]:
        actions = self._give_up_older(channel, checkpoint_id)
        if self._is_over(checkpoint_id):
            return actions
        # Remembered also if no barrier of it was seen: those that follow on other channels are ignored.
        self._give_up(checkpoint_id, f"input channel {channel} cancelled it")
        return [*actions, *self._settle()]

    def _aborted(self, checkpoint_id: int) -> list[Action]:
        self._lost.pop(checkpoint_id, None)
        if self._is_over(checkpoint_id):
            return []
        self._over.add(checkpoint_id)
        self._known.pop(checkpoint_id, None)
        return self._settle()

    def _give_up_older(self, channel: int, newer: int) -> list[Action]:
        """Cancel what `channel`, by showing a newer checkpoint, can't deliver any more."""
        lost = sorted(n for n, known in self._known.items() if n < newer and channel not in known.shown)
        for n in lost:
            self._give_up(n, f"input channel {channel} went on to checkpoint {newer} without a barrier of {n}")
        return self._settle() if lost else []

    def _give_up(self, checkpoint_id: int, message: str) -> None:
        self._known.pop(checkpoint_id, None)
        self._over.add(checkpoint_id)
        self._lost[checkpoint_id] = message

    def _skipped_elsewhere(self, channel: int, checkpoint_id: int) -> bool:
        """Whether another channel has shown a newer checkpoint, and never this one."""
        mine = self._known.get(checkpoint_id)
        shown = {channel} if mine is None else {channel, *mine.shown}
        return any(not known.shown <= shown for n, known in self._known.items() if n > checkpoint_id)

    # -- what follows from what is known --------------------------------------------------------------------------

    def _settle(self) -> list[Action]:
        """Take or cancel what can be, turn what has to turn, oldest first; then block what has to wait."""
        actions: list[Action] = []
        for known in self._known.values():
            known.unaligned |= known.due is not None and self._now >= known.due
        while self._known or self._lost:
            oldest = min((*self._known, *self._lost))
            if oldest in self._lost:
                actions.append(ForwardCancel(oldest, self._lost.pop(oldest)))
                self._end(oldest)
                continue
            known = self._known[oldest]
            complete = len(known.delivered) == self._channels
            # What a newer unaligned barrier would overtake turns unaligned first.
            known.unaligned |= not complete and any(k.unaligned for k in self._known.values())
            if not complete and not (known.unaligned and self._broadcast <= known.delivered):
                break
            actions += self._take(oldest, known)
        return [*actions, *self._hold(), *self._block()]

    def _take(self, checkpoint_id: int, known: _Known) -> list[Action]:
        del self._known[checkpoint_id]
        self._end(checkpoint_id)
        timeout = 0.0 if known.unaligned else known.barrier.alignment_timeout
        barrier = replace(known.barrier, age=self._now - known.born, alignment_timeout=timeout)
        snapshot = TakeSnapshot(barrier, known.unaligned, alignment_seconds=self._now - known.started)
        captures = [
            CaptureChannel(checkpoint_id, channel)
            for channel in range(self._channels)
            if channel not in known.delivered and channel not in self._broadcast
        ]
        return [snapshot, *captures]

    def _end(self, checkpoint_id: int) -> None:
        """This one and all before it are over, those never seen too: a channel that carries them would show them."""
        self._last = checkpoint_id
        self._over = {n for n in self._over if n > checkpoint_id}

    def _hold(self) -> list[Action]:
        """Holding is for the oldest checkpoint, when it is unaligned and lacks a broadcast channel."""
        oldest = min(self._known, default=None)
        wanted = oldest if oldest is not None and self._known[oldest].unaligned else None
        if wanted == self._holding:
            return []
        actions: list[Action] = []
        if self._holding is not None:
            actions.append(ReleaseInput(self._holding))
        if wanted is not None:
            actions.append(HoldInput(wanted))
        self._holding = wanted
        return actions

    def _block(self) -> list[Action]:
        blocked = set().union(*(known.delivered for known in self._known.values()))
        if self._holding is not None:
            blocked |= set(range(self._channels)) - self._broadcast
        changes: list[Action] = [UnblockChannel(channel) for channel in sorted(self._blocked - blocked)]
        changes += [BlockChannel(channel) for channel in sorted(blocked - self._blocked)]
        self._blocked = blocked
        return changes

    def _is_over(self, checkpoint_id: int) -> bool:
        return checkpoint_id <= self._last or checkpoint_id in self._over

    # -- checks -----------------------------------------------------------------------------------------------------

    def _check_channel(self, channel: int) -> None:
        if not 0 <= channel < self._channels:
            raise ValueError(f"there is no input channel {channel}; the subtask has {self._channels}")

    def _check_element(self, channel: int) -> None:
        self._check_channel(channel)
        if channel in self._blocked:
            raise ValueError(
                f"an element of input channel {channel} was taken while checkpoint {self.pending} blocks it: "
                "it would count as in front of a barrier that it is behind"
            )
