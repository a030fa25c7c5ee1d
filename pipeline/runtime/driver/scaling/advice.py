"""At which parallelism a step would have some room, from what its subtasks do with their time (pure).

As in DS2 (Kalavri et al., OSDI 2018) a subtask's true rate is its rate over the share of time that it is busy: `n`
subtasks that are busy for a share `b`, while sources are let emit for a share `f` of their time, have work for
`n * b / f` subtasks that do nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_ROOM: Final = 0.75
"""How busy subtasks are to be."""
_FULL: Final = 0.85
"""From which on a step is short of subtasks. Far from `_ROOM`, so that what is advised brings no other advice."""
_IDLE: Final = 0.5
"""Up to which a step has subtasks to spare."""
_HELD: Final = 0.05
"""Of sources that are held up for less, nothing is said."""
_BEGINNING: Final = 30.0
"""Seconds in which a job catches up with what has waited for it, or waits for its first records."""
_MOST: Final = 2.0
"""What sources are taken to emit at most, once they are let, times what they do: more than that is not known."""


@dataclass(frozen=True)
class Advice:
    vertex: str
    now: int
    """Subtasks."""
    better: int
    busy: float
    """The share of their time, from 0 to 1."""
    held: float
    """The share of time that the job's sources are held up."""

    @property
    def text(self) -> str:
        """For a line of text."""
        why = f"its subtasks are busy for {self.busy:.0%} of their time"
        if self.better > self.now:
            held = f", and sources are held up for {self.held:.0%}" if self.held >= _HELD else ""
            return f"{self.now} → {self.better}: bound by {self.vertex}: {why}{held}"
        return f"{self.now} → {self.better} would do for {self.vertex}: {why}"


def advise(busy: Mapping[str, Sequence[float]], held: Sequence[float]) -> list[Advice]:
    """For each step that has too few subtasks, or far too many, those that need most first.

    Args:
        busy: by vertex the share of time of each subtask, from 0 to 1.
        held: of each subtask of a source: the share of time for which backpressure or its gate holds it up.
    """
    stopped = min(1.0, sum(held) / len(held)) if held else 0.0
    factor = _MOST if stopped >= 1 - 1 / _MOST else 1 / (1 - stopped)
    found = []
    for vertex, shares in busy.items():
        now, mean = len(shares), min(1.0, sum(shares) / len(shares))
        better = max(1, math.ceil(round(now * mean * factor / _ROOM, 6)))
        short = better > now and mean >= _FULL
        spare = better < now and 0 < mean <= _IDLE and stopped < _HELD
        if short or spare:
            found.append(Advice(vertex, now, better, mean, stopped))
    return sorted(found, key=lambda one: one.now / one.better)


@dataclass(frozen=True)
class Load:
    """What the subtasks of a job do."""

    busy: Mapping[str, Sequence[float]]
    """By vertex the share of time of each subtask, from 0 to 1."""
    held: Sequence[float]
    """Of each subtask of a source: the share of time for which backpressure or its gate holds it up."""
    rates: Mapping[str, float]
    """By vertex: records a second that come in."""


def load_of(subtasks: Mapping[str, Mapping[str, Any]]) -> Load:
    """From the metrics of a job's subtasks, by name. A source's own gate is what holds it up."""
    busy: dict[str, list[float]] = {}
    held: list[float] = []
    rates: dict[str, float] = {}
    for name, values in subtasks.items():
        vertex = name.rpartition("[")[0]
        busy.setdefault(vertex, []).append((values.get("busyMsPerSecond") or 0.0) / 1000)
        rates[vertex] = rates.get(vertex, 0.0) + (values.get("recordsInPerSecond") or 0.0)
        if "sourceGateReason" in values:
            stopped = (values.get("sourceGateClosedMsPerSecond") or 0.0) + (
                values.get("backPressuredMsPerSecond") or 0.0
            )
            held.append(min(1.0, stopped / 1000))
    return Load(busy, held, rates)


def advice_of(subtasks: Mapping[str, Mapping[str, Any]], running_for: float | None) -> list[Advice]:
    """What to tell of a job; nothing while it has only begun.

    Args:
        subtasks: their metrics, by name.
        running_for: for how many seconds all of them have run; `None`: they don't.
    """
    if running_for is None or running_for < _BEGINNING:
        return []
    load = load_of(subtasks)
    return advise(load.busy, load.held)
