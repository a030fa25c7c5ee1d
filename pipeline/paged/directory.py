"""Which pages a key has, in their order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, Final

from checkpoint.state.stores import PagedStore

MOST: Final = 256
"""Entries of a value that is no directory, and of a page."""


class Directory:
    """Looks at the directory of the current key. Each entry has a time; a page has those of some stretch of time.

    In state it is how many entries there are, the number of the next page, and of each page the lowest time that it may
    have, ascending, and its number. No page is empty, and none has an entry above the lowest time of the next one.
    """

    __slots__ = ("_state", "_store", "bounds", "numbers")

    def __init__(self, store: PagedStore, state: list[Any]) -> None:
        self._store = store
        self._state = state
        self.bounds: list[int] = state[2]
        self.numbers: list[int] = state[3]

    @staticmethod
    def new() -> list[Any]:
        """The state of one without pages."""
        return [0, 0, [], []]

    @property
    def count(self) -> int:
        """Entries of all pages."""
        count: int = self._state[0]
        return count

    def place(self, at: int) -> int:
        """Which page an entry of that time is put into, counted from the first."""
        return max(0, bisect_right(self.bounds, at) - 1)

    def places(self, lower: int, upper: int) -> range:
        """The pages that may have entries from `lower` to `upper`, both included."""
        return range(max(0, bisect_left(self.bounds, lower) - 1), bisect_right(self.bounds, upper))

    def peek(self, place: int) -> Any:
        """A page, to be looked at only."""
        return self._store.peek_page(self.numbers[place])

    def own(self, place: int) -> Any:
        """A page, to be changed and `put`."""
        return self._store.page(self.numbers[place])

    def put(self, place: int, page: Any) -> None:
        self._store.put_page(self.numbers[place], page)

    def add(self, place: int, lowest: int, page: Any) -> None:
        """Another page."""
        number = self._state[1]
        self._state[1] += 1
        self.bounds.insert(place, lowest)
        self.numbers.insert(place, number)
        self._store.put_page(number, page)

    def remove(self, place: int) -> None:
        """A page has no entries any more."""
        del self.bounds[place]
        self._store.remove_page(self.numbers.pop(place))

    def lower(self, place: int, at: int) -> None:
        """A page gets an entry of that time."""
        if at < self.bounds[place]:
            self.bounds[place] = at

    def counts(self, more: int) -> None:
        """There are so many more entries, or fewer."""
        self._state[0] += more
