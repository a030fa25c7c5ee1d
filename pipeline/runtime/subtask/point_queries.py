"""Point queries in a subtask: answered by the task thread between two records, in a bounded share of its time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from checkpoint.codec import EncodingError, decode, decode_key, encode
from checkpoint.counted import counted
from checkpoint.shown import shown
from checkpoint.state import KeyedBackend, StateAccessError
from checkpoint.state.errors import TooManyEntries
from checkpoint.state.stores import MISSING
from pipeline.runtime import protocol
from pipeline.runtime.point_query import Found, PointQuery

MOST_ENTRIES: Final = 10_000
"""Of a list or map. To look at more would hold up records for more than some milliseconds."""
MOST_TIMERS: Final = 100_000
"""Timers of one key group."""
LARGEST_ANSWER: Final = 4 << 20
"""Bytes; the connection to the driver is for other things, too."""
_TURN: Final = 0.002
"""Seconds after which the answers of one turn end; at least one is given."""
_REST: Final = 9.0
"""So many times as long as a turn took, records go first."""


class PointQueries:
    """Reads only, and changes nothing: records and checkpoints are as if nobody had asked."""

    def __init__(
        self, backend: KeyedBackend | None, report: Callable[[protocol.ToDriver], None], clock: Callable[[], float]
    ) -> None:
        """
        Args:
            backend: keyed state of the subtask, if it has any.
            report: says something to the driver.
        """
        self._backend = backend
        self._report = report
        self._clock = clock
        self._waiting: deque[protocol.Query] = deque()
        self._not_before = 0.0

    def add(self, asked: protocol.Query) -> None:
        self._waiting.append(asked)

    @property
    def next_at(self) -> float | None:
        """When there is something to do, a clock value; `None`: nobody asks."""
        return self._not_before if self._waiting else None

    def answer(self, now: float) -> None:
        """Answer some, if it is time. Called while no record is in progress."""
        if not self._waiting or now < self._not_before:
            return
        end = now
        while self._waiting and end < now + _TURN:
            asked = self._waiting.popleft()
            self._report(protocol.QueryAnswered(asked.number, self._look_up(asked.query)))
            end = self._clock()
        self._not_before = end + _REST * (end - now)

    def _look_up(self, query: PointQuery) -> Found:
        if self._backend is None:
            return Found(refused=f"step {query.step!r} has no state of keys")
        states: dict[str, bytes] = {}
        size = 0
        for name in self._backend.states if query.state is None else (query.state,):
            try:
                value = self._peek(self._backend, query, name)
                if value is not MISSING:
                    states[name] = encode(value)
            except TooManyEntries as error:
                return Found(
                    refused=f"state {name!r} of key {_key(query)} is too large to be looked at while the job runs: "
                    f"{error}. Ask for another state, for one entry of a map, or for the newest checkpoint"
                )
            except (EncodingError, StateAccessError, TypeError, ValueError, LookupError) as error:
                return Found(refused=f"state {name!r} of key {_key(query)}: {error}")
            except Exception as error:  # of a user's class, which compares keys of maps; a question ends no job
                return Found(refused=f"state {name!r} of key {_key(query)}: {type(error).__name__}: {error}")
            size += len(states.get(name, b""))
        if size > LARGEST_ANSWER:
            return Found(
                refused=f"what key {_key(query)} has takes {counted(size, 'byte')}, and a running job hands out no "
                f"more than {LARGEST_ANSWER:,}. Ask for one state, for one entry of a map, or for the newest checkpoint"
            )
        if query.state is not None:
            return Found(states)
        try:
            timers = self._backend.peek_timers(query.key, query.group, MOST_TIMERS)
        except TooManyEntries as error:
            return Found(
                refused=f"the timers of key {_key(query)} lie among too many others of its key group: {error}. Ask for "
                "a state by its name, or for the newest checkpoint"
            )
        return Found(states, {clock: tuple(times) for clock, times in timers.items()})

    def _peek(self, backend: KeyedBackend, query: PointQuery, state: str) -> Any:
        if query.map_key is None:
            return backend.peek(query.key, query.group, state, MOST_ENTRIES)
        return backend.peek_entry(query.key, query.group, state, decode(query.map_key))


def _key(query: PointQuery) -> str:
    return shown(decode_key(query.key))
