"""What kind of thing a job waits for, by the words that say so."""

from __future__ import annotations

import re
from typing import Final

KINDS: Final = ("brokers", "slots", "processes", "subtask", "event_time", "requests", "rate", "other")
_BY_WORDS: Final = (
    ("brokers", re.compile(r"\bthe Kafka brokers at ")),
    ("slots", re.compile(r"^slots: ")),
    ("processes", re.compile(r"\bprocesses, which Spark has not brought up")),
    ("event_time", re.compile(r"\bwatermark\b|\btimestamps\b")),
    ("requests", re.compile(r"^answers to the requests of ")),
    ("rate", re.compile(r"^the rate of ")),
    ("subtask", re.compile(r"\[\d+\], which ")),
)


def kind_of_wait(what: str) -> str:
    """One of `KINDS`.

    Args:
        what: reads on from "waits for".
    """
    return next((kind for kind, words in _BY_WORDS if words.search(what)), "other")
