"""How much data may be in flight between subtasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from checkpoint.config import Seconds, seconds
from checkpoint.options import named_options

KIB: Final = 1024
MIN_FRAME_BYTES: Final = 2 * KIB
"""No frame is meant to be smaller than this unless its linger time is over; also the least budget of a channel."""


@named_options
@dataclass(frozen=True)
class BufferConfig:
    """Bounds of the queues between subtasks. Durations are seconds or `timedelta`.

    Raises:
        ValueError: an option has a value that it can't have; the message says which it may have.
    """

    max_bytes: int = 8 * KIB * KIB
    """The most that may wait at the inputs of one subtask, divided over its input channels. One frame that is
    larger than a channel's share still passes, alone."""
    target: Seconds = 1.0
    """Debloating aims at input queues that take about so long to process."""
    linger: Seconds = 0.05
    """A batch that doesn't fill up is sent after so long; 0 sends every record at once."""
    debloat: bool = True
    """Adapt the input budget and the size of batches to the measured rate; off: `max_bytes` and `frame_bytes`."""
    frame_bytes: int = 64 * KIB
    """A batch is sent when it reaches this size. Debloating only makes it smaller."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", seconds(self.target, "target", 0.01))
        object.__setattr__(self, "linger", seconds(self.linger, "linger"))
        for name, least in (("max_bytes", MIN_FRAME_BYTES), ("frame_bytes", MIN_FRAME_BYTES)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of bytes, at least {least}, not {value!r}")
        if self.frame_bytes > self.max_bytes:
            raise ValueError(f"frame_bytes ({self.frame_bytes}) must not be above max_bytes ({self.max_bytes})")
        if not isinstance(self.debloat, bool):
            raise ValueError(f"debloat must be True or False, not {self.debloat!r}")

    @property
    def target_s(self) -> float:
        return float(self.target)  # type: ignore[arg-type]  # normalised above

    @property
    def linger_s(self) -> float:
        return float(self.linger)  # type: ignore[arg-type]
