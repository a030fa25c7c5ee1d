"""Whether a job is rescaled by itself, and how far."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.options import Seconds, named_options, seconds, whole_number


@named_options
@dataclass(frozen=True)
class Autoscale:
    """Have a running job rescaled by itself, on the advice that `weir status` gives. It concerns steps that set no
    parallelism of their own. Durations are seconds or `timedelta`.

    Args:
        most: the most subtasks of a step. Spark's slots and `max_parallelism` may allow fewer.
        least: the fewest subtasks of a step. Default: 1.
        pause: for so long after each start, restart and rescale the load isn't looked at. Default: 300 s.
        window: advice must last for so long before it is followed. Default: 60 s, at least 0.1 s.

    Raises:
        ValueError: an option has a value that it can't have; the message says which it may have.
    """

    most: int
    least: int = 1
    pause: Seconds = 300.0
    window: Seconds = 60.0

    def __post_init__(self) -> None:
        whole_number(self.least, "least", 1)
        whole_number(self.most, "most", 1)
        if self.least > self.most:
            raise ValueError(f"least ({self.least}) must not be above most ({self.most})")
        object.__setattr__(self, "pause", seconds(self.pause, "pause", finite=True))
        object.__setattr__(self, "window", seconds(self.window, "window", 0.1, finite=True))

    @property
    def pause_s(self) -> float:
        return float(self.pause)  # type: ignore[arg-type]  # normalised above

    @property
    def window_s(self) -> float:
        return float(self.window)  # type: ignore[arg-type]
