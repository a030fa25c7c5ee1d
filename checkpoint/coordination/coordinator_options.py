"""What the checkpoint coordinator can be told once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from checkpoint.config import CheckpointConfig


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """Flink's checkpoint options; durations in seconds.

    Raises:
        ValueError: an option has a value that it can't have; the message says which it may have.
    """

    interval: float | None = 10.0
    """From one trigger to the next; `None` = only final, requested and asked-for checkpoints."""
    timeout: float = 600.0
    """From a checkpoint's trigger to its expiry; deletions are given up after as long."""
    min_pause: float = 0.0
    """From the end of an ordinary checkpoint, successful or not, to the next trigger. The first try of the final
    checkpoint and savepoints don't wait for it."""
    max_concurrent: int = 1
    """Most ordinary checkpoints in progress at once."""
    tolerable_failures: int = 0
    """How many ordinary checkpoints may fail in a row before the job fails."""
    retained: int = 1
    """How many completed ordinary checkpoints are kept."""

    def __post_init__(self) -> None:
        if self.interval is not None and not 0 < self.interval < math.inf:
            raise ValueError(f"interval must be a positive number of seconds or None, not {self.interval!r}")
        if not self.timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {self.timeout!r}")
        if not 0 <= self.min_pause < math.inf:
            raise ValueError(f"min_pause must be at least 0 s, not {self.min_pause!r}")
        for name, least in (("max_concurrent", 1), ("tolerable_failures", 0), ("retained", 1)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)!r}")

    @classmethod
    def from_config(cls, config: CheckpointConfig) -> CoordinatorOptions:
        return cls(
            interval=config.interval_s,
            timeout=config.timeout_s,
            min_pause=config.min_pause_s,
            max_concurrent=config.max_concurrent,
            tolerable_failures=config.tolerable_failures,
            retained=config.retained,
        )
