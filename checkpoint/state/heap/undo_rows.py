"""Rows that are noted before a record changes them: one at a time, or those of a list or map that lies in pages."""

from __future__ import annotations

from typing import Any, Final

from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.heap.stores import HeapStore
from checkpoint.state.paging import rows
from checkpoint.state.private_copy import IMMUTABLE, private_copy
from checkpoint.state.stores import MISSING, StateStore
from checkpoint.state.undo import Undoable, UndoLog

NOTHING: Final = object()
"""No row is noted. (`MISSING`: one that wasn't there is.)"""


class UndoStore(StateStore, Undoable):
    """A row is what the key group's map has for a key: with a time to live the stamps, too."""

    __slots__ = ("_before", "_group", "_key", "_raw", "_undo")

    def __init__(self, store: HeapStore, undo: UndoLog) -> None:
        super().__init__(store.what, store._current)
        self._raw = store
        self._undo = undo
        self._before: Any = NOTHING
        self._group: KeyGroupMap
        self._key = b""

    def _touch(self) -> None:
        """In front of the first change of a record."""
        self._group = self._raw._group()
        self._key = self._current.key
        self._undo.touched(self)

    def _row(self) -> Any:
        return self._group.data.get(self._key, MISSING)

    def _note(self) -> None:
        """The whole row, as it is: it is replaced or removed next."""
        if self._before is NOTHING:
            self._touch()
            self._before = self._row()

    def delete(self) -> None:
        self._note()
        self._raw.delete()

    def peek_at(self, index: int, key: bytes, most: int) -> Any:
        return self._raw.peek_at(index, key, most)

    def forget(self) -> None:
        self._before = NOTHING

    def take_back(self) -> None:
        if self._before is MISSING:
            self._group.remove(self._key)
        else:
            # A snapshot may see what was noted, and what lies here may be changed in place.
            self._group.put(self._key, private_copy(self._before))


class NotedGroup(KeyGroupMap, Undoable):
    """In front of the key group of one state. A row that is noted stays as it is: what is changed is another one, which
    has the same values until they are handed out. So a row without pages has to have values of its own before it is
    cut: in pages nobody would find them to be those that were noted."""

    __slots__ = ("_content", "_group", "_undo", "before")

    def __init__(self, group: KeyGroupMap, content: type | None, undo: UndoLog) -> None:
        """`content`: what a row without pages is; `None`: rows are handed out whole, with all that is in them."""
        self._group = group
        self._content = content
        self._undo = undo
        self.before: dict[bytes, Any] = {}
        """Rows by key, those of the current key; `MISSING`: it was not there."""
        self.private = {}

    @property
    def data(self) -> dict[bytes, Any]:  # type: ignore[override]
        return self._group.data

    def _note(self, key: bytes) -> None:
        if key not in self.before:
            if not self.before:
                self._undo.touched(self)
            self.before[key] = self._group.data.get(key, MISSING)

    def put(self, key: bytes, value: Any) -> None:
        self._note(key)
        self._group.put(key, value)

    def remove(self, key: bytes) -> None:
        self._note(key)
        self._group.remove(key)

    def own(self, key: bytes) -> Any:
        if key in self.before:
            return self._group.own(key)
        self._note(key)
        row = self.before[key]
        if self._content is None:
            copy = private_copy(row)
        elif type(row) is not self._content:
            copy = _with_own_parts(row)
        else:
            copy = self._content(row)
        self._group.put(key, copy)
        return copy

    def hand_out(self, key: bytes, part: Any, place: Any) -> Any:
        entries = self.own(key)[part]
        self._unshare(key, entries, (place,))
        return entries[place]

    def hand_out_all(self, key: bytes, part: Any) -> Any:
        entries = self.own(key)[part]
        self._unshare(key, entries, list(entries) if type(entries) is dict else range(len(entries)))
        return entries

    def _unshare(self, key: bytes, entries: Any, places: Any) -> None:
        assert self._content is not None
        noted = rows.part_of(self.before[key], self._content)
        if noted is None or noted is entries:
            return
        for place in places:
            value = entries[place]
            if type(value) not in IMMUTABLE and _at(noted, place) is value:
                entries[place] = private_copy(value)

    def forget(self) -> None:
        self.before = {}

    def take_back(self) -> None:
        for key, before in self.before.items():
            if before is MISSING:
                self._group.remove(key)
            else:
                # A snapshot may see what was noted, and what lies here may be changed in place.
                self._group.put(key, private_copy(before))


def _at(noted: Any, place: Any) -> Any:
    if type(noted) is dict:
        return noted.get(place, MISSING)
    return noted[place] if place < len(noted) else MISSING


def _with_own_parts(row: Any) -> Any:
    """A directory, or a page, that can be changed without a change of this one; the values are the same."""
    if type(row) is dict:
        return {name: part.copy() if type(part) is list else part for name, part in row.items()}
    return [part.copy() if type(part) is dict else part for part in row]
