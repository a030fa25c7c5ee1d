"""Figures of a subtask's channels, for metrics and for people."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.runtime.network.frames import ChannelId


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


@dataclass(frozen=True, slots=True)
class InputStatistics:
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
