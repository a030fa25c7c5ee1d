"""The scheduler: it picks who does the next step, and owns the clock."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

_STEP_SECONDS = 0.01
"""Largest time that one step takes."""
_TRACED = 400
_SLOW = 0.1


class Stuck(AssertionError):
    """Nobody can do anything, and no time that passes changes that; or it took too many steps."""


@dataclass(slots=True)
class Actor:
    name: str
    act: Callable[[], bool]
    """Does one step; false: there is nothing to do for it now."""
    deadline: Callable[[], float | None] | None = None
    """When time alone gives it something to do, a clock value."""


class Scheduler:
    """Every choice comes from one seeded generator, so a seed repeats a run exactly."""

    def __init__(self, rng: random.Random, most_steps: int, slow: tuple[str, ...] = ()) -> None:
        """`slow`: how the names of actors begin that are always slow."""
        self.rng = rng
        self.now = 0.0
        self.steps = 0
        self.most_steps = most_steps
        self.slow = slow
        self.trace: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=_TRACED)
        self._actors: list[Actor] = []
        self._weights: list[float] = []

    def log(self, *what: Any) -> None:
        """Remember what happened; formatted only if the run fails."""
        self.trace.append((self.now, str(self.steps), what))

    def set_actors(self, actors: list[Actor]) -> None:
        self._actors = list(actors)
        self.mix()

    def mix(self, calm: bool = False) -> None:
        """Draw anew who is quick and who is slow."""
        if calm:
            weights = [1.0] * len(self._actors)
        else:
            weights = [self.rng.choice((0.02, 0.02, 0.3, 1.0, 1.0, 3.0)) for _ in self._actors]
            if self.slow:
                weights = [
                    0.01 if actor.name.startswith(self.slow) else weight
                    for actor, weight in zip(self._actors, weights, strict=True)
                ]
        self._weights = list(accumulate(weights))
        marked = list(zip(self._actors, weights, strict=True))
        self._quick = [actor for actor, weight in marked if weight >= _SLOW]
        self._dawdling = [actor for actor, weight in marked if weight < _SLOW]

    def step(self) -> None:
        """Let somebody do something.

        Raises:
            Stuck: nobody can, or the run has had enough steps.
        """
        self.steps += 1
        if self.steps > self.most_steps:
            raise Stuck(f"not finished after {self.most_steps} steps")
        rng = self.rng
        self.now += rng.random() * _STEP_SECONDS
        for _ in range(8):
            if rng.choices(self._actors, cum_weights=self._weights)[0].act():
                return
        if self._any_of(self._quick):
            return
        # Time passes sooner than a slow one moves.
        later = self._next_deadline()
        if (later is None or rng.random() < 0.3) and self._any_of(self._dawdling):
            return
        if later is None:
            raise Stuck("nobody can do anything")
        self.now = later

    def _any_of(self, actors: list[Actor]) -> bool:
        actors = list(actors)
        self.rng.shuffle(actors)
        return any(actor.act() for actor in actors)

    def _next_deadline(self) -> float | None:
        deadlines = [d for a in self._actors if a.deadline is not None and (d := a.deadline()) is not None]
        return min((d for d in deadlines if d > self.now), default=None)
