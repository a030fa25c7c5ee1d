"""Barriers in `mode="at_least_once"`: counted, and nothing waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from checkpoint.barriers.events import (
    Action,
    Barrier,
    BarrierAnnounced,
    BarrierArrived,
    CancelArrived,
    CheckpointAborted,
    EndOfInputArrived,
    Event,
    ForwardCancel,
    TakeSnapshot,
    Tick,
)


@dataclass(slots=True)
class _Counted:
    barrier: Barrier
    started: float
    born: float
    delivered: set[int] = field(default_factory=set)


class BarrierTracker:
    """Takes a snapshot once every channel has delivered the barrier; no channel is ever blocked.

    What a channel delivers behind its barrier and in front of the others' is in the snapshot, and is read again after
    a restore: at least once. Offers what `checkpoint.barriers.handler.BarrierHandler` offers.
    """

    holding = False
    blocked: frozenset[int] = frozenset()

    def __init__(self, channels: int, now: float) -> None:
        if channels < 1:
            raise ValueError(f"a barrier tracker needs at least one channel, not {channels}")
        self._channels = channels
        self._now = now
        self._counted: dict[int, _Counted] = {}
        self._last = 0
        """Largest id whose snapshot was taken."""
        self._over: set[int] = set()
        """Ids above `_last` that were given up."""

    @property
    def pending(self) -> int | None:
        return min(self._counted, default=None)

    def missing(self, checkpoint_id: int) -> tuple[int, ...]:
        """Channels that have not delivered the barrier; none once the checkpoint is over here."""
        if self._is_over(checkpoint_id):
            return ()
        counted = self._counted.get(checkpoint_id)
        delivered = counted.delivered if counted is not None else frozenset()
        return tuple(c for c in range(self._channels) if c not in delivered)

    def next_deadline(self, now: float) -> float | None:
        return None

    def handle(self, event: Event, now: float) -> list[Action]:
        """What to do about `event`, in this order.

        Raises:
            ValueError: there is no such channel.
        """
        self._now = max(self._now, now)
        match event:
            case BarrierArrived(channel, barrier):
                self._check_channel(channel)
                return self._arrived(channel, barrier)
            case CancelArrived(channel, checkpoint_id):
                self._check_channel(channel)
                if self._is_over(checkpoint_id):
                    return []
                self._give_up(checkpoint_id)
                return [ForwardCancel(checkpoint_id, f"input channel {channel} cancelled it")]
            case CheckpointAborted(checkpoint_id):
                self._give_up(checkpoint_id)
                return []
            case BarrierAnnounced() | EndOfInputArrived() | Tick():
                return []

    def _arrived(self, channel: int, barrier: Barrier) -> list[Action]:
        n = barrier.checkpoint_id
        if self._is_over(n):
            return []
        born = self._now - barrier.age
        counted = self._counted.setdefault(n, _Counted(barrier, self._now, born))
        counted.born = min(counted.born, born)
        counted.delivered.add(channel)
        if len(counted.delivered) < self._channels:
            return []
        # Ids come in order on every channel, so an older one that is still incomplete was skipped by some channel.
        skipped = sorted(m for m in self._counted if m < n)
        actions: list[Action] = [
            ForwardCancel(m, f"an input channel went on to checkpoint {n} without a barrier of {m}") for m in skipped
        ]
        self._last = n
        self._counted = {m: c for m, c in self._counted.items() if m > n}
        self._over = {m for m in self._over if m > n}
        aged = replace(counted.barrier, age=self._now - counted.born)
        return [*actions, TakeSnapshot(aged, unaligned=False, alignment_seconds=self._now - counted.started)]

    def _give_up(self, checkpoint_id: int) -> None:
        if not self._is_over(checkpoint_id):
            self._over.add(checkpoint_id)
            self._counted.pop(checkpoint_id, None)

    def _is_over(self, checkpoint_id: int) -> bool:
        return checkpoint_id <= self._last or checkpoint_id in self._over

    def _check_channel(self, channel: int) -> None:
        if not 0 <= channel < self._channels:
            raise ValueError(f"there is no input channel {channel}; the subtask has {self._channels}")
