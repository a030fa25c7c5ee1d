"""Stores whose changes can be taken back, in front of those that keep the state.

All of them note what the current key had before the record: a reference suffices, since what is handed out to be
changed in place is a copy, which lies in the state from then on. Nothing is noted twice, and of lists and maps no more
than what the record touches, so that a long list costs an `append` nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar, cast

from checkpoint.codec import page_key
from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.heap.stores import HeapDicts, HeapLists, HeapStore, HeapValues
from checkpoint.state.heap.ttl_stores import HeapTtlDicts, HeapTtlLists, HeapTtlStore, HeapTtlValues
from checkpoint.state.private_copy import private_copy
from checkpoint.state.stores import MISSING, ListStore, MapStore, PagedStore, StateStore, ValueStore
from checkpoint.state.undo import Undoable, UndoLog

_NOTHING: Final = object()
"""No row is noted. (`MISSING`: one that wasn't there is.)"""


S = TypeVar("S", bound=StateStore)


def undoable(store: S, undo: UndoLog) -> S:
    """The same state, for the handle of an operator whose changes may be taken back.

    Raises:
        TypeError: the store is none of the heap's.
    """
    if isinstance(store, HeapValues):
        return cast(S, UndoPaged(store, undo))
    if isinstance(store, HeapTtlValues):
        return cast(S, UndoValues(store, undo))
    if isinstance(store, HeapLists | HeapTtlLists):
        return cast(S, UndoLists(store, undo))
    if isinstance(store, HeapDicts | HeapTtlDicts):
        return cast(S, UndoDicts(store, undo))
    raise TypeError(f"{store.what}: changes of a {type(store).__name__} can't be taken back")


class _UndoStore(StateStore, Undoable):
    """A row is what the key group's map has for a key: with a time to live the stamps, too."""

    __slots__ = ("_before", "_group", "_key", "_raw", "_undo")

    def __init__(self, store: HeapStore, undo: UndoLog) -> None:
        super().__init__(store.what, store._current)
        self._raw = store
        self._undo = undo
        self._before: Any = _NOTHING
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
        if self._before is _NOTHING:
            self._touch()
            self._before = self._row()

    def delete(self) -> None:
        self._note()
        self._raw.delete()

    def peek_at(self, index: int, key: bytes, most: int) -> Any:
        return self._raw.peek_at(index, key, most)

    def forget(self) -> None:
        self._before = _NOTHING

    def take_back(self) -> None:
        if self._before is MISSING:
            self._group.remove(self._key)
        else:
            # A snapshot may see what was noted, and what lies here may be changed in place.
            self._group.put(self._key, private_copy(self._before))


class UndoValues(_UndoStore, ValueStore):
    __slots__ = ("_store",)

    def __init__(self, store: HeapValues | HeapTtlValues, undo: UndoLog) -> None:
        super().__init__(store, undo)
        self._store: ValueStore = store

    def get(self) -> Any:
        if self._before is _NOTHING:
            self._note()
            before = self._before
            if before is not MISSING and (copy := private_copy(before)) is not before:
                self._group.put(self._key, copy)
        return self._store.get()

    def peek(self) -> Any:
        return self._store.peek()

    def put(self, value: Any) -> None:
        self._note()
        self._store.put(value)


class UndoPaged(UndoValues, PagedStore):
    __slots__ = ("_pages",)

    def __init__(self, store: HeapValues, undo: UndoLog) -> None:
        super().__init__(store, undo)
        self._pages = _UndoPages(store, undo)

    def page(self, number: int) -> Any:
        return self._pages.page(number)

    def peek_page(self, number: int) -> Any:
        return self._pages.store.peek_page(number)

    def put_page(self, number: int, page: Any) -> None:
        self._pages.note(number)
        self._pages.store.put_page(number, page)

    def remove_page(self, number: int) -> None:
        self._pages.note(number)
        self._pages.store.remove_page(number)

    def each_key(self) -> Iterator[None]:
        return self._pages.store.each_key()


class _UndoPages(Undoable):
    """The pages of one state, of which a record touches those of one key."""

    __slots__ = ("_before", "_group", "_key", "_undo", "store")

    def __init__(self, store: HeapValues, undo: UndoLog) -> None:
        self.store = store
        self._undo = undo
        self._before: dict[int, Any] = {}
        self._group: KeyGroupMap
        self._key = b""

    def note(self, number: int) -> None:
        if not self._before:
            self._group = self.store._group()
            self._key = self.store.key
            self._undo.touched(self)
        if number not in self._before:
            self._before[number] = self.store.peek_page(number)

    def page(self, number: int) -> Any:
        if number not in self._before:
            self.note(number)
            before = self._before[number]
            if before is not MISSING:
                self.store.put_page(number, private_copy(before))
        return self.store.page(number)

    def forget(self) -> None:
        self._before = {}

    def take_back(self) -> None:
        for number, before in self._before.items():
            key = page_key(self._key, number)
            if before is MISSING:
                self._group.remove(key)
            else:
                self._group.put(key, private_copy(before))


class UndoLists(_UndoStore, ListStore):
    __slots__ = ("_length", "_stamped", "_store")

    def __init__(self, store: HeapLists | HeapTtlLists, undo: UndoLog) -> None:
        super().__init__(store, undo)
        self._store: ListStore = store
        self._stamped = isinstance(store, HeapTtlStore)
        self._length = -1
        """Of the row, while only that is noted: items were added."""

    def _note(self) -> None:
        if self._before is not _NOTHING:
            return
        if self._length < 0:
            self._touch()
            self._before = self._row()
        else:
            row, self._before = self._row(), MISSING
            self._before = (row[0][: self._length], row[1][: self._length]) if self._stamped else row[: self._length]
            self._length = -1

    def _note_length(self) -> None:
        if self._before is not _NOTHING or self._length >= 0:
            return
        self._touch()
        row = self._row()
        if row is MISSING:
            self._before = MISSING
        else:
            self._length = len(row[0] if self._stamped else row)

    def items(self) -> list[Any]:
        if self._before is _NOTHING:
            self._note()
            if self._before is not MISSING:
                self._group.put(self._key, private_copy(self._row()))
        return self._store.items()

    def append(self, item: Any) -> None:
        self._note_length()
        self._store.append(item)

    def extend(self, items: list[Any]) -> None:
        self._note_length()
        self._store.extend(items)

    def replace(self, items: list[Any]) -> None:
        self._note()
        self._store.replace(items)

    def count(self) -> int:
        return self._store.count()

    def forget(self) -> None:
        super().forget()
        self._length = -1

    def take_back(self) -> None:
        if self._length < 0:
            super().take_back()
            return
        row = self._group.own(self._key)
        for part in row if self._stamped else (row,):
            del part[self._length :]


class UndoDicts(_UndoStore, MapStore):
    __slots__ = ("_entries", "_stamped", "_store", "_touched")

    def __init__(self, store: HeapDicts | HeapTtlDicts, undo: UndoLog) -> None:
        super().__init__(store, undo)
        self._store: MapStore = store
        self._stamped = isinstance(store, HeapTtlStore)
        self._touched = False
        self._entries: dict[Any, Any] = {}
        """As they were: `MISSING`, or stamp (without one: `None`) and value. Those that are noted before the whole row
        is count, since the row had changed by then."""

    def _touch(self) -> None:
        if not self._touched:
            self._touched = True
            super()._touch()

    def _note_entry(self, map_key: Any, handed_out: bool) -> None:
        if self._before is MISSING:
            return
        self._touch()
        row = self._row()
        if row is MISSING:
            if self._before is _NOTHING:
                self._before = MISSING
            return
        stamps, values = row if self._stamped else (None, row)
        value = values.get(map_key, MISSING)
        if self._before is not _NOTHING:
            noted = (self._before[1] if self._stamped else self._before).get(map_key, MISSING)
            is_copy = noted is not value
        elif is_copy := map_key in self._entries:
            return
        else:
            self._entries[map_key] = MISSING if value is MISSING else (stamps and stamps[map_key], value)
        if handed_out and not is_copy and value is not MISSING and (copy := private_copy(value)) is not value:
            row = self._group.own(self._key)
            (row[1] if self._stamped else row)[map_key] = copy  # in its place, and with its stamp

    def _note(self) -> None:
        """The row with its order: entries are removed, or come to its end."""
        if self._before is not _NOTHING:
            return
        self._touch()
        row = self._row()
        if row is MISSING:
            self._before = MISSING
        else:
            self._before = (dict(row[0]), dict(row[1])) if self._stamped else dict(row)

    def get(self, map_key: Any) -> Any:
        self._note_entry(map_key, handed_out=True)
        return self._store.get(map_key)

    def peek(self, map_key: Any) -> Any:
        return self._store.peek(map_key)

    def put(self, map_key: Any, value: Any) -> None:
        self._note_entry(map_key, handed_out=False)
        if self._stamped and self._row_has(map_key) and self._store.peek(map_key) is MISSING:
            self._note()  # it is over, and comes to the end
        self._store.put(map_key, value)

    def _row_has(self, map_key: Any) -> bool:
        row = self._raw._group().data.get(self._current.key, MISSING)
        return row is not MISSING and map_key in row[0]

    def remove(self, map_key: Any) -> bool:
        self._note_entry(map_key, handed_out=False)
        self._note()
        return self._store.remove(map_key)

    def count(self) -> int:
        return self._store.count()

    def keys(self) -> dict[Any, Any]:
        return self._store.keys()

    def entries(self) -> dict[Any, Any]:
        row = self._raw._group().data.get(self._current.key, MISSING)
        if row is not MISSING:
            for map_key in list(row[1] if self._stamped else row):
                self._note_entry(map_key, handed_out=True)
        return self._store.entries()

    def peek_at_entry(self, index: int, key: bytes, map_key: Any) -> Any:
        return self._store.peek_at_entry(index, key, map_key)

    def forget(self) -> None:
        super().forget()
        self._touched = False
        self._entries = {}

    def take_back(self) -> None:
        if self._before is not _NOTHING:
            super().take_back()
        if self._before is MISSING or not self._entries:
            return
        row = self._group.own(self._key)
        stamps, values = row if self._stamped else (None, row)
        for map_key, saved in self._entries.items():
            if saved is MISSING:
                values.pop(map_key, None)
                if stamps is not None:
                    stamps.pop(map_key, None)
            else:
                stamp, value = saved
                values[map_key] = private_copy(value)
                if stamps is not None:
                    stamps[map_key] = stamp
