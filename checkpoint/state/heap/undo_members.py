"""Lists and maps whose changes can be taken back. Of those that lie in no pages no more is noted than what a record
touches, so that an `append` costs nothing; what lies in pages, or comes to lie there, is noted row by row."""

from __future__ import annotations

from typing import Any

from checkpoint.state.heap.stores import HeapDicts, HeapLists
from checkpoint.state.heap.ttl_stores import HeapTtlDicts, HeapTtlLists, HeapTtlStore
from checkpoint.state.heap.undo_rows import NOTHING, NotedGroup, UndoStore
from checkpoint.state.paging import rows
from checkpoint.state.private_copy import private_copy
from checkpoint.state.stores import MISSING, ListStore, MapStore
from checkpoint.state.undo import UndoLog


class UndoLists(UndoStore, ListStore):
    __slots__ = ("_in_pages", "_length", "_noted", "_stamped", "_store")

    def __init__(self, store: HeapLists | HeapTtlLists, undo: UndoLog) -> None:
        super().__init__(store, undo)
        self._store: ListStore = store
        self._stamped = isinstance(store, HeapTtlStore)
        self._noted = [] if self._stamped else [NotedGroup(group, list, undo) for group in store._groups]
        self._in_pages = HeapLists(store.what, store._current, list(self._noted))
        self._length = -1
        """Of the row, while only that is noted: items were added."""

    def _note(self) -> None:
        if self._before is not NOTHING:
            return
        if self._length < 0:
            self._touch()
            self._before = self._row()
        else:
            row, self._before = self._row(), MISSING
            self._before = (row[0][: self._length], row[1][: self._length]) if self._stamped else row[: self._length]
            self._length = -1

    def _note_length(self) -> None:
        if self._before is not NOTHING or self._length >= 0:
            return
        self._touch()
        row = self._row()
        if row is MISSING:
            self._before = MISSING
        else:
            self._length = len(row[0] if self._stamped else row)

    def _with_pages(self, more: int) -> bool:
        """Whether a record comes upon pages, or makes some by adding so many items."""
        if self._stamped:
            return False
        group = self._noted_group()
        if group.before:
            return True
        row = group.data.get(self._current.key, ())
        if type(row) is dict:
            return True
        if more == 0 or len(row) + more <= rows.MOST:
            return False
        self._unshare()
        return True

    def _unshare(self) -> None:
        """No item that the row had before the record is in it any more, but a copy."""
        if self._before is NOTHING:
            self._note()
            before: Any = self._before
            if before is not MISSING:
                row, length = self._row(), len(before)
                self._group.put(self._key, [*map(private_copy, row[:length]), *row[length:]])

    def _noted_group(self) -> NotedGroup:
        self._raw._group()  # refuses where there is none
        return self._noted[self._current.index]

    def delete(self) -> None:
        if self._with_pages(0):
            self._in_pages.delete()
        else:
            super().delete()

    def items(self) -> list[Any]:
        if self._with_pages(0):
            return self._in_pages.items()
        if self._before is NOTHING:
            self._note()
            if self._before is not MISSING:
                self._group.put(self._key, private_copy(self._row()))
        return self._store.items()

    def append(self, item: Any) -> None:
        if self._with_pages(1):
            self._in_pages.append(item)
            return
        self._note_length()
        self._store.append(item)

    def extend(self, items: list[Any]) -> None:
        if self._with_pages(len(items)):
            self._in_pages.extend(items)
            return
        self._note_length()
        self._store.extend(items)

    def replace(self, items: list[Any]) -> None:
        if self._with_pages(len(items)):
            self._in_pages.replace(items)
            return
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


class UndoDicts(UndoStore, MapStore):
    __slots__ = ("_cuts", "_entries", "_in_pages", "_noted", "_stamped", "_store", "_touched")

    def __init__(self, store: HeapDicts | HeapTtlDicts, undo: UndoLog) -> None:
        super().__init__(store, undo)
        self._store: MapStore = store
        self._stamped = isinstance(store, HeapTtlStore)
        self._noted = [] if self._stamped else [NotedGroup(group, dict, undo) for group in store._groups]
        self._in_pages = HeapDicts(store.what, store._current, list(self._noted))
        self._cuts = None
        if isinstance(store, HeapDicts):
            self._cuts = store.is_cut
            self._in_pages.whole = store.whole
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
            if self._before is NOTHING:
                self._before = MISSING
            return
        stamps, values = row if self._stamped else (None, row)
        value = values.get(map_key, MISSING)
        if self._before is not NOTHING:
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
        if self._before is not NOTHING:
            return
        self._touch()
        row = self._row()
        if row is MISSING:
            self._before = MISSING
        else:
            self._before = (dict(row[0]), dict(row[1])) if self._stamped else dict(row)

    def _with_pages(self, *map_keys: Any, changes: bool = False) -> bool:
        """Whether a record comes upon pages, or makes some.

        Args:
            map_keys: those that it puts.
            changes: it does, or removes some.
        """
        if self._cuts is None:
            return False
        self._raw._group()  # refuses where there is none
        group, key = self._noted[self._current.index], self._current.key
        if group.before:
            return True
        row = group.data.get(key, MISSING)
        if type(row) is list:
            self._touch()
            return True
        if not changes or row is MISSING or len(row) < rows.MOST or not self._cuts(key, row, *map_keys):
            return False
        for map_key in list(row):
            self._note_entry(map_key, handed_out=True)
        return True

    def delete(self) -> None:
        if self._with_pages():
            self._in_pages.delete()
        else:
            super().delete()

    def get(self, map_key: Any) -> Any:
        if self._with_pages():
            return self._in_pages.get(map_key)
        self._note_entry(map_key, handed_out=True)
        return self._store.get(map_key)

    def peek(self, map_key: Any) -> Any:
        return self._store.peek(map_key)

    def put(self, map_key: Any, value: Any) -> None:
        if self._with_pages(map_key, changes=True):
            self._in_pages.put(map_key, value)
            return
        self._note_entry(map_key, handed_out=False)
        if self._stamped and self._row_has(map_key) and self._store.peek(map_key) is MISSING:
            self._note()  # it is over, and comes to the end
        self._store.put(map_key, value)

    def _row_has(self, map_key: Any) -> bool:
        row = self._raw._group().data.get(self._current.key, MISSING)
        return row is not MISSING and map_key in row[0]

    def remove(self, map_key: Any) -> bool:
        if self._with_pages(changes=True):
            return self._in_pages.remove(map_key)
        self._note_entry(map_key, handed_out=False)
        self._note()
        return self._store.remove(map_key)

    def count(self) -> int:
        return self._store.count()

    def keys(self) -> dict[Any, Any]:
        return self._store.keys()

    def entries(self) -> dict[Any, Any]:
        if self._with_pages():
            return self._in_pages.entries()
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
        self._in_pages.whole.discard(self._key)
        if self._before is not NOTHING:
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
