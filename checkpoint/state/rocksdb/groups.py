"""What the stores of the heap work on, here a write-back cache: rows of RocksDB as Python objects.

Two generations of dicts: what is used lies in the newer one. When that is full, the older one is dropped, and a new one
begun. What has changed is written before, also when many have changed, and at a barrier; the current key's values may
be changed in place later, so they stay changed until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from sys import getsizeof
from typing import Any, Final
from weakref import ref

from checkpoint.codec import EncodingError, decode_key, owner_of, pages_of
from checkpoint.shown import shown
from checkpoint.state.errors import StateNotWritten
from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.rocksdb.changes import ChangeNotes
from checkpoint.state.rocksdb.database import Database, end_of
from checkpoint.state.rocksdb.rows import RowCodec
from checkpoint.state.stores import MISSING, NO_KEY, CurrentKey

MOST_CHANGED: Final = 16_384
"""Values; to write them takes one to three microseconds each, and at a barrier all are written."""
PIECE: Final = 1_024
"""So many are written when there are more."""
_EARLY: Final = 4
"""In the last share of one in so many of a generation."""
_PIECES: Final = 256
"""A piece is written whenever a share of one in so many has come in."""
_AT_ONCE: Final = 128
"""Values that are encoded in one go."""
_ENTRY: Final = 200
"""Bytes that an entry takes beside key and value."""
_DECODED: Final = 3
"""A value takes so many times the bytes that it has when it is encoded."""
_LARGE: Final = 4096
"""Bytes of a row that is charged again when it is written, since it may have grown."""
_FEW: Final = 8
_PAGE: Final = 2
"""Members of a page of a list or map, which has many things in one of them."""
_MEMBER: Final = 64
"""Bytes that a member of a list, or the key and value of a dict, take beside their place."""


class Cached(dict[bytes, Any]):
    """Finds what is not in it in RocksDB."""

    __slots__ = ("_load",)

    def __init__(self, load: Callable[[bytes], Any]) -> None:
        self._load = load

    def __missing__(self, key: bytes) -> Any:
        return self._load(key)

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or (type(key) is bytes and self.get(key, MISSING) is not MISSING)

    def get(self, key: bytes, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


class CachedGroup(KeyGroupMap):
    """One state's values in one key group. `private` has the keys that have changed and are not written, and whether
    they may have been there before."""

    __slots__ = ("__weakref__", "_absent", "_cache", "_loaded", "_old", "name", "prefix", "rows")

    private: dict[bytes, bool]

    def __init__(self, cache: WriteBackCache, name: str, prefix: bytes, rows: RowCodec) -> None:
        self._cache = cache
        self.name = name
        self.prefix = prefix
        self.rows = rows
        self.private = {}
        self._absent: set[bytes] = set()
        """Keys without a value, as far as they were asked for; of those in `private`, without one before."""
        self._old: dict[bytes, Any] = {}
        self._loaded = False
        """Something was restored."""
        self.data = self._new()

    def _new(self) -> Cached:
        me = ref(self)

        def load(key: bytes) -> Any:
            group = me()
            assert group is not None
            return group._load(key)

        return Cached(load)

    def _load(self, key: bytes) -> Any:
        value = self._old.pop(key, MISSING)
        if value is not MISSING:
            size = _size(value)
        elif key in self._absent:
            raise KeyError(key)
        else:
            row = self._cache.database.get(self.prefix + key)
            if row is None:
                self._cache.charge(_ENTRY // 2 + len(key))
                self._absent.add(key)
                raise KeyError(key)
            value, size = self.rows.unpack(row), _DECODED * len(row)
        self._cache.charge(_ENTRY + len(key) + size)  # before it is there: that may begin a new dict
        self.data[key] = value
        return value

    def put(self, key: bytes, value: Any) -> None:
        if key not in self.private:
            self._cache.charge(_ENTRY + len(key) + _size(value))
            self._changes(key, key not in self._absent)
        self.data[key] = value

    def remove(self, key: bytes) -> None:
        if self._old.pop(key, MISSING) is self.data.pop(key, MISSING) is MISSING and key in self._absent:
            return
        if key not in self.private:
            self._cache.charge(_ENTRY // 2 + len(key))
            self._changes(key, key not in self._absent)
        self._absent.add(key)

    def own(self, key: bytes) -> Any:
        value = self.data[key]
        if key not in self.private:
            self._changes(key, True)
        return value

    def is_shared(self, key: bytes) -> bool:
        return False

    def all_keys(self) -> Iterator[bytes]:
        self._cache.write(stop=True)
        for row, _ in self._cache.database.scan(self.prefix, end_of(self.prefix)):
            yield row[len(self.prefix) :]

    def compact(self) -> None:
        """There is nothing to be given back."""

    def _changes(self, key: bytes, was_there: bool) -> None:
        self._cache.changes()  # may write the others
        self.private[key] = was_there

    def load(self, rows: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """Take over rows of a snapshot.

        Returns:
            A key that has a value already, if there is any.
        """
        found: dict[bytes, bytes] = {}
        for key, row in rows:
            if key in found or (self._loaded and key in self.data) or dict.__contains__(self.data, key):
                return key
            found[key] = row
        self._loaded = True
        self._absent = set()
        prefix = self.prefix
        self._cache.database.write((prefix + key, row) for key, row in found.items())
        self._cache.loaded(prefix, found)
        return None

    # -- by the cache ------------------------------------------------------------------------------------------

    def changed(
        self, kept: bytes | None, failed: Callable[[CachedGroup, bytes, EncodingError], None], most: int | None = None
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """The rows that have changed, which count as written then, except for those that can't be.

        Args:
            kept: a key that goes on being changed, and so do its pages.
            most: rows; `None` = all.
        """
        notes, private, pop = self._cache.notes, self.private, self.private.pop
        prefix, discard, note = self.prefix, self._absent.discard, None if notes is None else notes.note
        changed = list(islice(private, most))
        pages = None if kept is None else pages_of(kept)
        for i in range(0, len(changed), _AT_ONCE):
            for key, row in self._packed(changed[i : i + _AT_ONCE], failed):
                was_there, place = pop(key), prefix + key
                if pages is not None and (key == kept or key.startswith(pages)):
                    private[key] = True
                if note is not None:
                    note(place, was_there)
                if row is not None:
                    discard(key)
                    if len(row) >= _LARGE:
                        self._cache.charged += _DECODED * len(row)
                yield place, row

    def _packed(
        self, keys: list[bytes], failed: Callable[[CachedGroup, bytes, EncodingError], None]
    ) -> Iterable[tuple[bytes, bytes | None]]:
        get, data, old, pack = dict.get, self.data, self._old, self.rows.pack
        values = [get(old, key, MISSING) if (value := get(data, key, MISSING)) is MISSING else value for key in keys]
        there = [value for value in values if value is not MISSING]
        rows: list[tuple[bytes, bytes | None]] = []
        try:
            packed = self.rows.pack_all(there)
        except EncodingError:
            for key, value in zip(keys, values, strict=True):
                try:
                    rows.append((key, None if value is MISSING else pack(value)))
                except EncodingError as error:
                    failed(self, key, error)
            return rows
        if len(there) == len(keys):
            return zip(keys, packed, strict=True)
        rest = iter(packed)
        return [(key, None if value is MISSING else next(rest)) for key, value in zip(keys, values, strict=True)]

    def age(self, current: bytes | None) -> None:
        """Drop what was not used for long."""
        staying = self.private if current is None else {*self.private, current}
        before, old = self.data, self._old
        self._old, self._absent, self.data = before, set(), self._new()
        for key in staying:
            value = before.pop(key, MISSING)
            if value is MISSING:
                value = old.pop(key, MISSING)
            if value is not MISSING:
                self.data[key] = value
            elif key in self.private:
                self._absent.add(key)


class WriteBackCache:
    """All groups of a backend."""

    def __init__(self, database: Database, current: CurrentKey) -> None:
        self.database = database
        self._current = current
        self._groups: list[ref[CachedGroup]] = []
        """Of the backend and its stores: with them goes the last that uses the database."""
        self._changed = 0
        """Values that have changed and are not written."""
        self._most_changed = MOST_CHANGED
        """From here on a piece is written; more than usual where much belongs to the current key, which stays."""
        self._next = 0
        """The group that the next piece begins with."""
        self.notes: ChangeNotes | None = None
        """Of what is written, if that is noted."""
        self.operator = "operator"
        self.charged = 0
        """Bytes of the newer generation, about."""
        self._set_limit()

    def _set_limit(self) -> None:
        self._limit = self.database.values_budget() // 2
        self._due = self._limit - self._limit // _EARLY
        """From here on what has changed is written piece by piece, so that little is left when a new one begins."""

    def add(self, group: CachedGroup) -> None:
        self._groups.append(ref(group))

    def _living(self) -> Iterator[CachedGroup]:
        return (group for one in self._groups if (group := one()) is not None)

    def loaded(self, prefix: bytes, keys: Iterable[bytes]) -> None:
        """Rows of a snapshot were written."""
        if self.notes is not None:
            for key in keys:
                self.notes.note(prefix + key, False)
            self.notes.limit()

    def charge(self, size: int) -> None:
        """Something comes in."""
        self.charged += size
        if self.charged <= self._due:
            return
        if self.charged <= self._limit:
            self._due += self._limit // _PIECES
            self.write(stop=True, most=PIECE)
        else:
            self._set_limit()
            self.charged = size
            self.write(stop=True)
            current = self._current.key if self._current.index != NO_KEY else None
            for group in self._living():
                group.age(current)

    def changes(self) -> None:
        """One more value is about to change."""
        self._changed += 1
        if self._changed > self._most_changed:
            self.write(stop=True, most=PIECE)
            self._most_changed = max(MOST_CHANGED, self._changed + PIECE)

    def write(self, stop: bool, barrier: bool = False, most: int | None = None) -> EncodingError | None:
        """Write what has changed.

        Args:
            stop: raise an error instead of returning it.
            barrier: also what belongs to the current key.
            most: rows, about; `None` = all.

        Returns:
            Why something could not be written, if anything could not.

        Raises:
            StateNotWritten: a value can't be kept; the message names the operator, the state and the key.
        """
        kept = self._current.key if self._current.index != NO_KEY and not barrier else None
        errors: list[EncodingError] = []

        def failed(group: CachedGroup, key: bytes, error: EncodingError) -> None:
            of = shown(decode_key(owner_of(key)))
            errors.append(StateNotWritten(f"state {group.name!r} of {self.operator}, key {of}: {error}"))

        self.database.write(self._rows(kept, failed, most))
        if self.notes is not None:
            self.notes.limit()
        if errors and stop:
            raise errors[0]
        return errors[0] if errors else None

    def _rows(
        self, kept: bytes | None, failed: Callable[[CachedGroup, bytes, EncodingError], None], most: int | None
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """What has changed, of one group after the other. A piece goes on behind the last group of the one before."""
        count, start = len(self._groups), self._next
        for i in range(start, start + count):
            group = self._groups[i % count]()
            if group is not None and group.private:
                before = len(group.private)
                yield from group.changed(kept, failed, most)
                written = before - len(group.private)
                self._changed -= written
                if most is not None:
                    most -= written
                    if most <= 0:
                        self._next = (i + 1) % count
                        return


def _size(value: Any) -> int:
    """Bytes of what is put, about."""
    kind = type(value)
    if kind is list or kind is tuple or kind is dict:
        members = value.values() if kind is dict else value
        if len(value) <= _FEW:
            size = getsizeof(value) + sum(map(getsizeof, members))
            if len(value) <= _PAGE:
                size += sum([_MEMBER * len(one) for one in members if type(one) is dict or type(one) is list])
            return size
        return getsizeof(value) + _MEMBER * len(value)
    return getsizeof(value)
