"""How much data may be in flight between subtasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from checkpoint.options import Seconds, flag, named_options, seconds, whole_number

KIB: Final = 1024
MIN_FRAME_BYTES: Final = 2 * KIB
"""No frame is meant to be smaller than this, unless its linger time is over or its receiver is slow; also the least
budget of a channel whose receiver isn't."""


@named_options
@dataclass(frozen=True)
class BufferConfig:
    """Bounds of the queues between subtasks. Durations are seconds or `timedelta`.

    Args:
        max_bytes: the most bytes that may wait at the inputs of one subtask, divided over its input channels. One frame
            that is larger than a channel's share still passes, alone. Default: 8 MiB. With debloating less waits as a
            rule.
        target: debloating lets so much wait at the inputs of a subtask as it processes in this time. A shorter one
            makes aligned checkpoints shorter, and what unaligned ones hold in flight less; too short, and subtasks run
            out of input. Default: 0.1 s, at least 0.01 s.
        linger: records are sent in batches. One that doesn't fill up is sent after so long: the delay that each
            exchange between subtasks adds when there is little to do. 0 sends every record at once, which costs
            throughput. Default: 0.05 s.
        debloat: adapt the input budget and the size of batches to the measured rate, aiming at `target`. `False`: both
            stay at `max_bytes` and `frame_bytes`. Default: `True`.
        frame_bytes: bytes at which a batch is full and is sent, at most `max_bytes`. Larger ones cost less per record,
            smaller ones wait less. Debloating only makes batches smaller. Default: 64 KiB.

    Raises:
        ValueError: an option has a value that it can't have; the message says which it may have.
    """

    max_bytes: int = 8 * KIB * KIB
    target: Seconds = 0.1
    linger: Seconds = 0.05
    debloat: bool = True
    frame_bytes: int = 64 * KIB

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", seconds(self.target, "target", 0.01))
        object.__setattr__(self, "linger", seconds(self.linger, "linger"))
        whole_number(self.max_bytes, "max_bytes", MIN_FRAME_BYTES, unit="bytes")
        whole_number(self.frame_bytes, "frame_bytes", MIN_FRAME_BYTES, unit="bytes")
        if self.frame_bytes > self.max_bytes:
            raise ValueError(f"frame_bytes ({self.frame_bytes}) must not be above max_bytes ({self.max_bytes})")
        flag(self.debloat, "debloat")

    @property
    def target_s(self) -> float:
        return float(self.target)  # type: ignore[arg-type]  # normalised above

    @property
    def linger_s(self) -> float:
        return float(self.linger)  # type: ignore[arg-type]
