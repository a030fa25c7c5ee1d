"""The open windows of a key that are many: in pages, so that a record costs what it touches.

As long as they are few they are a plain dict, one value of state, which takes the least time. One that grows beyond a
bound is cut into pages, each a row of its own: the value is a directory of them then, until no window is open any more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, cast

from checkpoint.state.handles import ValueHandle
from checkpoint.state.stores import MISSING, PagedStore

MOST: Final = 256
"""Entries of a value, and of a page."""
_DIRECTORY: Final = None
"""What a directory has where a plain dict has begins of windows."""


def in_pages(value: dict[Any, Any]) -> bool:
    """Whether a value is a directory."""
    return _DIRECTORY in value


class Pages(MutableMapping[int, Any]):
    """Looks at what a key has in pages, in their order; a page has its entries in the order in which they came.

    The directory is how many entries there are, the number of the next page, and of each page the lowest begin that it
    may have, ascending, and its number.
    """

    def __init__(self, handle: ValueHandle[Any]) -> None:
        """`handle`: its value is a directory."""
        self._store = cast(PagedStore, handle.store)
        self._directory: list[Any] = handle.value[_DIRECTORY]
        self._bounds: list[int] = self._directory[2]
        self._numbers: list[int] = self._directory[3]

    @classmethod
    def cut(cls, handle: ValueHandle[Any]) -> Pages:
        """Make pages of the current key's value, a plain dict that is not empty."""
        entries = sorted(handle.value.items())
        handle.put_checked({_DIRECTORY: [len(entries), 0, [], []]})
        pages = cls(handle)
        for i in range(0, len(entries), MOST):
            pages._add_page(i // MOST, dict(entries[i : i + MOST]))
        return pages

    def __getitem__(self, begin: int) -> Any:
        value = self.get(begin, MISSING)
        if value is MISSING:
            raise KeyError(begin)
        return value

    def get(self, begin: int, default: Any = None, /) -> Any:
        return (
            self._store.peek_page(self._numbers[self._place(begin)]).get(begin, default) if self._numbers else default
        )

    def __contains__(self, begin: object) -> bool:
        return self.get(cast(int, begin), MISSING) is not MISSING

    def __setitem__(self, begin: int, value: Any) -> None:
        if not self._numbers:
            self._directory[0] = 1
            self._add_page(0, {begin: value})
            return
        place = self._place(begin)
        page = self._store.page(self._numbers[place])
        self._bounds[place] = min(begin, self._bounds[place])
        self._directory[0] += begin not in page
        page[begin] = value
        if len(page) > MOST:
            entries = sorted(page.items())
            page = dict(entries[: len(entries) // 2])
            self._add_page(place + 1, dict(entries[len(entries) // 2 :]))
        self._store.put_page(self._numbers[place], page)

    def __delitem__(self, begin: int) -> None:
        if begin not in self:
            raise KeyError(begin)
        place = self._place(begin)
        page = self._store.page(self._numbers[place])
        del page[begin]
        self._directory[0] -= 1
        if page:
            self._store.put_page(self._numbers[place], page)
        else:
            del self._bounds[place]
            self._store.remove_page(self._numbers.pop(place))

    def clear(self) -> None:
        for number in self._numbers:
            self._store.remove_page(number)
        self._directory[0] = 0
        self._bounds.clear()
        self._numbers.clear()

    def __len__(self) -> int:
        return cast(int, self._directory[0])

    def __iter__(self) -> Iterator[int]:
        for number in list(self._numbers):
            yield from list(self._store.peek_page(number))

    def _place(self, begin: int) -> int:
        return max(0, bisect_right(self._bounds, begin) - 1)

    def _add_page(self, place: int, page: dict[int, Any]) -> None:
        number = self._directory[1]
        self._directory[1] += 1
        self._bounds.insert(place, min(page))
        self._numbers.insert(place, number)
        self._store.put_page(number, page)
