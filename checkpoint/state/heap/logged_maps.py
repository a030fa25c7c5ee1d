"""Dicts that know which of their keys have changed, for snapshots that write no more than that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

from checkpoint.state import garbage
from checkpoint.state.contents import ContentNotes, Declared
from checkpoint.state.heap.maps import KeyGroupMap, SnapshotReading
from checkpoint.state.private_copy import private_copy
from checkpoint.state.snapshot_writer import FrozenGroup, TtlRows, batches_of
from checkpoint.state.stores import MISSING


class ChangedKeys:
    """The changed keys of one dict at a barrier, and their values of then."""

    __slots__ = ("_changed", "_data", "_lock", "_rows")

    def __init__(self, changed: dict[bytes, bool] | None, data: dict[bytes, Any]) -> None:
        """
        Args:
            changed: the keys, and whether they were there before they changed; `None` = all, none of which was.
            data: not to be changed before `rows` was called; if all have changed, not before `release`.
        """
        self._changed = {} if changed is None else changed
        self._data = data
        self._lock = Lock()
        self._rows: dict[bytes, Any] | None = data if changed is None else None

    def rows(self) -> Mapping[bytes, Any]:
        """By key; `MISSING` where it is not there any more. A key that came and went is left out. Any thread may call
        it; the first call takes the time that the keys take."""
        with self._lock:
            if self._rows is None:
                data = self._data
                rows = {
                    key: data.get(key, MISSING) for key, was_there in self._changed.items() if was_there or key in data
                }
                self._rows, self._changed, self._data = rows, {}, {}
            return self._rows

    def release(self) -> None:
        """Nobody needs the rows any more; the dict that they come from may know this object for longer."""
        with self._lock:
            self._rows, self._changed, self._data = {}, {}, {}


class LoggedMap(KeyGroupMap):
    """`private` are the keys that have changed since the last snapshot of either kind, and whether they were there
    before; `None` = all that are there, and none was before. No snapshot can see their values."""

    __slots__ = ("_earlier", "_unread")

    def __init__(self) -> None:
        super().__init__()
        self._earlier: dict[bytes, bool] | None = {}
        """Those that had changed when a snapshot of everything was taken, which is no part of the log; `None` = as
        `private`."""
        self._unread: ChangedKeys | None = None
        """Still needs the dict as it is."""

    def freeze(self, reading: SnapshotReading) -> dict[bytes, Any] | None:
        if not self.data:
            return None
        self._open.add(reading)
        self._frozen = True
        self._earlier = self._all_changed()
        self.private = {}
        return self.data

    def freeze_changes(self, reading: SnapshotReading) -> ChangedKeys | None:
        """What has changed since the last call, to be read until then; `None` if nothing has."""
        changed = self._all_changed()
        if not (self.data if changed is None else changed):
            return None
        self.private, self._earlier = {}, {}
        self._open.add(reading)
        frozen = ChangedKeys(changed, self.data)
        if changed is None:
            self._frozen = True
        else:
            self._unread = frozen
        return frozen

    def _all_changed(self) -> dict[bytes, bool] | None:
        if self.private is None or self._earlier is None:
            return None
        return {**self.private, **self._earlier} if self._earlier else self.private

    def settle(self, changed: bool) -> None:
        """What was restored is all there is: whether it counts as changed."""
        self._earlier = {}
        self.private = None if changed or not self.data else {}

    def put(self, key: bytes, value: Any) -> None:
        if self.private is not None and key not in self.private:
            self._before_change(key)
        self.data[key] = value

    def remove(self, key: bytes) -> None:
        if key in self.data:
            if self.private is not None and key not in self.private:
                self._before_change(key)
            del self.data[key]

    def own(self, key: bytes) -> Any:
        value, private = self.data[key], self.private
        if private is None or key in private:
            return value
        self._before_change(key)
        if self._open.any():
            value = self.data[key] = private_copy(value)
        return value

    def _before_change(self, key: bytes) -> None:
        if self._unread is not None:
            self._unread.rows()
            self._unread = None
        if self._frozen:
            if self._open.any():
                self.data = self.data.copy()
                if len(self.data) >= garbage.LARGE_MAP:
                    garbage.exempt()
            self._frozen = False
        assert self.private is not None
        self.private[key] = key in self.data


class HeapChanges:
    """What has changed in a heap backend. Implements `keyed_snapshot.FrozenChanges`."""

    def __init__(
        self,
        operator: str,
        groups: dict[int, list[tuple[str, ChangedKeys]]],
        ttl: Mapping[str, TtlRows],
        over: Mapping[str, int],
        since: Mapping[str, int],
        declared: Mapping[str, Declared],
        reading: SnapshotReading,
    ) -> None:
        """
        Args:
            groups: by key group, what has changed of each state.
            over, since: see `keyed_snapshot.FrozenChanges`.
            reading: ends when the backend may change what these rows have.
        """
        self.over = over
        self.since = since
        self._operator = operator
        self._groups = groups
        self._ttl = ttl
        self.clocks = {name: rows.clock_name for name, rows in ttl.items()}
        self.notes = ContentNotes(declared)
        self._reading = reading

    def batches(self, older: Sequence[HeapChanges]) -> Iterator[Any]:
        groups = self._merged([each._groups for each in (*older, self)])
        return batches_of(groups, self._operator, False, True, self._ttl, set(), self.notes)

    def _merged(self, parts: Sequence[dict[int, list[tuple[str, ChangedKeys]]]]) -> Iterator[FrozenGroup]:
        for group in sorted({group for part in parts for group in part}):
            states: dict[str, Mapping[bytes, Any]] = {}
            for part in parts:
                for name, keys in part.get(group, ()):
                    rows = keys.rows()
                    states[name] = {**states[name], **rows} if name in states else rows
            yield group, sorted(states.items())

    def release(self) -> None:
        self._reading.over = True
        while self._groups:  # not all at once, which would hold the interpreter for as long as the values take
            _, changed = self._groups.popitem()
            for _, keys in changed:
                keys.release()
