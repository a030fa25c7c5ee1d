"""The phases of a start: which one is under way, how long each took, and what is said of them."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Final

PHASES: Final = ("checks", "Spark", "deploy", "restore")
"""In their order: what can be refused is; Spark is there, with a slot for each subtask; a process is up for each
subtask; each has its state, and has opened its sources, operators and sinks. Then the job runs. A restart has Spark
already."""

OUTPUT_PHASES: Final = ("first record", "checkpoint", "commit")
"""What follows in a job with sinks that commit with checkpoints: a sink has the first record; a checkpoint with it is
complete; it is committed, and so visible."""


class StartPhases:
    """One attempt's. Written by the job's thread, read by any."""

    def __init__(self) -> None:
        self._begun: list[tuple[str, float]] = []
        self._running_at: float | None = None
        self._output: list[tuple[str, float]] = []
        """The ends of those phases of `OUTPUT_PHASES` that are over."""

    def begin(self, phase: str, now: float) -> None:
        """The one before has ended. One that is under way goes on."""
        if self.current != phase:
            self._begun.append((phase, now))

    def run(self, now: float) -> None:
        """The last phase has ended, and the job runs."""
        self._running_at = now

    def reach(self, phase: str, now: float) -> bool:
        """One of `OUTPUT_PHASES` is over, unless it was before, or the one in front of it is not.

        Returns:
            Whether it is over by this.
        """
        number = len(self._output)
        is_next = self._running_at is not None and number < len(OUTPUT_PHASES) and phase == OUTPUT_PHASES[number]
        if is_next:
            self._output.append((phase, now))
        return is_next

    @property
    def current(self) -> str | None:
        """The one under way; `None` before the first and once the job runs."""
        return self._begun[-1][0] if self._begun and self._running_at is None else None

    def seconds(self, now: float | None = None) -> dict[str, float]:
        """By phase how long it took, or has been taking until `now`; those of the output once they are over."""
        begun, end = list(self._begun), self._running_at
        if end is None:
            end = time.monotonic() if now is None else now
        until_output = pairwise([("", end), *self._output])
        return {
            **{phase: until - at for (phase, at), (_, until) in pairwise([*begun, ("", end)])},
            **{phase: until - at for (_, at), (phase, until) in until_output},
        }

    def in_words(self) -> str:
        """`6.1 s: checks 0.4 s, Spark 3.1 s, deploy 2.3 s, restore 0.2 s`."""
        seconds = self.seconds()
        return f"{sum(seconds.values()):.1f} s: " + ", ".join(f"{name} {took:.1f} s" for name, took in seconds.items())
