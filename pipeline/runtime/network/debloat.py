"""Buffer debloating: input budgets that take about a fixed time to process, however fast the operator is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pipeline.buffers import KIB, MIN_FRAME_BYTES, BufferConfig

INTERVAL: Final = 0.2
"""Seconds between two observations."""
_SMOOTHING: Final = 1.0
"""Time constant of the moving average, in seconds of active time."""
_LEAST_ACTIVE: Final = 0.01
"""Observations are added up until they cover so many active seconds; shorter ones are mostly noise."""
_ANNOUNCED_CHANGE: Final = 0.25
"""Budgets stay as they are until the wanted one differs by more than this fraction."""
_FRAMES_A_CHANNEL: Final = 4
"""Frames that fit into a channel's budget: while one is processed the next ones can travel."""
_INITIAL_FRAME_BYTES: Final = 4 * KIB
"""Until the rate is known, so little that even a slow operator isn't buried at the start."""
_GROWTH: Final = 2
"""How much a budget may grow from one observation to the next."""
_FRAME_SECONDS: Final = 0.005
"""A frame holds at least what takes so long, where that is less than `MIN_FRAME_BYTES`: a frame costs both sides about
a tenth of a millisecond, whatever is in it."""
_LEAST_FRAME_BYTES: Final = 256
"""A record or two. Nothing is gained by less: each frame would be admitted alone."""
_MUCH_OVERHEAD, _LITTLE_OVERHEAD = 1 / 5, 1 / 10
"""Parts of the active time. Where more of it goes to what each frame costs, frames become larger, up to
`_INITIAL_FRAME_BYTES`; where less does, they may be small again. With many channels on a busy machine small frames
would be what makes the operator slow, and a slow operator gets small frames."""


@dataclass(frozen=True, slots=True)
class BufferBudget:
    """What every input channel of a subtask gets."""

    channel_bytes: int
    """The most that may be queued on the channel (one larger frame may still pass alone)."""
    frame_bytes: int
    """Size at which the sender should send a batch."""


def initial_frame_bytes(config: BufferConfig) -> int:
    """Size of batches until the receiver has named one."""
    return min(config.frame_bytes, _INITIAL_FRAME_BYTES) if config.debloat else config.frame_bytes


class Debloater:
    """Turns the measured processing rate of a subtask into the budget of its input channels. Pure: no clock, no I/O."""

    def __init__(self, config: BufferConfig, channels: int) -> None:
        if channels < 1:
            raise ValueError("a debloater needs at least one input channel")
        self._config = config
        self._channels = channels
        self._rate: float | None = None
        # observed but not yet part of the average
        self._bytes = 0
        self._active = 0.0
        self._overhead = 0.0
        self._overhead_share = 0.0
        """Moving average."""
        self._worthwhile = _LEAST_FRAME_BYTES
        """Bytes of the smallest frame that is worth what it costs."""
        self.budget = self._budget(
            _FRAMES_A_CHANNEL * initial_frame_bytes(config) * channels if config.debloat else config.max_bytes
        )
        """The budget in force."""

    @property
    def rate(self) -> float | None:
        """Bytes per active second; `None` until something was measured."""
        return self._rate

    def observe(self, consumed_bytes: int, active_seconds: float, overhead_seconds: float) -> BufferBudget | None:
        """Take in what was processed since the last observation.

        `active_seconds` is the time in which the subtask had input: in operators or waiting for room downstream,
        but not waiting for input. (Backpressured time counts, or the queue in front of a fast operator with a slow
        sink behind it would be as long as the operator is fast.) `overhead_seconds` is the part of it that went to
        taking frames, whatever is in them.

        Returns:
            The new budget if it has to be announced, else `None`.
        """
        self._bytes += consumed_bytes
        self._active += active_seconds
        self._overhead += overhead_seconds
        if self._active < _LEAST_ACTIVE:
            return None
        sample, overhead = self._bytes / self._active, self._overhead / self._active
        weight = 1 - math.exp(-self._active / _SMOOTHING)
        if self._rate is None:
            if not self._bytes:  # still at the very first batch: nothing to judge by
                return None
            self._rate = sample
        else:
            self._rate += weight * (sample - self._rate)
        self._overhead_share += weight * (overhead - self._overhead_share)
        self._bytes, self._active, self._overhead = 0, 0.0, 0.0
        if not self._config.debloat:
            return None
        self._weigh_frames()
        current = self.budget.channel_bytes
        # A burst into queues that are still empty looks like speed. Bytes let in are let in for good, so the budget
        # grows step by step, and shrinks at once.
        most = _GROWTH * max(current, MIN_FRAME_BYTES) * self._channels
        wanted = self._budget(min(self._rate * self._config.target_s, most))
        if abs(wanted.channel_bytes - current) <= _ANNOUNCED_CHANGE * current:
            return None
        self.budget = wanted
        return wanted

    def _weigh_frames(self) -> None:
        most = min(_INITIAL_FRAME_BYTES, self._config.frame_bytes, self._config.max_bytes // (2 * self._channels))
        if self._overhead_share > _MUCH_OVERHEAD:
            self._worthwhile = max(self._worthwhile, min(2 * self._worthwhile, most))
        elif self._overhead_share < _LITTLE_OVERHEAD:
            self._worthwhile = max(_LEAST_FRAME_BYTES, self._worthwhile // 2)

    def estimated_time_to_consume(self, queued_bytes: int) -> float | None:
        """Seconds that `queued_bytes` take at the measured rate; `None` if there is no rate to go by."""
        if not queued_bytes:
            return 0.0
        return queued_bytes / self._rate if self._rate else None

    def _budget(self, total_bytes: float) -> BufferBudget:
        least = MIN_FRAME_BYTES
        if self._rate is not None and self._config.debloat:
            least = max(_LEAST_FRAME_BYTES, min(least, int(self._rate * _FRAME_SECONDS)))
        # Two frames, so that the next one is there when one is processed.
        least_channel = max(min(2 * least, MIN_FRAME_BYTES), 2 * self._worthwhile)
        least = max(least, self._worthwhile)
        channel_bytes = max(least_channel, int(min(total_bytes, self._config.max_bytes)) // self._channels)
        frame_bytes = max(least, min(self._config.frame_bytes, channel_bytes // _FRAMES_A_CHANNEL))
        return BufferBudget(channel_bytes, frame_bytes)
