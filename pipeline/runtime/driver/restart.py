"""Restart strategies: pure, the clock is passed in."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from checkpoint.counted import counted
from checkpoint.options import Seconds, is_number, is_whole, named_options, seconds, whole_number


class RestartPolicy(Protocol):
    """The state of one job's restarts."""

    def on_failure(self, now: float) -> float | None:
        """Seconds to wait before the next attempt, or `None` to give up. `now`: seconds of a monotonic clock."""

    def describe(self) -> str:
        """For the error message when it gives up."""


@named_options
@dataclass(frozen=True)
class RestartStrategy:
    """What to do when an attempt fails. Make one with `none`, `fixed_delay` or `exponential`."""

    kind: str
    attempts: int | None = None
    delay: float = 0.0
    max_delay: float = 0.0
    multiplier: float = 1.0
    jitter: float = 0.0
    reset_after: float = 0.0

    @staticmethod
    def none() -> RestartStrategy:
        """The first failure is the job's."""
        return RestartStrategy("none")

    @staticmethod
    def fixed_delay(attempts: int = 3, delay: Seconds = 1.0) -> RestartStrategy:
        """Up to `attempts` restarts in all, each `delay` after the failure (seconds or `timedelta`)."""
        whole_number(attempts, "attempts", 1)
        return RestartStrategy("fixed_delay", attempts=attempts, delay=seconds(delay, "delay"))

    @staticmethod
    def exponential(
        initial: Seconds = 0.5,
        maximum: Seconds = 60.0,
        multiplier: float = 2.0,
        jitter: float = 0.1,
        reset_after: Seconds = 300.0,
        attempts: int | None = None,
    ) -> RestartStrategy:
        """Restart after a delay that grows from one failure to the next. Durations are seconds or `timedelta`.

        Args:
            initial: the first delay.
            maximum: the longest delay.
            multiplier: each delay is so many times the one before.
            jitter: each delay is changed by up to this fraction of it, more or less, at random.
            reset_after: after so long without a failure the delay starts anew.
            attempts: the most failures between two such resets. `None` (the default): no bound.

        Raises:
            ValueError: an argument has a value that it can't have.
        """
        first, most = seconds(initial, "initial", 0.001), seconds(maximum, "maximum", 0.001)
        if most < first:
            raise ValueError(f"maximum ({most:g} s) must not be below initial ({first:g} s)")
        if not is_number(multiplier) or not 1 <= multiplier < math.inf:
            raise ValueError(f"multiplier must be a number of at least 1, not {multiplier!r}")
        if not is_number(jitter) or not 0 <= jitter < 1:
            raise ValueError(f"jitter must be a fraction from 0 to below 1, not {jitter!r}")
        if attempts is not None and not (is_whole(attempts) and attempts >= 1):
            raise ValueError(f"attempts must be a whole number of at least 1 or None, not {attempts!r}")
        return RestartStrategy(
            "exponential",
            attempts=attempts,
            delay=first,
            max_delay=most,
            multiplier=multiplier,
            jitter=jitter,
            reset_after=seconds(reset_after, "reset_after"),
        )

    @property
    def options(self) -> dict[str, Any]:
        """What makes this strategy, given to the function that is called like its kind."""
        if self.kind == "none":
            return {}
        if self.kind == "fixed_delay":
            return {"attempts": self.attempts, "delay": self.delay}
        return {
            "initial": self.delay,
            "maximum": self.max_delay,
            "multiplier": self.multiplier,
            "jitter": self.jitter,
            "reset_after": self.reset_after,
            "attempts": self.attempts,
        }

    def start(self, rng: random.Random | None = None) -> RestartPolicy:
        """A policy for one job."""
        if self.kind == "exponential":
            return _Exponential(self, rng or random.Random())
        return _Counted(self)


STRATEGIES: Final[Mapping[str, Callable[..., RestartStrategy]]] = {
    "none": RestartStrategy.none,
    "fixed_delay": RestartStrategy.fixed_delay,
    "exponential": RestartStrategy.exponential,
}
"""By kind."""


@dataclass
class _Counted:
    strategy: RestartStrategy
    failures: int = 0

    def on_failure(self, now: float) -> float | None:
        self.failures += 1
        if self.failures > (self.strategy.attempts or 0):
            return None
        return self.strategy.delay

    def describe(self) -> str:
        if self.strategy.kind == "none":
            return "no restarts are configured"
        return f"{counted(self.strategy.attempts or 0, 'restart is', 'restarts are')} used up"


@dataclass
class _Exponential:
    strategy: RestartStrategy
    rng: random.Random
    failures: int = 0
    delay: float = 0.0
    last_failure: float | None = field(default=None)

    def on_failure(self, now: float) -> float | None:
        s = self.strategy
        # The time spent waiting isn't time without failure, so it is added to what a reset needs.
        if self.last_failure is None or now - self.last_failure >= s.reset_after + self.delay:
            self.failures, self.delay = 0, s.delay
        else:
            self.delay = min(s.max_delay, self.delay * s.multiplier)
        self.last_failure = now
        self.failures += 1
        if s.attempts is not None and self.failures > s.attempts:
            return None
        return self.delay * (1 + s.jitter * self.rng.uniform(-1, 1))

    def describe(self) -> str:
        return (
            f"{counted(self.strategy.attempts or 0, 'restart is', 'restarts are')} used up, without "
            f"{self.strategy.reset_after:g} s of rest"
        )
