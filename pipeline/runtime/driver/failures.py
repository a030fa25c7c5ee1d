"""How an attempt fails, and which of several signs is the cause (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from pipeline.runtime.protocol import Failed, FailureKind


@dataclass(eq=False)  # not frozen: Python notes its traceback in it
class AttemptFailed(Exception):
    """The attempt is over; the job may be restarted."""

    message: str
    permanent: bool = False
    """Whether a restart can't help."""
    damaged: str | None = None
    """What a file of the restored checkpoint suffers from, if that is the cause."""
    step: str | None = None
    """Whose code has failed, if that is the cause."""

    def __str__(self) -> str:
        return self.message


class Sign(IntEnum):
    """Where word of a failure comes from, the best informed first."""

    OWN_WORD = 0
    """A subtask or the coordinator says it of itself."""
    LOST = 1
    """A subtask's connection is gone."""
    LOST_PEER = 2
    """A subtask lost its connection to another one."""
    SPARK = 3
    """Spark's view."""


_SETTLE = {Sign.OWN_WORD: 0.0, Sign.LOST: 0.1, Sign.LOST_PEER: 0.3, Sign.SPARK: 0.3}
"""Seconds to wait after a sign for a better explanation: a peer often notices a death first."""


GONE: Final = (
    "It said nothing: it was killed (by the system, for want of memory?), it crashed, or code in it called os._exit. "
    "What it printed is in the output of the executor."
)
"""What is said of a process that is gone without a word."""
_ABOUT_OTHERS: Final = {FailureKind.PEER: Sign.LOST_PEER, FailureKind.CANCELLED: Sign.SPARK}
"""What a subtask's word is worth where the cause lies elsewhere."""


def own_word(name: str, said: Failed, newest_is_restored: bool) -> tuple[AttemptFailed, Sign]:
    """What a subtask says of its failure, as the attempt's failure.

    Args:
        name: the subtask's.
        newest_is_restored: no newer checkpoint than the restored one is complete.
    """
    text = f"subtask {name} failed: {said.message}"
    if said.step is not None:
        text += f"\nin step {said.step!r}"
    if said.traceback:
        text += "\n" + said.traceback
    # Once a newer checkpoint is complete, whatever is damaged may be its own: the next restore will tell.
    damaged = said.message if said.kind is FailureKind.DAMAGED and newest_is_restored else None
    cause = AttemptFailed(text, said.kind is FailureKind.PERMANENT, damaged, said.step)
    return cause, _ABOUT_OTHERS.get(said.kind, Sign.OWN_WORD)


class FirstCause:
    """Collects signs of failure; the best explained one within a moment becomes the cause."""

    def __init__(self) -> None:
        self.failure: AttemptFailed | None = None
        self.first_at: float | None = None
        """When the first sign came."""
        self.due_at: float | None = None
        """When waiting for a better explanation ends."""
        self._sign = Sign.SPARK

    def note(self, failure: AttemptFailed, sign: Sign, now: float) -> None:
        if self.failure is None or sign < self._sign:
            self.failure, self._sign = failure, sign
        if self.first_at is None:
            self.first_at = now
        due = now + _SETTLE[sign]
        self.due_at = due if self.due_at is None else min(self.due_at, due)

    def settled(self, now: float) -> AttemptFailed | None:
        """The cause, once no better explanation is waited for."""
        return self.failure if self.due_at is not None and now >= self.due_at else None
