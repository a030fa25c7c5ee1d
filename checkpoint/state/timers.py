"""Timers of keys: part of keyed state, in order of time.

What a checkpoint holds are rows as of any other state, with the time as namespace; the backend keeps them in a
`TimerStore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from checkpoint.state.errors import StateAccessError
from checkpoint.state.stores import NO_KEY, CurrentKey, TimerStore
from checkpoint.state.undo import UndoLog, UndoTimers

EVENT_TIMERS: Final = "event timers"
PROCESSING_TIMERS: Final = "processing timers"
"""Names of the internal states. No attribute of a class has a space in its name."""
AT_END: Final = 10
"""How many timers of a key may be set by timers that fire at the end of time, and lie beyond `Timers.within`."""
TIMER_STATES: Final = frozenset({EVENT_TIMERS, PROCESSING_TIMERS})

_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**63 - 1
_TIME: Final = 8
_PREFIX: Final = _TIME + 2
_BEHIND_ALL_GROUPS: Final = b"\xff\xff"


class Timer(NamedTuple):
    at: int
    """Milliseconds since the epoch."""
    key: bytes
    """Encoded."""
    group: int
    """Key group of the key."""


class Timers:
    """The timers of one clock, event time or processing time; at most one a key and time.

    An entry is one bytes object that sorts by time: time, key group and key.
    """

    def __init__(self, name: str, first_group: int, current: CurrentKey, store: TimerStore) -> None:
        """`first_group`: the first key group of the subtask."""
        self.name = name
        self._first = first_group
        self._current = current
        self._store = store
        self.ending = False
        """A timer fires because the clock has ended. Were it to set the next one for ever, there would be no end."""
        self.over = False
        """The clock has reached its end: what is set for later than any time never fires, and is no mistake."""
        self.end = False
        """Whoever sets them sees to it that they come to an end: none is dropped at the end of time."""
        self.dropped = 0
        """How many were not set, because time had ended."""
        self.reach = 0
        """How far ahead of its record, or of the timer that set it, a timer was set at most."""
        self.within: int | None = None
        """Up to here time is taken to go on at its end, as if there were more data; `None` = no further."""
        self.fires = 0
        """The time of the timer that fires, while `ending`."""
        self._set_at_end: dict[bytes, int] = {}
        """By key, how many timers were set by others that fired at the end."""

    def register(self, at: int, since: int | None = None) -> None:
        """Set a timer for the current key; does nothing if it is set already. What timers set that fire at the
        end of time, and not up to `within`, is dropped and counted behind the first `AT_END` of a key.

        Args:
            at: milliseconds since the epoch; may lie in the past.
            since: the time of the record or timer that sets it, if it has one.

        Raises:
            StateAccessError: there is no current key.
            TypeError: `at` is no int.
            ValueError: `at` is outside of 64 bits.
        """
        if self.over and type(at) is int and at > _HIGHEST:
            self.dropped += 1
            return
        index, entry = self._entry(at)
        if self.ending and not self._admits_at_end(index, entry, at):
            return
        if self._store.add(index, entry) and since is not None and at - since > self.reach and not self.ending:
            self.reach = at - since

    def _admits_at_end(self, index: int, entry: bytes, at: int) -> bool:
        """Whether a timer that fires at the end of time may set this one."""
        if self.end or (self.within is not None and self.fires < at <= self.within) or self._store.has(index, entry):
            return True
        key = self._current.key
        if self._set_at_end.get(key, 0) >= AT_END:
            self.dropped += 1
            return False
        self._set_at_end[key] = self._set_at_end.get(key, 0) + 1
        return True

    def delete(self, at: int) -> None:
        """Take back the timer that `register(at)` set for the current key, if it has not fired.

        Raises:
            As `register`.
        """
        index, entry = self._entry(at)
        self._store.remove(index, entry)

    def undo_by(self, undo: UndoLog) -> None:
        """From now on the log can take back what a record sets and deletes."""
        self._store = UndoTimers(self._store, undo)
        undo.mark(
            lambda: (self.reach, self.dropped, self._current.key, self._set_at_end.get(self._current.key)),
            self._put_back,
        )

    def _put_back(self, counts: tuple[int, int, bytes, int | None]) -> None:
        self.reach, self.dropped, key, at_end = counts
        if at_end is None:
            self._set_at_end.pop(key, None)
        else:
            self._set_at_end[key] = at_end

    def due(self, now: int) -> bool:
        """Whether a timer's time has come. Cheap."""
        return self._store.first(_bound(now)) is not None

    def pop(self, now: int) -> Timer | None:
        """Remove the first timer that is due."""
        entry = self._store.first(_bound(now))
        if entry is None:
            return None
        group = group_of(entry)
        self._store.remove(group - self._first, entry)
        return Timer(_time(entry), entry[_PREFIX:], group)

    def times_of(self, key: bytes, group: int, most: int) -> list[int]:
        """When the timers of any key are due, the first one first. Needs no current key.

        Raises:
            TooManyEntries: see `TimerStore.entries_of`.
        """
        return sorted(map(_time, self._store.entries_of(group - self._first, key, most)))

    @property
    def next(self) -> int | None:
        """When the first timer is due."""
        entry = self._store.first(None)
        return None if entry is None else _time(entry)

    def __len__(self) -> int:
        return len(self._store)

    def restore(
        self, group: int, keys: Sequence[bytes], namespaces: Iterable[bytes | None], values: Iterable[Any]
    ) -> tuple[bytes, str] | None:
        """Take over rows of a snapshot.

        Returns:
            A key, and what is wrong with its row, if anything is.
        """
        entries = []
        for key, namespace, value in zip(keys, namespaces, values, strict=False):
            if namespace is None or len(namespace) != _TIME or value is not None:
                return key, "is no timer"
            entries.append(timer_entry(namespace, group, key))
        twice = self._store.restore(group - self._first, entries)
        return None if twice is None else (split_entry(twice)[0], "is in the checkpoint twice")

    # -- inside -------------------------------------------------------------------------------------------------

    def _entry(self, at: int) -> tuple[int, bytes]:
        """Position of the current key's group, and the entry."""
        index = self._current.index
        if index == NO_KEY:
            raise StateAccessError(
                "a timer was used where there is no current key; timers belong to a key, and there is one only in "
                "process and on_timer of a KeyedOperator"
            )
        if type(at) is not int:
            raise TypeError(f"a timer takes a time as int, in milliseconds since the epoch, not {at!r}")
        if not _LOWEST <= at <= _HIGHEST:
            raise ValueError(f"a timer at {at} is outside of what 64 bits can hold; times are milliseconds")
        prefix = ((at - _LOWEST) << 16 | (self._first + index)).to_bytes(_PREFIX, "big")
        return index, prefix + self._current.key


def split_entry(entry: bytes) -> tuple[bytes, bytes]:
    """Key and namespace of an entry, for its row in a snapshot."""
    return entry[_PREFIX:], entry[:_TIME]


def timer_entry(namespace: bytes, group: int, key: bytes) -> bytes:
    """The entry that `split_entry` takes apart."""
    return namespace + group.to_bytes(2, "big") + key


def is_entry_of(entry: bytes, key: bytes) -> bool:
    """Whether it is a timer of that key."""
    return len(entry) == _PREFIX + len(key) and entry.endswith(key)


def group_of(entry: bytes) -> int:
    """The key group of an entry's key."""
    return int.from_bytes(entry[_TIME:_PREFIX], "big")


def _bound(now: int) -> bytes:
    """Behind all entries of that time."""
    return (now - _LOWEST).to_bytes(_TIME, "big") + _BEHIND_ALL_GROUPS


def _time(entry: bytes) -> int:
    return int.from_bytes(entry[:_TIME], "big") + _LOWEST
