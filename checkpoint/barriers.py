"""The barrier handler: when a subtask with several inputs takes its snapshot.

*Aligned:* a channel that has delivered barrier n is blocked until every other channel has delivered it too; then the
snapshot holds exactly what came in front of the barriers. Barriers and cancel markers keep the order of their ids on
every channel, so a channel that shows a newer id will never deliver an older one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from checkpoint.barrier_events import (
    Action,
    Barrier,
    BarrierAnnounced,
    BarrierArrived,
    BlockChannel,
    CancelArrived,
    CheckpointAborted,
    EndOfInputArrived,
    Event,
    ForwardCancel,
    TakeSnapshot,
    Tick,
    UnblockChannel,
)


@dataclass(slots=True)
class _Alignment:
    """The checkpoint that waits for the rest of its barriers."""

    barrier: Barrier
    started: float
    """When its first barrier arrived."""
    born: float
    """Clock value of the trigger, by the oldest barrier so far."""
    delivered: set[int] = field(default_factory=set)
    """Channels that have delivered it: exactly the blocked ones."""


class BarrierHandler:
    """Aligns the barriers of one subtask. Pure: events in, actions out, the clock passed in.

    `BarrierArrived`, `CancelArrived` and `EndOfInputArrived` are elements of a channel and come in its order, never
    while it is blocked; `BarrierAnnounced` and `CheckpointAborted` come at any time.

    The end of a channel's data does not exempt it: its upstream subtask stays until the final checkpoint is
    committed and sends the barrier of every checkpoint until then.
    """

    def __init__(self, channels: int, now: float) -> None:
        if channels < 1:
            raise ValueError(f"a barrier handler needs at least one channel, not {channels}")
        self._channels = channels
        self._now = now
        """Last clock value; threads read the clock apart, so it is never taken back."""
        self._alignment: _Alignment | None = None
        self._last = 0
        """Largest id that is over here: its snapshot was taken, or a channel's order shows that it never will be."""
        self._over: set[int] = set()
        """Ids above `_last` that are over although an older checkpoint may still be taken."""
        self._announced: dict[int, set[int]] = defaultdict(set)
        """Channels on which the barrier is known to be queued, for ids above `_last`."""

    # -- what the runtime reads -------------------------------------------------------------------------------------

    @property
    def pending(self) -> int | None:
        """The checkpoint whose barriers are being aligned."""
        return None if self._alignment is None else self._alignment.barrier.checkpoint_id

    @property
    def blocked(self) -> frozenset[int]:
        """Channels from which nothing may be taken."""
        return frozenset() if self._alignment is None else frozenset(self._alignment.delivered)

    def missing(self, checkpoint_id: int) -> tuple[int, ...]:
        """Channels that have not delivered the barrier; none once the checkpoint is over here."""
        if self._is_over(checkpoint_id):
            return ()
        delivered = self.blocked if checkpoint_id == self.pending else frozenset()
        return tuple(c for c in range(self._channels) if c not in delivered)

    def queued(self, checkpoint_id: int) -> tuple[int, ...]:
        """Those of the missing channels where the barrier has been announced: it waits behind data there."""
        announced = self._announced.get(checkpoint_id, set())
        return tuple(c for c in self.missing(checkpoint_id) if c in announced)

    def next_deadline(self, now: float) -> float | None:
        """When to send the next `Tick`, a clock value; `None`: aligned checkpoints have no deadline here."""
        return None

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Action]:
        """What to do about `event`, in this order.

        Raises:
            ValueError: there is no such channel, or an element of a blocked channel was taken.
            NotImplementedError: the barrier asks for an unaligned checkpoint.
        """
        self._now = max(self._now, now)
        match event:
            case BarrierArrived(channel, barrier):
                self._check_element(channel)
                self._check_aligned(barrier)
                return self._barrier(channel, barrier)
            case CancelArrived(channel, checkpoint_id):
                self._check_element(channel)
                return self._cancel(channel, checkpoint_id)
            case EndOfInputArrived(channel):
                self._check_element(channel)
                return []
            case BarrierAnnounced(channel, barrier):
                self._check_channel(channel)
                self._check_aligned(barrier)
                if not self._is_over(barrier.checkpoint_id):
                    self._announced[barrier.checkpoint_id].add(channel)
                return []
            case CheckpointAborted(checkpoint_id):
                return self._aborted(checkpoint_id)
            case Tick():
                return []

    def _barrier(self, channel: int, barrier: Barrier) -> list[Action]:
        checkpoint_id = barrier.checkpoint_id
        actions = self._give_up_older(channel, checkpoint_id)
        if self._is_over(checkpoint_id):
            return actions
        if self._alignment is not None and checkpoint_id < self._alignment.barrier.checkpoint_id:
            return [*actions, self._behind_the_pending(channel, checkpoint_id)]
        born = self._now - barrier.age
        if self._alignment is None:
            self._alignment = _Alignment(barrier, started=self._now, born=born)
        alignment = self._alignment
        alignment.born = min(alignment.born, born)
        if len(alignment.delivered) + 1 < self._channels:
            alignment.delivered.add(channel)
            return [*actions, BlockChannel(channel)]
        snapshot = TakeSnapshot(
            replace(alignment.barrier, age=self._now - alignment.born),
            unaligned=False,
            alignment_seconds=self._now - alignment.started,
        )
        return [*actions, snapshot, *self._end_alignment(checkpoint_id)]

    def _cancel(self, channel: int, checkpoint_id: int) -> list[Action]:
        actions = self._give_up_older(channel, checkpoint_id)
        if self._is_over(checkpoint_id):
            return actions
        pending = self.pending
        if pending is not None and checkpoint_id < pending:
            return [*actions, self._behind_the_pending(channel, checkpoint_id)]
        cancel = ForwardCancel(checkpoint_id, f"input channel {channel} cancelled it")
        # Remembered also if no barrier of it was seen: those that follow on other channels are ignored.
        return [*actions, cancel, *self._end_alignment(checkpoint_id)]

    def _aborted(self, checkpoint_id: int) -> list[Action]:
        if self._is_over(checkpoint_id):
            return []
        # Unlike an element of a channel this says nothing of older checkpoints, so `_last` stays.
        self._over.add(checkpoint_id)
        self._announced.pop(checkpoint_id, None)
        return self._unblock() if checkpoint_id == self.pending else []

    def _give_up_older(self, channel: int, newer: int) -> list[Action]:
        """Cancel the pending checkpoint if `channel`, by showing a newer one, can't deliver it any more."""
        pending = self.pending
        if pending is None or pending >= newer:
            return []
        message = f"input channel {channel} went on to checkpoint {newer} without a barrier of {pending}"
        return [ForwardCancel(pending, message), *self._end_alignment(pending)]

    def _behind_the_pending(self, channel: int, checkpoint_id: int) -> Action:
        """Cancel, once, a checkpoint of which some other channel has no barrier, since it delivered a newer one."""
        self._over.add(checkpoint_id)
        self._announced.pop(checkpoint_id, None)
        message = f"input channel {channel} has reached it when others were at checkpoint {self.pending}"
        return ForwardCancel(checkpoint_id, message)

    def _end_alignment(self, checkpoint_id: int) -> list[Action]:
        """`checkpoint_id` and everything before it are over."""
        self._last = checkpoint_id
        self._over = {n for n in self._over if n > checkpoint_id}
        for n in [n for n in self._announced if n <= checkpoint_id]:
            del self._announced[n]
        return self._unblock()

    def _unblock(self) -> list[Action]:
        blocked = sorted(self.blocked)
        self._alignment = None
        return [UnblockChannel(channel) for channel in blocked]

    def _is_over(self, checkpoint_id: int) -> bool:
        return checkpoint_id <= self._last or checkpoint_id in self._over

    # -- checks -----------------------------------------------------------------------------------------------------

    def _check_channel(self, channel: int) -> None:
        if not 0 <= channel < self._channels:
            raise ValueError(f"there is no input channel {channel}; the subtask has {self._channels}")

    def _check_element(self, channel: int) -> None:
        self._check_channel(channel)
        if channel in self.blocked:
            raise ValueError(
                f"an element of input channel {channel} was taken while checkpoint {self.pending} blocks it: "
                "it would count as in front of a barrier that it is behind"
            )

    @staticmethod
    def _check_aligned(barrier: Barrier) -> None:
        if barrier.alignment_timeout is not None:
            raise NotImplementedError(
                f"the barrier of checkpoint {barrier.checkpoint_id} may become unaligned after "
                f"{barrier.alignment_timeout:g} s; this version of Weir aligns always: set alignment='aligned'"
            )
