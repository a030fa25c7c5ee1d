"""Stores whose changes can be taken back, in front of those that keep the state.

All of them note what the current key had before the record: a reference suffices, since what is handed out to be
changed in place is a copy, which lies in the state from then on. Nothing is noted twice, and of lists and maps no more
than what the record touches, so that a long list costs an `append` nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar, cast

from checkpoint.state.heap.stores import HeapDicts, HeapLists, HeapValues
from checkpoint.state.heap.ttl_stores import HeapTtlDicts, HeapTtlLists, HeapTtlValues
from checkpoint.state.heap.undo_members import UndoDicts, UndoLists
from checkpoint.state.heap.undo_rows import NOTHING, NotedGroup, UndoStore
from checkpoint.state.private_copy import private_copy
from checkpoint.state.stores import MISSING, PagedStore, StateStore, ValueStore
from checkpoint.state.undo import UndoLog

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
        self._pages = HeapValues(store.what, store._current, [NotedGroup(group, None, undo) for group in store._groups])

    def page(self, number: int) -> Any:
        return self._pages.page(number)

    def peek_page(self, number: int) -> Any:
        return self._pages.peek_page(number)

    def put_page(self, number: int, page: Any) -> None:
        self._pages.put_page(number, page)

    def remove_page(self, number: int) -> None:
        self._pages.remove_page(number)

    def each_key(self) -> Iterator[None]:
        return cast(PagedStore, self._store).each_key()
