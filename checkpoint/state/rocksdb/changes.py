"""What has changed in RocksDB since the last barrier, for snapshots that write no more than that.

Each row that is written is noted by its key. When there are many notes, they go to rows of their own, so that memory
stays bounded:

    2 bytes 0xFF · number of the barrier, 8 bytes · key of the row · whether it may have been there before, 1 byte
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

from checkpoint.codec import EncodingError
from checkpoint.state.contents import ContentNotes, Declared
from checkpoint.state.rocksdb.database import Database
from checkpoint.state.rocksdb.snapshot import BEHIND_ALL_GROUPS, NIL, State
from checkpoint.state.snapshot_writer import FrozenGroup, TtlRows, batches_of
from checkpoint.state.stores import MISSING

MOST_IN_MEMORY: Final = 1 << 18


class ChangeNotes:
    """Of the rows that were written since a barrier."""

    def __init__(self, database: Database, number: int) -> None:
        self._database = database
        self._prefix = BEHIND_ALL_GROUPS + number.to_bytes(8, "big")
        self._end = BEHIND_ALL_GROUPS + (number + 1).to_bytes(8, "big")
        self._keys: dict[bytes, bool] = {}
        self._written = False
        self.note: Callable[[bytes, bool], object] = self._keys.setdefault
        """Note a row by its key, and whether it may be that a snapshot has it."""

    def limit(self) -> None:
        """Called now and then, as often as notes come in: what it writes holds the task."""
        excess = len(self._keys) - MOST_IN_MEMORY
        if excess > 0:
            self._written = True
            prefix, keys, first = self._prefix, self._keys, list(islice(self._keys, excess))
            self._database.write((prefix + key + bytes((keys.pop(key),)), b"") for key in first)

    def __iter__(self) -> Iterator[tuple[bytes, bool]]:
        """In order of the keys. Once no more are noted, by any thread."""
        in_memory = sorted(self._keys.items())
        if not self._written:
            yield from in_memory
            return
        start = len(self._prefix)
        written = ((note[start:-1], bool(note[-1])) for note, _ in self._database.scan(self._prefix, self._end))
        for key, same in groupby(merge(written, in_memory), itemgetter(0)):
            yield key, any(was_there for _, was_there in same)

    def remove(self) -> None:
        """They are not needed any more. May be called again, by any thread."""
        self._keys.clear()
        if self._written:
            self._database.delete_range(self._prefix, self._end)


class RocksChanges:
    """What has changed up to a barrier. Implements `keyed_snapshot.FrozenChanges`."""

    def __init__(
        self,
        operator: str,
        states: Mapping[bytes, State],
        ttl: Mapping[str, TtlRows],
        over: Mapping[str, int],
        since: Mapping[str, int],
        notes: ChangeNotes,
        find: Callable[[bytes], bytes | None] | None,
        error: EncodingError | None,
        declared: Mapping[str, Declared],
    ) -> None:
        """
        Args:
            states: by number.
            over, since: see `keyed_snapshot.FrozenChanges`.
            find: finds rows as they were at the barrier; `None` = there are none.
            error: why the row of a value that has changed was not written.
        """
        self.over = over
        self.since = since
        self._operator = operator
        self._states = states
        self._ttl = ttl
        self.clocks = {name: rows.clock_name for name, rows in ttl.items()}
        self._notes = notes
        self.notes = ContentNotes(declared)
        self._find = find
        self._error = error

    def batches(self, older: Sequence[RocksChanges]) -> Iterator[Any]:
        if self._error is not None:
            raise self._error
        if self._find is None:
            return
        groups = self._groups(_merged([each._notes for each in (*older, self)]), self._find)
        yield from batches_of(groups, self._operator, True, True, self._ttl, set(), self.notes)

    def _groups(
        self, noted: Iterator[tuple[bytes, bool]], find: Callable[[bytes], bytes | None]
    ) -> Iterator[FrozenGroup]:
        for group, of_group in groupby(noted, lambda note: note[0][:2]):
            yield int.from_bytes(group, "big"), self._parts(group, of_group, find)

    def _parts(
        self, group: bytes, notes: Iterator[tuple[bytes, bool]], find: Callable[[bytes], bytes | None]
    ) -> Iterator[tuple[str, Mapping[bytes, Any]]]:
        for number, of_state in groupby(notes, lambda note: note[0][2:4]):
            state = self._states[number]
            part: dict[bytes, Any] = {}
            for key, was_there in of_state:
                row = find(key)
                if row is None and not was_there:
                    continue
                if state.timers:
                    part[key[4:12] + group + key[12:]] = MISSING if row is None else NIL
                else:
                    part[key[4:]] = MISSING if row is None else row
            if part:
                yield state.name, part

    def release(self) -> None:
        self._find = None
        self._notes.remove()


def _merged(notes: Sequence[ChangeNotes]) -> Iterator[tuple[bytes, bool]]:
    """In order of the keys; what the first says of one counts."""
    if len(notes) == 1:
        yield from notes[0]
        return
    merged: dict[bytes, bool] = {}
    for each in notes:
        for key, was_there in each:
            merged.setdefault(key, was_there)
    yield from sorted(merged.items())
