"""The RocksDB backend: keyed state on a local disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from checkpoint.codec import EncodingError
from checkpoint.state.descriptors import KeyedStateDescriptor
from checkpoint.state.evolution import decoded, fit_unseen
from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.heap.stores import HeapDicts, HeapLists, HeapValueHandle, HeapValues
from checkpoint.state.heap.ttl_stores import (
    HeapTtlDicts,
    HeapTtlLists,
    HeapTtlStore,
    HeapTtlValues,
    over_and_since,
)
from checkpoint.state.heap.undo_stores import undoable
from checkpoint.state.keyed_backend import KeyedBackend
from checkpoint.state.paging.rows import LISTS, MAPS
from checkpoint.state.restored_rows import TWICE, refuse_row
from checkpoint.state.rocksdb.changes import ChangeNotes, RocksChanges
from checkpoint.state.rocksdb.database import Database
from checkpoint.state.rocksdb.groups import CachedGroup, WriteBackCache
from checkpoint.state.rocksdb.rows import (
    DictRows,
    FrozenMemberRows,
    FrozenValueRows,
    ListRows,
    PlainRows,
    RowCodec,
    ValueRows,
)
from checkpoint.state.rocksdb.snapshot import RocksSnapshot, State
from checkpoint.state.rocksdb.sweep import RocksSweep
from checkpoint.state.rocksdb.timers import RocksTimers
from checkpoint.state.snapshot_format import StateBatch
from checkpoint.state.snapshot_writer import TtlRows
from checkpoint.state.stores import ListStore, MapStore, StateStore, ValueStore
from checkpoint.state.timers import EVENT_TIMERS, TIMER_STATES
from checkpoint.state.ttl import Lifetime
from checkpoint.state.undo import UndoLog
from checkpoint.state_backends import RocksDb

_STAMP: Final = 8
_EXTENSIONS: Final = frozenset({0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)})
"""First bytes in msgpack. Values of users' classes are extensions; whether they fit is seen when they are decoded."""


def rows_of(batch: StateBatch, descriptor: KeyedStateDescriptor, rows: RowCodec) -> list[bytes] | None:  # type: ignore[type-arg]
    """The rows of a batch with encoded values; `None`: it takes a closer look at them.

    Args:
        rows: of the state.
    """
    if batch.namespaces is not None:
        return None
    values, content = batch.values, descriptor.content
    members = content in (list, dict)
    firsts = {value[0] for value in values}
    if batch.content is not None and batch.content.paged is not None:
        fit = firsts <= LISTS | MAPS  # of which a look from nearer takes more than it tells: the file is whole
    elif members:
        fit = firsts <= (LISTS if content is list else MAPS)
    else:
        fit = not firsts & _EXTENSIONS
    if not fit:
        return None
    if descriptor.ttl is None:
        return values
    written = batch.written if batch.clock == descriptor.ttl.time and batch.written else [None] * len(values)
    found = []
    for value, stamps in zip(values, written, strict=True):
        count = _members(value) if members else 1
        if count == 0 or (stamps is not None and len(stamps) != _STAMP * count):
            return None
        found.append(rows.join(value, stamps, count))
    return found


def _members(value: bytes) -> int:
    """Of an encoded list or map."""
    first = value[0]
    if first < 0xA0:
        return first & 0x0F
    return int.from_bytes(value[1:3] if first in (0xDC, 0xDE) else value[1:5], "big")


S = TypeVar("S", bound=HeapTtlStore)
U = TypeVar("U", bound=StateStore)

_TIMERS: Final = 0xFFFE
"""Number of the first of the states of timers, which come last."""


