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
    __slots__ = ()

    def items(self) -> list[Any]:
        key = self._current.key
        try:
            group = self._groups[self._current.index]
        except IndexError:
            refuse_without_key(self.what)
        return list(group.own(key)) if key in group.data else []

    def append(self, item: Any) -> None:
        key = self._current.key
        try:
            group = self._groups[self._current.index]
        except IndexError:
            refuse_without_key(self.what)
        if key in group.data:
            group.own(key).append(item)
        else:
            group.put(key, [item])

    def extend(self, items: list[Any]) -> None:
        group, key = self._group(), self._current.key
        if key in group.data:
            group.own(key).extend(items)
        elif items:
            group.put(key, items)

    def replace(self, items: list[Any]) -> None:
        if items:
            self._group().put(self._current.key, items)
        else:
            self.delete()

    def count(self) -> int:
        return len(self._group().data.get(self._current.key, ()))


class HeapDicts(HeapStore, MapStore):
    __slots__ = ()

    def _entries(self) -> dict[Any, Any]:
        """For reading only."""
        entries: dict[Any, Any] = self._group().data.get(self._current.key, _NOTHING)
        return entries

    def get(self, map_key: Any) -> Any:
        key = self._current.key
        try:
            group = self._groups[self._current.index]
            value = group.data[key][map_key]
        except KeyError:
            return MISSING
        except IndexError:
            refuse_without_key(self.what)
        if group.private is None or type(value) in IMMUTABLE:
            return value
        return group.own(key)[map_key]

    def peek(self, map_key: Any) -> Any:
        try:
            entries = self._groups[self._current.index].data.get(self._current.key, _NOTHING)
        except IndexError:
            refuse_without_key(self.what)
        return entries.get(map_key, MISSING)

    def peek_at_entry(self, index: int, key: bytes, map_key: Any) -> Any:
        return self._groups[index].data.get(key, _NOTHING).get(map_key, MISSING)

    def put(self, map_key: Any, value: Any) -> None:
        key = self._current.key
        try:
            group = self._groups[self._current.index]
        except IndexError:
            refuse_without_key(self.what)
        if key in group.data:
            group.own(key)[map_key] = value
        else:
            group.put(key, {map_key: value})

    def remove(self, map_key: Any) -> bool:
        group, key = self._group(), self._current.key
        entries = group.data.get(key, _NOTHING)
        if map_key not in entries:
            return False
        if len(entries) == 1:
            group.remove(key)
        else:
            del group.own(key)[map_key]
        return True

    def count(self) -> int:
        return len(self._entries())

    def keys(self) -> dict[Any, Any]:
        return dict(self._entries())

    def entries(self) -> dict[Any, Any]:
        group, key = self._group(), self._current.key
        return dict(group.own(key)) if key in group.data else {}
