"""Entries by time, no two of one time, in no order: a dict, or pages that are dicts."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final, cast

from checkpoint.state.handles import ValueHandle
from checkpoint.state.stores import MISSING, PagedStore
from pipeline.paged import directory
from pipeline.paged.directory import Directory

_DIRECTORY: Final = None
"""What a directory has where a plain dict has times."""


def in_pages(value: dict[Any, Any]) -> bool:
    """Whether a value is a directory."""
    return _DIRECTORY in value


def entries(handle: ValueHandle[Any]) -> MutableMapping[int, Any] | None:
    """Those of the current key, to be changed."""
    value = handle.value
    return Pages(handle, value) if value is not None and in_pages(value) else value


def has(handle: ValueHandle[Any], at: int) -> bool:
    """Whether the current key has an entry of that time. Changes nothing, so that nothing is written once more."""
    value = cast(PagedStore, handle.store).peek()
    if value is MISSING:
        return False
    return at in (Pages(handle, value) if in_pages(value) else value)


def with_room(handle: ValueHandle[Any], value: dict[int, Any]) -> MutableMapping[int, Any]:
    """Where another entry of the current key goes.

    Args:
        value: that of the handle.
    """
    if in_pages(value):
        return Pages(handle, value)
    return value if len(value) < directory.MOST else Pages.cut(handle)


def remove_all(handle: ValueHandle[Any]) -> None:
    """The current key has no entries any more."""
    value = cast(PagedStore, handle.store).peek()
    if value is not MISSING and in_pages(value):
        Pages(handle, handle.value).clear()
    handle.clear()


class Pages(MutableMapping[int, Any]):
    """Looks at what a key has in pages, in their order; a page has its entries in the order in which they came."""

    def __init__(self, handle: ValueHandle[Any], value: dict[Any, Any]) -> None:
        """`value`: a directory, of which nothing is changed if it is only looked at."""
        self._directory = Directory(cast(PagedStore, handle.store), value[_DIRECTORY])

    @classmethod
    def cut(cls, handle: ValueHandle[Any]) -> Pages:
        """Make pages of the current key's value, a plain dict that is not empty."""
        cut = sorted(handle.value.items())
        handle.put_checked({_DIRECTORY: Directory.new()})
        pages = cls(handle, handle.value)
        for i in range(0, len(cut), directory.MOST):
            page = dict(cut[i : i + directory.MOST])
            pages._directory.add(i // directory.MOST, min(page), page)
        pages._directory.counts(len(cut))
        return pages

    def __getitem__(self, at: int) -> Any:
        value = self.get(at, MISSING)
        if value is MISSING:
            raise KeyError(at)
        return value

    def get(self, at: int, default: Any = None, /) -> Any:
        found = self._directory
        return found.peek(found.place(at)).get(at, default) if found.numbers else default

    def __contains__(self, at: object) -> bool:
        return self.get(cast(int, at), MISSING) is not MISSING

    def __setitem__(self, at: int, value: Any) -> None:
        found = self._directory
        if not found.numbers:
            found.counts(1)
            found.add(0, at, {at: value})
            return
        place = found.place(at)
        page = found.own(place)
        found.lower(place, at)
        found.counts(at not in page)
        page[at] = value
        if len(page) > directory.MOST:
            cut = sorted(page.items())
            # Time mostly goes on: then the page stays full, and the next one begins.
            middle = len(cut) - 1 if place == len(found.numbers) - 1 and cut[-1][0] == at else len(cut) // 2
            page = dict(cut[:middle])
            found.add(place + 1, cut[middle][0], dict(cut[middle:]))
        found.put(place, page)

    def __delitem__(self, at: int) -> None:
        if at not in self:
            raise KeyError(at)
        found = self._directory
        place = found.place(at)
        page = found.own(place)
        del page[at]
        found.counts(-1)
        if page:
            found.put(place, page)
        else:
            found.remove(place)

    def clear(self) -> None:
        found = self._directory
        found.counts(-found.count)
        while found.numbers:
            found.remove(len(found.numbers) - 1)

    def __len__(self) -> int:
        return self._directory.count

    def __iter__(self) -> Iterator[int]:
        found = self._directory
        for place in range(len(found.numbers)):
            yield from list(found.peek(place))