class RocksDbBackend(KeyedBackend):
    """Keeps keyed state in RocksDB."""

    _value_handle_class = HeapValueHandle
    takes_encoded = True

    def __init__(
        self,
        key_groups: range,
        max_parallelism: int,
        options: RocksDb | None = None,
        logs_changes: bool = False,
    ) -> None:
        """`logs_changes`: it knows what has changed since the last barrier (see `freeze_changes`)."""
        self._logs_changes = logs_changes
        self._barriers = 0
        self._database = Database(options or RocksDb())
        self._numbers: dict[str, bytes] = {}
        """By state, timers included."""
        self._groups: dict[str, list[CachedGroup]] = {}
        """By state: what each of the subtask's key groups has."""
        self._timer_stores: list[RocksTimers] = []
        self._ttl: dict[str, HeapTtlStore] = {}
        """States with a time to live."""
        self._sweeps: list[RocksSweep] = []
        super().__init__(key_groups, max_parallelism)
        self._cache = WriteBackCache(self._database, self._current)
        self._note_changes()

    # -- stores ------------------------------------------------------------------------------------------------

    def _value_store(self, name: str, what: str, life: Lifetime | None) -> ValueStore:
        if life is None:
            return HeapValues(what, self._current, self._maps(name, PlainRows()))
        return self._with_ttl(name, HeapTtlValues(what, self._current, self._maps(name, ValueRows()), life))

    def _list_store(self, name: str, what: str, life: Lifetime | None) -> ListStore:
        if life is None:
            return HeapLists(what, self._current, self._maps(name, PlainRows()))
        return self._with_ttl(name, HeapTtlLists(what, self._current, self._maps(name, ListRows()), life))

    def _map_store(self, name: str, what: str, life: Lifetime | None) -> MapStore:
        if life is None:
            return HeapDicts(what, self._current, self._maps(name, PlainRows()))
        return self._with_ttl(name, HeapTtlDicts(what, self._current, self._maps(name, DictRows()), life))

    def _maps(self, name: str, rows: RowCodec) -> list[KeyGroupMap]:
        self._cache.operator = self._operator
        if name not in self._groups:
            number = self._numbers[name] = len(self._groups).to_bytes(2, "big")
            groups = self._groups[name] = []
            for group in self._key_groups:
                groups.append(CachedGroup(self._cache, name, group.to_bytes(2, "big") + number, rows))
                self._cache.add(groups[-1])
        return list(self._groups[name])

    def _with_ttl(self, name: str, store: S) -> S:
        if name not in self._ttl:
            self._ttl[name] = store
            self._sweeps.append(RocksSweep(self._database, store, self._groups[name]))
        return store

    def _undo_store(self, store: U, undo: UndoLog) -> U:
        return undoable(store, undo)

    def _timer_store(self, name: str) -> RocksTimers:
        number = self._numbers[name] = (_TIMERS + (name != EVENT_TIMERS)).to_bytes(2, "big")
        self._timer_stores.append(RocksTimers(self._database, self._key_groups, number))
        return self._timer_stores[-1]

    def remove_expired(self) -> None:
        for sweep in self._sweeps:
            self.expired += sweep.step()

    # -- checkpoints -------------------------------------------------------------------------------------------

    def freeze(self) -> RocksSnapshot:
        error = self._write()
        view = self._database.view()
        return RocksSnapshot(
            self._operator, self._max_parallelism, self._states(), self._frozen_ttl(), view, error, self._written()
        )

    def freeze_changes(self) -> RocksChanges:
        error, notes = self._write(), self._cache.notes
        assert notes is not None
        self._note_changes()
        rows = self._database.finder()
        over, since = over_and_since(self._ttl)
        return RocksChanges(
            self._operator, self._states(), self._frozen_ttl(), over, since, notes, rows, error, self._written()
        )

    def settle(self, changed: bool) -> None:
        self._write()
        if not changed:
            assert self._cache.notes is not None
            self._cache.notes.remove()
            self._note_changes()

    def _note_changes(self) -> None:
        """Begin anew with it."""
        if self._logs_changes:
            self._barriers += 1
            notes = ChangeNotes(self._database, self._barriers)
            self._cache.notes = notes
            for timers in self._timer_stores:
                timers.notes = notes

    def _write(self) -> EncodingError | None:
        """Write all that has changed. Returns why something could not be, if anything could not."""
        error = self._cache.write(stop=False, barrier=True)
        for timers in self._timer_stores:
            timers.write()
        return error

    def _states(self) -> dict[bytes, State]:
        return {number: State(name, name in TIMER_STATES) for name, number in self._numbers.items()}

    def _frozen_ttl(self) -> dict[str, TtlRows]:
        return {
            name: (FrozenMemberRows if store.has_members else FrozenValueRows)(store.life.frozen())
            for name, store in self._ttl.items()
        }

    def restore_encoded(self, batches: Iterable[StateBatch], allow_unclaimed: bool = False) -> None:
        for batch in self._as_kept(batches):
            self._restore_encoded(batch, allow_unclaimed)

    def _restore_encoded(self, batch: StateBatch, allow_unclaimed: bool) -> None:
        descriptor = self._declared.get(batch.state)
        fits = descriptor is not None and fit_unseen(batch.content, descriptor.declared)
        if descriptor is not None and fits and batch.group in self._key_groups:
            group = self._groups[batch.state][batch.group - self._first]
            rows = rows_of(batch, descriptor, group.rows)
            if rows is not None:
                if batch.clock != (None if descriptor.ttl is None else descriptor.ttl.time):
                    self.restored_as_it_was = False
                twice = group.load(zip(batch.keys, rows, strict=True))
                if twice is not None:
                    refuse_row(f"state {batch.state!r} of {self._operator}", twice, TWICE)
                return
        self._restore(decoded(batch), allow_unclaimed)

    def _load(
        self,
        name: str,
        index: int,
        keys: list[bytes],
        values: list[Any],
        stamps: Sequence[tuple[int, ...] | None] | None,
    ) -> bytes | None:
        store, group = self._ttl.get(name), self._groups[name][index]
        if store is not None:
            assert stamps is not None
            keys, values = store.kept_of(keys, values, stamps)
        return group.load(zip(keys, map(group.rows.pack, values), strict=True))

    # -- the process -------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        return self._database.metrics()

    def close(self) -> None:
        self._database.close()
