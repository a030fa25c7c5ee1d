"""Point queries on the driver: who has asked for the state of a key and has no answer yet, over all attempts."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pipeline.runtime.point_query import Found, PointQuery

MOST: Final = 1_000
"""Queries that wait at once."""


class NotAnswered(RuntimeError):
    """A query has no answer, and will have none; says why, and what to do."""


class Answer(NamedTuple):
    found: Found
    checkpoint: int | None
    """Id of a complete checkpoint (or of what was restored) that the answer is as new as, or newer; `None`: there is
    none."""


@dataclass
class _Waiting:
    query: PointQuery
    sent_to: str | None = None
    """The subtask that has it."""
    answer: queue.SimpleQueue[Answer | NotAnswered] = field(default_factory=queue.SimpleQueue)


class JobQueries:
    """Thread-safe. A query that the attempt's end has left without an answer is the next attempt's."""

    def __init__(self, waits_for: Callable[[str | None], str]) -> None:
        """`waits_for`: what a query waits for, reading on from "waited for", that the subtask of this name has; `None`:
        none has it yet."""
        self._waits_for = waits_for
        self._lock = threading.Lock()
        """Guards what follows."""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._notify: Callable[[int], None] | None = None
        self._closed: str | None = None

    def ask(self, query: PointQuery, timeout: float) -> Answer:
        """Wait for the answer of the key's owner; from any thread.

        Raises:
            NotAnswered: the job has ended, or refuses.
            TimeoutError: there is none after `timeout` seconds; says what it waited for.
        """
        one = _Waiting(query)
        with self._lock:
            if self._closed is not None:
                raise NotAnswered(self._closed)
            if len(self._waiting) >= MOST:
                raise NotAnswered(f"{MOST:,} queries wait for an answer already; ask again later")
            number = next(self._numbers)
            self._waiting[number] = one
            notify = self._notify
        try:
            if notify is not None:
                notify(number)
            answer = one.answer.get(timeout=min(timeout, threading.TIMEOUT_MAX))
        except queue.Empty:
            waited_for = self._waits_for(one.sent_to)
            raise TimeoutError(f"no answer within {timeout:g} s: waited for {waited_for}") from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if isinstance(answer, NotAnswered):
            raise answer
        if answer.found.refused is not None:
            raise NotAnswered(answer.found.refused)
        return answer

    def close(self, why: str) -> None:
        """The job has ended: refuse those who wait, and whoever comes."""
        with self._lock:
            self._closed = why
            for one in self._waiting.values():
                one.answer.put(NotAnswered(why))

    # -- the attempt's thread -----------------------------------------------------------------------------------

    def attempt_begins(self, notify: Callable[[int], None]) -> None:
        """`notify`: called from any thread with the number of a query that somebody asks."""
        with self._lock:
            self._notify = notify

    def attempt_ends(self) -> None:
        with self._lock:
            self._notify = None
            for one in self._waiting.values():
                one.sent_to = None

    def unsent(self) -> dict[int, PointQuery]:
        """Those that no subtask has, by number."""
        with self._lock:
            return {number: one.query for number, one in self._waiting.items() if one.sent_to is None}

    def sent(self, number: int, subtask: str) -> None:
        """`subtask`: the name of the one that has it now."""
        with self._lock:
            if (one := self._waiting.get(number)) is not None:
                one.sent_to = subtask

    def answered(self, number: int, found: Found, checkpoint: int | None) -> None:
        """Whoever has asked may have gone."""
        with self._lock:
            if (one := self._waiting.get(number)) is not None:
                one.answer.put(Answer(found, checkpoint))
