"""The stores of the heap backend: dicts by key group.

What runs for every record looks its key group up by itself, since a call would take a good part of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

from checkpoint.codec import SCALARS, is_plain, owner_of, page_key
from checkpoint.counted import counted
from checkpoint.state.errors import TooManyEntries
from checkpoint.state.handles import ValueHandle
from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.paging import lists, maps, rows
from checkpoint.state.private_copy import IMMUTABLE
from checkpoint.state.stores import (
    MISSING,
    NO_KEY,
    CurrentKey,
    ListStore,
    MapStore,
    PagedStore,
    StateStore,
    refuse_without_key,
)

_NOTHING: Final[dict[Any, Any]] = {}
_IN_PAGES: Final = object()
"""In place of a value: it is to be looked for in pages."""
_MOST_WHOLE: Final = 4096
"""Maps that are known to be in no pages for good."""


def check_number(number: int, most: int) -> None:
    """
    Raises:
        TooManyEntries: there are more than `most`.
    """
    if number > most:
        raise TooManyEntries(
            f"no more than {counted(most, 'entry is', 'entries are')} looked at, and there are {number:,}"
        )


class HeapStore(StateStore):
    __slots__ = ("_groups",)

    has_members: ClassVar[bool] = True
    """What it keeps for a key are members, at least one."""

    def __init__(self, what: str, current: CurrentKey, groups: list[KeyGroupMap]) -> None:
        """`groups`: what each of the subtask's key groups has."""
        super().__init__(what, current)
        self._groups = groups

    def _group(self) -> KeyGroupMap:
        try:
            return self._groups[self._current.index]
        except IndexError:
            refuse_without_key(self.what)

    def delete(self) -> None:
        try:
            group = self._groups[self._current.index]
        except IndexError:
            refuse_without_key(self.what)
        group.remove(self._current.key)

    def peek_at(self, index: int, key: bytes, most: int) -> Any:
        value = self._groups[index].data.get(key, MISSING)
        if value is not MISSING and self.has_members:
            check_number(len(value), most)
        return value


class HeapValues(HeapStore, PagedStore):
    __slots__ = ()

    has_members = False

    def get(self) -> Any:
        current = self._current
        try:
            group = self._groups[current.index]
            value = group.data[current.key]
        except KeyError:
            return MISSING
        except IndexError:
            refuse_without_key(self.what)
        if group.private is None or type(value) in IMMUTABLE:
            return value
        return group.own(current.key)

    def peek(self) -> Any:
        current = self._current
        try:
            return self._groups[current.index].data.get(current.key, MISSING)
        except IndexError:
            refuse_without_key(self.what)

    def put(self, value: Any) -> None:
        current = self._current
        try:
            group = self._groups[current.index]
        except IndexError:
            refuse_without_key(self.what)
        private = group.private
        if private is None or current.key in private:
            group.data[current.key] = value
        else:
            group.put(current.key, value)

    def page(self, number: int) -> Any:
        group, key = self._group(), page_key(self._current.key, number)
        return group.own(key) if key in group.data else MISSING

    def peek_page(self, number: int) -> Any:
        return self._group().data.get(page_key(self._current.key, number), MISSING)

    def put_page(self, number: int, page: Any) -> None:
        self._group().put(page_key(self._current.key, number), page)

    def remove_page(self, number: int) -> None:
        self._group().remove(page_key(self._current.key, number))

    def each_key(self) -> Iterator[None]:
        current = self._current
        for index, group in enumerate(self._groups):
            for key in group.all_keys():
                if owner_of(key) == key:
                    current.key, current.index = key, index
                    yield
        current.index = NO_KEY


class HeapValueHandle(ValueHandle[Any]):
    """Does what its base does with `HeapValues`, without a call in between: that would take half as long again."""

    __slots__ = ("_current", "_groups")

    store: HeapValues

    def __init__(self, store: HeapValues, default: Any = None, factory: Callable[[], Any] | None = None) -> None:
        super().__init__(store, default, factory)
        self._current = store._current
        self._groups = store._groups

    @property
    def value(self) -> Any:
        """The current key's value, or the default. A mutable default is kept once it was read."""
        current = self._current
        try:
            group = self._groups[current.index]
            value = group.data[current.key]
        except KeyError:
            return self._initial()
        except IndexError:
            refuse_without_key(self._name)
        if group.private is None or type(value) in IMMUTABLE:
            return value
        return group.own(current.key)

    @value.setter
    def value(self, value: Any) -> None:
        current = self._current
        try:
            group = self._groups[current.index]
        except IndexError:
            refuse_without_key(self._name)
        if type(value) not in SCALARS and not is_plain(value):
            self._check(value, "the value", group.data.get(current.key, MISSING) is value)
        private = group.private
        if private is None or current.key in private:
            group.data[current.key] = value
        else:
            group.put(current.key, value)


