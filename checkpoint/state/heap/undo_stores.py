"""Stores whose changes can be taken back, in front of those that keep the state.

All of them note what the current key had before the record: a reference suffices, since what is handed out to be
changed in place is a copy, which lies in the state from then on. Nothing is noted twice, and of lists and maps no more
than what the record touches, so that a long list costs an `append` nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar, cast

from checkpoint.codec import page_key
from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.heap.stores import HeapDicts, HeapLists, HeapValues
from checkpoint.state.heap.ttl_stores import HeapTtlDicts, HeapTtlLists, HeapTtlValues
from checkpoint.state.heap.undo_members import UndoDicts, UndoLists
from checkpoint.state.heap.undo_rows import NOTHING, UndoStore
from checkpoint.state.private_copy import private_copy
from checkpoint.state.stores import MISSING, PagedStore, StateStore, ValueStore
from checkpoint.state.undo import Undoable, UndoLog

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


class UndoValues(UndoStore, ValueStore):
    __slots__ = ("_store",)

    def __init__(self, store: HeapValues | HeapTtlValues, undo: UndoLog) -> None:
        super().__init__(store, undo)
        self._store: ValueStore = store

    def get(self) -> Any:
        if self._before is NOTHING:
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
