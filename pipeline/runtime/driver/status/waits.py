"""Who waits for what, and since when: what subtasks report, and what the driver itself waits for, in one place."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkpoint.waiting import WaitKind

_LOG = logging.getLogger(f"weir.{__name__}")
THE_JOB: Final = "the job"
"""Who waits for what holds up all."""
_STEADY = 2.0
"""Seconds by which two reports may differ about when one wait began."""
_NAMED = 3
"""Subtasks that a line names."""


@dataclass(frozen=True, slots=True, order=True)
class Wait:
    since: float
    """Seconds since 1970."""
    what: str
    """Reads on from "waits for"."""
    who: str
    """A subtask's name, or "the job"."""
    kind: WaitKind = WaitKind.OTHER


class Waits:
    """Thread-safe. The first one to wait for something, and the last one, are logged."""

    def __init__(self, job: str, clock: Callable[[], float] = time.time):
        self._job = job
        self._clock = clock
        self._lock = threading.Lock()
        self._waits: dict[tuple[str, str], Wait] = {}
        """By who and what."""

    def report(self, who: str, waiting: Iterable[Sequence[Any]]) -> None:
        """All that one subtask waits for now.

        Args:
            waiting: what, for how many seconds, and of which kind (`checkpoint.waiting.Waiting.report`).
        """
        now = self._clock()
        found = {(who, what): Wait(now - seconds, what, who, WaitKind(kind)) for what, seconds, kind in waiting}
        with self._lock:
            mine = {key: wait for key, wait in self._waits.items() if key[0] == who}
            if not mine and not found:
                return
            for key, wait in found.items():
                before = mine.get(key)
                # Reports take a moment to come, so that a wait would seem to begin at ever other times.
                if before is not None and abs(before.since - wait.since) < _STEADY:
                    found[key] = before
            self._replace({key: wait for key, wait in self._waits.items() if key[0] != who} | found, now)

    def instead(self, who: str, what: str | None, kind: WaitKind) -> None:
        """What somebody waits for is called otherwise now, or is over (`None`); it has waited since the same time."""
        now = self._clock()
        with self._lock:
            since = min((wait.since for wait in self._waits.values() if wait.who == who), default=now)
            others = {key: wait for key, wait in self._waits.items() if key[0] != who}
            mine = {} if what is None else {(who, what): Wait(since, what, who, kind)}
            self._replace(others | mine, now, renamed=what is not None)

    def forget(self, names: Iterable[str]) -> None:
        """These subtasks have gone. Whether what they waited for has come isn't known, so nothing is logged."""
        gone = set(names)
        with self._lock:
            self._waits = {key: wait for key, wait in self._waits.items() if key[0] not in gone}

    def now(self) -> list[Wait]:
        """Those that last longest first."""
        with self._lock:
            return sorted(self._waits.values())

    def _replace(self, waits: dict[tuple[str, str], Wait], now: float, renamed: bool = False) -> None:
        """
        Args:
            renamed: what isn't waited for any more is waited for under another name.
        """
        before, after = by_what(self._waits.values()), by_what(waits.values())
        self._waits = waits
        for what, those in after.items():
            if what not in before:
                who = names(those)
                _LOG.warning("job %s: waits for %s%s", self._job, what, "" if who == THE_JOB else f": {who}")
        for what, those in before.items():
            if what not in after and not renamed:
                seconds = now - min(wait.since for wait in those)
                _LOG.warning("job %s: no longer waits for %s, after %.0f s", self._job, what, seconds)


def by_what(waits: Iterable[Wait]) -> dict[str, list[Wait]]:
    """The longest first."""
    groups: dict[str, list[Wait]] = {}
    for wait in sorted(waits):
        groups.setdefault(wait.what, []).append(wait)
    return groups


def names(waits: Sequence[Wait]) -> str:
    """Who waits, for a line of text: the first few."""
    who = sorted(wait.who for wait in waits)
    more = f" and {len(who) - _NAMED} more" if len(who) > _NAMED else ""
    return ", ".join(who[:_NAMED]) + more