class HeapLists(HeapStore, ListStore):
    """A list that is too long for one row lies in pages (see `checkpoint.state.paging`)."""

    __slots__ = ()

    def items(self) -> list[Any]:
        key = self._current.key
        try:
            group = self._groups[self._current.index]
        except IndexError:
            refuse_without_key(self.what)
        if key not in group.data:
            return []
        row = group.data[key]
        return list(group.own(key)) if type(row) is list else lists.items(group, key, row)

    def append(self, item: Any) -> None:
        current = self._current
        key = current.key
        try:
            group = self._groups[current.index]
            row = group.data[key]
        except KeyError:
            group.put(key, [item])
            return
        except IndexError:
            refuse_without_key(self.what)
        if type(row) is list and len(row) < rows.MOST:
            private = group.private
            (row if private is None or key in private else group.own(key)).append(item)
        else:
            self._in_pages(group, key)
            lists.append(group, key, item)

    def extend(self, items: list[Any]) -> None:
        group, key = self._group(), self._current.key
        if key not in group.data:
            self.replace(items)
            return
        row = group.data[key]
        if type(row) is list and len(row) + len(items) <= rows.MOST:
            group.own(key).extend(items)
        else:
            self._in_pages(group, key)
            lists.extend(group, key, items)

    def replace(self, items: list[Any]) -> None:
        group, key = self._group(), self._current.key
        if type(group.data.get(key)) is dict:
            lists.delete(group, key)
        if len(items) > rows.MOST:
            lists.put(group, key, items)
        elif items:
            group.put(key, items)
        else:
            group.remove(key)

    def _in_pages(self, group: KeyGroupMap, key: bytes) -> None:
        """Make pages of what the key has, unless there are."""
        if type(group.data[key]) is list:
            lists.put(group, key, group.own(key))

    def delete(self) -> None:
        group, key = self._group(), self._current.key
        if type(group.data.get(key)) is dict:
            lists.delete(group, key)
        else:
            group.remove(key)

    def count(self) -> int:
        row = self._group().data.get(self._current.key, ())
        return row[rows.COUNT] if type(row) is dict else len(row)

    def peek_at(self, index: int, key: bytes, most: int) -> Any:
        group = self._groups[index]
        row = group.data.get(key)
        if type(row) is not dict:
            return super().peek_at(index, key, most)
        check_number(row[rows.COUNT], most)
        return lists.peek(group, key, row)


class HeapDicts(HeapStore, MapStore):
    """A map that is too large for one row lies in pages (see `checkpoint.state.paging`)."""

    __slots__ = ("whole",)

    def __init__(self, what: str, current: CurrentKey, groups: list[KeyGroupMap]) -> None:
        super().__init__(what, current, groups)
        self.whole: set[bytes] = set()
        """Keys whose maps are large and can't be cut, as far as that was tried."""

    def get(self, map_key: Any) -> Any:
        current = self._current
        key = current.key
        try:
            group = self._groups[current.index]
            row = group.data[key]
            value = row[map_key] if type(row) is dict else _IN_PAGES
        except KeyError:
            return MISSING
        except IndexError:
            refuse_without_key(self.what)
        if value is _IN_PAGES:
            return maps.get(group, key, row, map_key)
        if group.private is None or type(value) in IMMUTABLE:
            return value
        return group.own(key)[map_key]

    def peek(self, map_key: Any) -> Any:
        current = self._current
        try:
            group = self._groups[current.index]
        except IndexError:
            refuse_without_key(self.what)
        row = group.data.get(current.key, _NOTHING)
        return row.get(map_key, MISSING) if type(row) is dict else maps.peek(group, current.key, row, map_key)

    def peek_at_entry(self, index: int, key: bytes, map_key: Any) -> Any:
        group = self._groups[index]
        row = group.data.get(key, _NOTHING)
        return row.get(map_key, MISSING) if type(row) is dict else maps.peek(group, key, row, map_key)

    def put(self, map_key: Any, value: Any) -> None:
        current = self._current
        key = current.key
        try:
            group = self._groups[current.index]
            row = group.data[key]
        except KeyError:
            group.put(key, {map_key: value})
            return
        except IndexError:
            refuse_without_key(self.what)
        if type(row) is dict and (len(row) < rows.MOST or not self.is_cut(key, row, map_key)):
            private = group.private
            (row if private is None or key in private else group.own(key))[map_key] = value
            return
        if type(row) is dict:
            maps.cut(group, key)
        maps.put(group, key, map_key, value)

    def is_cut(self, key: bytes, row: dict[Any, Any], *map_keys: Any) -> bool:
        """Whether a map that lies in no pages is to be cut.

        Args:
            map_keys: those that it is about to have, too.
        """
        if len(row) + sum(map_key not in row for map_key in map_keys) <= rows.MOST:
            return False
        if key in self.whole:
            return False
        if maps.can_be_cut((*map_keys, *row)):
            return True
        if len(self.whole) >= _MOST_WHOLE:
            self.whole.clear()
        self.whole.add(key)
        return False

    def remove(self, map_key: Any) -> bool:
        group, key = self._group(), self._current.key
        row = group.data.get(key, _NOTHING)
        if type(row) is dict:
            if map_key not in row:
                return False
            if len(row) == 1:
                group.remove(key)
                return True
            if len(row) <= rows.MOST or not self.is_cut(key, row):
                del group.own(key)[map_key]
                if self.whole and not maps.can_be_cut((map_key,)):
                    self.whole.discard(key)
                return True
            maps.cut(group, key)
        return maps.remove(group, key, map_key)

    def delete(self) -> None:
        group, key = self._group(), self._current.key
        if type(group.data.get(key)) is list:
            maps.delete(group, key)
        else:
            group.remove(key)
            self.whole.discard(key)

    def count(self) -> int:
        row = self._group().data.get(self._current.key, _NOTHING)
        return len(row) if type(row) is dict else row[rows.SIZE]

    def keys(self) -> dict[Any, Any]:
        group, key = self._group(), self._current.key
        row = group.data.get(key, _NOTHING)
        return dict(row) if type(row) is dict else maps.keys(group, key, row)

    def entries(self) -> dict[Any, Any]:
        group, key = self._group(), self._current.key
        if key not in group.data:
            return {}
        row = group.data[key]
        return dict(group.own(key)) if type(row) is dict else maps.entries(group, key, row)

    def peek_at(self, index: int, key: bytes, most: int) -> Any:
        group = self._groups[index]
        row = group.data.get(key)
        if type(row) is not list:
            return super().peek_at(index, key, most)
        check_number(row[rows.SIZE], most)
        return maps.keys(group, key, row)
