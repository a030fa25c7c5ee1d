"""Dicts that know which of their keys have changed, for snapshots that write no more than that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

from checkpoint.state import garbage
from checkpoint.state.contents import ContentNotes, Declared
from checkpoint.state.heap.maps import KeyGroupMap, Reading
from checkpoint.state.private_copy import private_copy
from checkpoint.state.snapshot_writer import FrozenGroup, TtlRows, batches_of
from checkpoint.state.stores import MISSING


class ChangedKeys:
    """The changed keys of one dict at a barrier, and their values of then."""

    __slots__ = ("_changed", "_data", "_lock", "_rows")

    def __init__(self, changed: dict[bytes, bool], data: dict[bytes, Any]) -> None:
        """
        Args:
            changed: the keys, and whether they were there before they changed.
            data: not to be changed before `rows` was called.
        """
        self._changed = changed
        self._data = data
        self._lock = Lock()
        self._rows: dict[bytes, Any] | None = None

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


class LoggedMap(KeyGroupMap):
    """`private` are the keys that have changed since the last snapshot of either kind, and whether they were there
    before; no snapshot can see their values."""

    __slots__ = ("_earlier", "_unread")

    private: dict[bytes, bool]

    def __init__(self) -> None:
        super().__init__()
        self.private = {}
        self._earlier: dict[bytes, bool] = {}
        """Those that had changed when a snapshot of everything was taken, which is no part of the log."""
        self._unread: ChangedKeys | None = None
        """Still needs the dict as it is."""

    def freeze(self, reading: Reading) -> dict[bytes, Any] | None:
        if not self.data:
            return None
        self._open.add(reading)
        self._frozen = True
        self._earlier = self._all_changed()
        self.private = {}
        return self.data

    def freeze_changes(self, reading: Reading) -> ChangedKeys | None:
        """What has changed since the last call, to be read until then; `None` if nothing has."""
        changed = self._all_changed()
        self.private, self._earlier = {}, {}
        if not changed:
            return None
        self._open.add(reading)
        self._unread = ChangedKeys(changed, self.data)
        return self._unread

    def _all_changed(self) -> dict[bytes, bool]:
        return {**self.private, **self._earlier} if self._earlier else self.private

    def settle(self, changed: bool) -> None:
        """What was restored is all there is: whether it counts as changed."""
        self._earlier = {}
        self.private = dict.fromkeys(self.data, False) if changed else {}

    def put(self, key: bytes, value: Any) -> None:
        if key not in self.private:
            self._before_change(key)
        self.data[key] = value

    def put_all(self, rows: dict[bytes, Any]) -> None:
        self.data.update(rows)

    def remove(self, key: bytes) -> None:
        if key in self.data:
            if key not in self.private:
                self._before_change(key)
            del self.data[key]

    def own(self, key: bytes) -> Any:
        value = self.data[key]
        if key in self.private:
            return value
        self._before_change(key)
        if self._open.any():
            value = self.data[key] = private_copy(value)
        return value

    def is_shared(self, key: bytes) -> bool:
        """Whether `own` would count the key as changed."""
        return key not in self.private

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
        self.private[key] = key in self.data


class HeapChanges:
    """What has changed in a heap backend. Implements `keyed_snapshot.FrozenChanges`."""

    def __init__(
        self,
        operator: str,
        groups: dict[int, list[tuple[str, ChangedKeys]]],
        ttl: Mapping[str, TtlRows],
        over: Mapping[str, int],
        declared: Mapping[str, Declared],
        reading: Reading,
    ) -> None:
        """
        Args:
            groups: by key group, what has changed of each state.
            over: see `keyed_snapshot.FrozenChanges`.
            reading: ends when the backend may change what these rows have.
        """
        self.over = over
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
            states: dict[str, dict[bytes, Any]] = {}
            for part in parts:
                for name, keys in part.get(group, ()):
                    rows = keys.rows()
                    states[name] = {**states[name], **rows} if name in states else dict(rows)
            yield group, sorted(states.items())

    def release(self) -> None:
        self._reading.over = True
        self._groups = {}
