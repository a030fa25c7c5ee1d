"""What one record has changed of an operator's state, so that it can be taken back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from checkpoint.state.stores import TimerStore


class Undoable(ABC):
    """Something that notes what it was before a record changed it."""

    __slots__ = ()

    @abstractmethod
    def forget(self) -> None:
        """The changes stay."""

    @abstractmethod
    def take_back(self) -> None:
        """It is again what it was."""


class UndoLog:
    """Of one operator in one subtask. Used by the task thread only.

    What the operator may change calls `touched` in front of the first change of a record.
    """

    __slots__ = ("_marked", "_marks", "_touched")

    def __init__(self) -> None:
        self._touched: list[Undoable] = []
        self._marked: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self._marks: list[Any] = []

    def touched(self, one: Undoable) -> None:
        self._touched.append(one)

    def mark(self, get: Callable[[], Any], put_back: Callable[[Any], None]) -> None:
        """Small things that are looked at in front of each record."""
        self._marked.append((get, put_back))

    def begin(self) -> None:
        """A record, or a timer, is about to be processed. What has changed before that is not its doing."""
        if self._touched:
            self.keep()
        self._marks = [get() for get, _ in self._marked]

    def keep(self) -> None:
        """It has succeeded."""
        for one in self._touched:
            one.forget()
        self._touched.clear()

    def take_back(self) -> None:
        """It has failed: all is as it was before."""
        for one in reversed(self._touched):
            one.take_back()
            one.forget()
        self._touched.clear()
        for (_, put_back), mark in zip(self._marked, self._marks, strict=True):
            put_back(mark)


class UndoTimers(TimerStore, Undoable):
    """Notes which entries come and go."""

    __slots__ = ("_changes", "_store", "_undo")

    def __init__(self, store: TimerStore, undo: UndoLog) -> None:
        self._store = store
        self._undo = undo
        self._changes: list[tuple[Callable[[int, bytes], bool], int, bytes]] = []
        """What takes each change back."""

    def _changed(self, back: Callable[[int, bytes], bool], index: int, entry: bytes) -> None:
        if not self._changes:
            self._undo.touched(self)
        self._changes.append((back, index, entry))

    def has(self, index: int, entry: bytes) -> bool:
        return self._store.has(index, entry)

    def add(self, index: int, entry: bytes) -> bool:
        if not self._store.add(index, entry):
            return False
        self._changed(self._store.remove, index, entry)
        return True

    def remove(self, index: int, entry: bytes) -> bool:
        if not self._store.remove(index, entry):
            return False
        self._changed(self._store.add, index, entry)
        return True

    def entries_of(self, index: int, key: bytes, most: int) -> list[bytes]:
        return self._store.entries_of(index, key, most)

    def restore(self, index: int, entries: list[bytes]) -> bytes | None:
        return self._store.restore(index, entries)

    def first(self, bound: bytes | None) -> bytes | None:
        return self._store.first(bound)

    def __len__(self) -> int:
        return len(self._store)

    def forget(self) -> None:
        self._changes = []

    def take_back(self) -> None:
        for back, index, entry in reversed(self._changes):
            back(index, entry)
