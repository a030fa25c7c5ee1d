"""What a rule says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Sentence:
    severity: Literal["trouble", "note"]
    about: str
    """What kind of thing: `job`, `progress`, `waits`, `load`, `partitions`, `checkpoints`, `event time`, `records` or
    `output`."""
    text: str


def trouble(about: str, text: str) -> Sentence:
    return Sentence("trouble", about, text)


def note(about: str, text: str) -> Sentence:
    return Sentence("note", about, text)


def some(names: list[str], most: int = 3) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
