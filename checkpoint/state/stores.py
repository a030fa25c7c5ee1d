"""What a backend keeps for one state, as handles and timers see it.

A store knows the current key by itself, from the `CurrentKey` that it shares with its backend. Methods that need a key
raise `StateAccessError` where there is none. A handle binds the methods of its store once, since they run for every
record.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NoReturn

from checkpoint.state.errors import StateAccessError


class Missing(Enum):
    """There is no value. (An enum, since its member stays itself when it is pickled.)"""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
NO_KEY: Final = sys.maxsize
"""A position that no key group has: there is no current key."""


class CurrentKey:
    """The key of the record or timer that is being processed."""

    __slots__ = ("index", "key")

    def __init__(self) -> None:
        self.key: bytes = b""
        """Encoded. Meaningless while `index` is `NO_KEY`."""
        self.index: int = NO_KEY
        """Which of the subtask's key groups, counted from its first."""


def refuse_without_key(what: str) -> NoReturn:
    """
    Args:
        what: the state that was used, as messages name it.
    """
    raise StateAccessError(
        f"{what} was used where there is no current key; keyed state exists only in process and on_timer"
    )


class StateStore(ABC):
    """A state of any kind.

    What `get` and its like give may be changed in place until another key is the current one, and the change is kept.
    What is put belongs to the store.
    """

    __slots__ = ("_current", "what")

    def __init__(self, what: str, current: CurrentKey) -> None:
        self.what = what
        """The state, as messages name it."""
        self._current = current

    @property
    def key(self) -> bytes:
        """The current key, encoded.

        Raises:
            StateAccessError: there is none.
        """
        if self._current.index == NO_KEY:
            refuse_without_key(self.what)
        return self._current.key

    @abstractmethod
    def delete(self) -> None:
        """Forget all that the current key has."""

    @abstractmethod
    def peek_at(self, index: int, key: bytes, most: int) -> Any:
        """What any key has, as a snapshot taken now would hold it, or `MISSING`. It is only looked at, and at once:
        nothing changes by that, and nothing lives on. Needs no current key, and leaves it as it is.

        Args:
            index: position of the key's group.
            most: entries of a list or map that may be looked at.

        Raises:
            TooManyEntries: it has more, of which some may be over.
        """


class ValueStore(StateStore):
    """One value a key."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> Any:
        """The current key's value, or `MISSING`."""

    @abstractmethod
    def peek(self) -> Any:
        """As `get`, but the value is only looked at, not changed."""

    @abstractmethod
    def put(self, value: Any) -> None:
        """Set the current key's value."""


class PagedStore(ValueStore):
    """One value a key, beside which parts of it may lie as *pages*: rows of their own, so that what is large is read,
    copied and written page by page. They are numbered by whoever puts them, and who deletes the value must have removed
    them before."""

    __slots__ = ()

    @abstractmethod
    def page(self, number: int) -> Any:
        """A page of the current key, or `MISSING`. It may be changed in place, and must be put again then."""

    @abstractmethod
    def peek_page(self, number: int) -> Any:
        """As `page`, but it is only looked at, not changed."""

    @abstractmethod
    def put_page(self, number: int, page: Any) -> None:
        """Set a page, which a checkpoint can hold."""

    @abstractmethod
    def remove_page(self, number: int) -> None:
        """Remove a page that is there."""

    @abstractmethod
    def each_key(self) -> Iterator[None]:
        """Make each key that has a value the current one, in any order. Takes time for each of them, so it is for
        before the first record."""


class ListStore(StateStore):
    """A list a key. A list without items is no list."""

    __slots__ = ()

    @abstractmethod
    def items(self) -> list[Any]:
        """The current key's items in a new list."""

    @abstractmethod
    def append(self, item: Any) -> None:
        """Add one item at the end."""

    @abstractmethod
    def extend(self, items: list[Any]) -> None:
        """Add items at the end."""

    @abstractmethod
    def replace(self, items: list[Any]) -> None:
        """Set all items."""

    @abstractmethod
    def count(self) -> int:
        """How many items the current key has."""


class MapStore(StateStore):
    """A dict a key. A dict without entries is no dict. Its own keys compare as in any Python dict."""

    __slots__ = ()

    @abstractmethod
    def get(self, map_key: Any) -> Any:
        """The value of an entry, or `MISSING`."""

    @abstractmethod
    def peek(self, map_key: Any) -> Any:
        """As `get`, but the value is only looked at, not changed."""

    @abstractmethod
    def put(self, map_key: Any, value: Any) -> None:
        """Set an entry."""

    @abstractmethod
    def peek_at_entry(self, index: int, key: bytes, map_key: Any) -> Any:
        """As `peek_at`, the value of one entry."""

    @abstractmethod
    def remove(self, map_key: Any) -> bool:
        """Remove an entry. Returns whether it was there."""

    @abstractmethod
    def count(self) -> int:
        """How many entries the current key has."""

    @abstractmethod
    def keys(self) -> dict[Any, Any]:
        """A new dict with the keys of all entries, in the order in which they were put first. Its values mean
        nothing."""

    @abstractmethod
    def entries(self) -> dict[Any, Any]:
        """All entries in a new dict, in the same order."""


class TimerStore(ABC):
    """Entries of timers (see `checkpoint.state.timers`), in order. Needs no current key.

    Args:
        index: position of the entry's key group.
    """

    __slots__ = ()

    @abstractmethod
    def has(self, index: int, entry: bytes) -> bool:
        """Whether the entry is there."""

    @abstractmethod
    def add(self, index: int, entry: bytes) -> bool:
        """Add an entry. Returns whether it is new."""

    @abstractmethod
    def remove(self, index: int, entry: bytes) -> bool:
        """Remove an entry. Returns whether it was there."""

    @abstractmethod
    def entries_of(self, index: int, key: bytes, most: int) -> list[bytes]:
        """The entries of one key, in any order.

        Args:
            most: entries that may be looked at, of this key or others.

        Raises:
            TooManyEntries: to find them takes more.
        """

    @abstractmethod
    def restore(self, index: int, entries: list[bytes]) -> bytes | None:
        """Add entries of a snapshot. Returns one that was there already, if any was; the store is of no use then."""

    @abstractmethod
    def first(self, bound: bytes | None) -> bytes | None:
        """The least entry, if it is below the bound; `None` = no bound. Cheap where none is."""

    @abstractmethod
    def __len__(self) -> int: ...
