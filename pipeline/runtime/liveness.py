"""Who is alive, what takes long, and who is missing: the rules, without clocks and sockets (pure).

A process is not judged by what its task does, so a phase may take as long as it takes. Three things tell of its end:
its connection closes (at once), its host acknowledges nothing any more (`Limits.vanished`, which the kernels watch), or
it says nothing though its host answers (`Limits.silent`): it is stopped, or code holds Python's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from pipeline.runtime.network.tcp_keepalive import GONE_AFTER

Who = TypeVar("Who", bound=Hashable)

_MOST_COUNTED: Final = 2.0
"""Paces that count at most from one look to the next: whoever was away himself has not listened meanwhile."""


@dataclass(frozen=True)
class Limits:
    """All in seconds. The same for driver and subtasks."""

    pace: float = 1.0
    """Between two signs of life, both ways, and between two looks at the other side's."""
    vanished: float = GONE_AFTER
    """What a host may leave without an acknowledgement."""
    silent: float = 120.0
    """How long a process whose host answers may say nothing."""
    start: float = 120.0
    """How long none of the processes that are missing may come."""
    told: float = 10.0
    """What lasts longer than this is told."""


LIMITS: Final = Limits()


class Patience:
    """How long there was no sign of something. Only time in which somebody looked for one counts, so that a side that
    was held itself (stopped, suspended, busy) doesn't take that for the other's silence."""

    def __init__(self, limits: Limits, now: float):
        self._step = _MOST_COUNTED * limits.pace
        self._sign_at = self._looked_at = now
        self._counted = 0.0

    def look(self, now: float, sign_at: float | None = None) -> float:
        """Seconds without a sign. `sign_at`: when the newest came; `None` = nothing new."""
        passed = max(0.0, min(now - self._looked_at, self._step))
        self._looked_at = now
        if sign_at is not None and sign_at > self._sign_at:
            self._sign_at = sign_at
            self._counted = max(0.0, min(now - sign_at, passed))
        else:
            self._counted += passed
        return self._counted


@dataclass(frozen=True, slots=True)
class Slow(Generic[Who]):
    """Something takes long, and nothing is wrong yet."""

    who: Who
    what: str
    """Reads on from the name of who: "is in open() of 'model'"."""
    since: float
    """A clock value."""


@dataclass(slots=True)
class _Process:
    patience: Patience
    ready: bool = False
    phase: str | None = None
    since: float = 0.0
    silent: float = 0.0
    """As of the last look."""
    heard_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Look(Generic[Who]):
    """What a look around has found."""

    silent: list[Who] = field(default_factory=list)
    """These count as dead."""
    slow: list[Slow[Who]] = field(default_factory=list)
    waited: float = 0.0
    """Seconds for which no process came while some are missing; too long from `Limits.start` on."""


class Liveness(Generic[Who]):
    """What the driver knows of the processes of one attempt. All arguments `now` are values of one clock."""

    def __init__(self, expected: int, limits: Limits, now: float):
        self._expected = expected
        self._limits = limits
        self._processes: dict[Who, _Process] = {}
        self._arrival = Patience(limits, now)
        self._arrived_at: float | None = None
        self._ready = 0

    def connected(self, who: Who, now: float) -> None:
        """A process has come."""
        self._processes[who] = _Process(Patience(self._limits, now), since=now, phase="is preparing", heard_at=now)
        self._arrived_at = now

    def ready(self, who: Who, now: float) -> None:
        """It can be given a subtask."""
        process = self._processes[who]
        self._ready += not process.ready
        process.ready = True
        process.phase = None
        self._arrived_at = now

    def entered(self, who: Who, phase: str | None, now: float) -> None:
        """What it does from now on; `None`: what may last for ever."""
        if who in self._processes:
            self._processes[who].phase, self._processes[who].since = phase, now

    def phase(self, who: Who) -> str | None:
        """What it does, as far as is known."""
        process = self._processes.get(who)
        return None if process is None else process.phase

    def left(self, who: Who) -> None:
        """It has said its last word, or is gone."""
        self._processes.pop(who, None)

    @property
    def all_ready(self) -> bool:
        return self._ready == self._expected

    def look(self, now: float, heard_at: Callable[[Who], float]) -> Look[Who]:
        """Look around; to be called once in a pace.

        Args:
            heard_at: when a process last said something, or a part of it.
        """
        # One that has come and prepares itself comes along; the others are waited for from then on.
        preparing = any(not process.ready for process in self._processes.values())
        waited = self._arrival.look(now, now if preparing else self._arrived_at)
        found: Look[Who] = Look(waited=0.0 if self.all_ready else waited)
        for who, process in self._processes.items():
            process.heard_at = max(process.heard_at, heard_at(who))
            process.silent = process.patience.look(now, process.heard_at)
            if process.silent >= self._limits.silent:
                found.silent.append(who)
            elif process.silent >= self._limits.told:
                held = "says nothing, though its host answers: it is stopped, or code holds Python's lock"
                phase = f" ({process.phase})" if process.phase else ""
                found.slow.append(Slow(who, held + phase, process.heard_at))
            elif process.phase is not None and now - process.since >= self._limits.told:
                found.slow.append(Slow(who, process.phase, process.since))
        return found
