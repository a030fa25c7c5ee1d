"""The scheduler: who runs next, and what time it is then."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

_TRACED = 500
_PACES = (0.0005, 0.0005, 0.002, 0.01, 0.05, 0.3)
"""Mean seconds that a fiber takes to go on once it may; drawn for each from time to time."""
_SLOW_PACE = 0.5
_CALM_PACE = 0.0005
_MIX_EVERY = 300


class Killed(BaseException):
    """The process of the fiber is gone. Nothing that it does from here on has an effect."""


class Stuck(AssertionError):
    """Nobody can do anything, or it took too many steps."""


class Process:
    """What dies as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.at_end: list[Callable[[], None]] = []
        """What the system does when it is gone: its connections break."""


class Fiber(greenlet):
    """A thread of a virtual process."""

    process: Process
    name: str
    pace: float
    ticket: int
    parked: bool
    woken: bool
    ended: bool


class Scheduler:
    """Every choice comes from one seeded generator, so a seed repeats a run exactly."""

    def __init__(self, rng: random.Random, most_steps: int, slow: tuple[str, ...] = ()) -> None:
        """`slow`: how the names of fibers and wires begin that are slow."""
        self.rng = rng
        self.now = 1000.0
        self.steps = 0
        self.most_steps = most_steps
        self.slow = slow
        self.calm = False
        """Nobody is slow any more."""
        self.trace: deque[tuple[float, int, tuple[Any, ...]]] = deque(maxlen=_TRACED)
        self.error: BaseException | None = None
        """What a fiber has raised that nobody caught."""
        self._heap: list[tuple[float, int, Any, int]] = []
        self._order = 0
        self._hub = getcurrent()
        self._fibers: dict[Fiber, None] = {}
        self._paces: dict[str, float] = {}
        self._kept: list[Fiber] = []

    def log(self, *what: Any) -> None:
        """Remember what happened; formatted only if the run fails."""
        self.trace.append((self.now, self.steps, what))

    # -- fibers -----------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Fiber | None:
        found = getcurrent()
        return found if type(found) is Fiber else None

    def spawn(self, process: Process, name: str, target: Callable[[], Any]) -> Fiber:
        fiber = Fiber(lambda: self._main(fiber, target), self._hub)
        fiber.process = process
        fiber.name = f"{name} {process.name}"
        fiber.pace = self.pace_of(fiber.name)
        fiber.ticket = 0
        fiber.parked = True
        fiber.woken = fiber.ended = False
        self._fibers[fiber] = None
        self.wake(fiber)
        return fiber

    def _main(self, fiber: Fiber, target: Callable[[], Any]) -> None:
        try:
            if fiber.process.alive:
                target()
        except (Killed, GreenletExit):
            pass
        except BaseException as error:
            if fiber.process.alive and self.error is None:
                self.error = error
        finally:
            fiber.ended = True
            self._fibers.pop(fiber, None)

    def park(self, deadline: float | None = None) -> bool:
        """Wait until woken, or until the deadline. Returns whether it was woken."""
        fiber = getcurrent()
        if not fiber.process.alive:  # type: ignore[attr-defined]
            raise Killed
        assert type(fiber) is Fiber
        fiber.parked, fiber.woken = True, False
        fiber.ticket += 1
        if deadline is not None:
            self._push(max(deadline, self.now) + self._latency(fiber.pace), fiber, fiber.ticket)
        self._hub.switch()
        if not fiber.process.alive:
            raise Killed
        return fiber.woken

    def wake(self, fiber: Fiber) -> None:
        if fiber.parked and not fiber.woken:
            fiber.woken = True
            fiber.ticket += 1
            self._push(self.now + self._latency(fiber.pace), fiber, fiber.ticket)

    def pause(self, seconds: float = 0.0) -> None:
        """What the fiber does takes time, in which others go on; nothing in the hub."""
        fiber = getcurrent()
        if type(fiber) is not Fiber:
            return
        if not fiber.process.alive:
            raise Killed
        fiber.parked, fiber.woken = True, True  # can't be woken
        fiber.ticket += 1
        self._push(self.now + seconds + self._latency(fiber.pace), fiber, fiber.ticket)
        self._hub.switch()
        if not fiber.process.alive:
            raise Killed

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later, in the hub; it must not wait."""
        self._push(self.now + seconds, action, -1)

    def kill(self, process: Process) -> None:
        """End a process at once. Raises `Killed` in one of its own fibers."""
        if not process.alive:
            return
        self.log("killed", process.name)
        self.leave(process)
        current = self.current
        if current is not None and current.process is process:
            raise Killed

    def leave(self, process: Process) -> None:
        """A process has come to its end."""
        process.alive = False
        actions, process.at_end = process.at_end, []
        for action in actions:
            action()
        for fiber in list(self._fibers):
            if fiber.process is process and fiber is not getcurrent():
                fiber.ticket += 1
                self._push(self.now, fiber, fiber.ticket)

    # -- time -------------------------------------------------------------------------------------------------------

    def pace_of(self, name: str) -> float:
        """How slow somebody is at the moment."""
        pace = self._paces.get(name)
        if pace is None:
            if self.calm:
                pace = _CALM_PACE
            elif self.slow and name.startswith(self.slow):
                pace = _SLOW_PACE
            else:
                pace = self.rng.choice(_PACES)
            self._paces[name] = pace
        return pace

    def mix(self) -> None:
        """Draw anew who is quick and who is slow."""
        self._paces.clear()
        for fiber in self._fibers:
            fiber.pace = self.pace_of(fiber.name)

    def _latency(self, pace: float) -> float:
        return 2.0 * pace * self.rng.random()

    def _push(self, at: float, what: Any, ticket: int) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, what, ticket))

    def run(self, until: Callable[[], bool]) -> None:
        """Let them run.

        Raises:
            Stuck: nobody can, or the run has had enough steps.
            BaseException: what a fiber has raised.
        """
        heap = self._heap
        self._hub = getcurrent()
        while not until():
            if not heap:
                raise Stuck("nobody can do anything")
            at, _, what, ticket = heapq.heappop(heap)
            self.steps += 1
            if ticket < 0:
                self.now = max(self.now, at)
                what()
            elif ticket == what.ticket and not what.ended:
                self.now = max(self.now, at)
                if self.steps > self.most_steps:
                    raise Stuck(f"not finished after {self.most_steps} steps")
                if self.steps % _MIX_EVERY == 0:
                    self.mix()
                what.parked = False
                what.switch()
            if self.error is not None:
                error, self.error = self.error, None
                raise error

    def end(self) -> None:
        """Let go of all fibers."""
        for fiber in list(self._fibers):
            fiber.process.alive = False
            with suppress(Killed):  # one that has not begun
                fiber.throw(Killed)
        self._heap.clear()
