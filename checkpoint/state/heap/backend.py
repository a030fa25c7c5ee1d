"""The heap backend: keyed state in dicts, snapshots by copy-on-write."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from checkpoint.state import garbage
from checkpoint.state.contents import Declared
from checkpoint.state.heap.logged_maps import ChangedKeys, HeapChanges, LoggedMap
from checkpoint.state.heap.maps import KeyGroupMap, SnapshotReading
from checkpoint.state.heap.stores import HeapDicts, HeapLists, HeapValueHandle, HeapValues
from checkpoint.state.heap.sweep import Sweep
from checkpoint.state.heap.timers import HeapTimers
from checkpoint.state.heap.ttl_stores import (
    HeapTtlDicts,
    HeapTtlLists,
    HeapTtlStore,
    HeapTtlValues,
    over_and_since,
)
from checkpoint.state.heap.undo_stores import undoable
from checkpoint.state.keyed_backend import KeyedBackend
from checkpoint.state.keyed_snapshot import WholeSnapshot
from checkpoint.state.snapshot_format import StateBatch
from checkpoint.state.snapshot_writer import FrozenGroup, TtlRows
from checkpoint.state.stores import NO_KEY, ListStore, MapStore, StateStore, ValueStore
from checkpoint.state.timers import TIMER_STATES
from checkpoint.state.ttl import Lifetime
from checkpoint.state.undo import UndoLog

_FREED_AT_ONCE: Final = 64
"""Values; some microseconds each."""


class HeapSnapshot(WholeSnapshot):
    """Groups of dicts that nobody changes any more. Each is freed once it is written."""

    def __init__(
        self,
        operator: str,
        max_parallelism: int,
        groups: list[tuple[FrozenGroup, SnapshotReading]],
        ttl: Mapping[str, TtlRows],
        declared: Mapping[str, Declared],
    ) -> None:
        """
        Args:
            groups: what is read of each key group, and until when.
        """
        super().__init__(operator, max_parallelism, ttl, declared)
        self._frozen = [group for group, _ in groups]
        self._readings = [reading for _, reading in groups]

    def _groups(self) -> Iterator[FrozenGroup]:
        """The groups. When the next one is asked for, the backend may change what the one before has, which is freed
        unless the caller still holds it. Nobody else may know values that were changed since the barrier, and to free
        them at once would hold the interpreter for as long as that takes, so that is done piece by piece."""
        groups, readings = self._frozen, self._readings
        groups.reverse()
        readings.reverse()
        while groups:
            kept = [list(data.values()) for _, data in groups[-1][1]]
            yield groups.pop()
            readings.pop().over = True
            for values in kept:
                while values:
                    del values[-_FREED_AT_ONCE:]

    def _free(self) -> None:
        for reading in self._readings:  # of the group, too, at which it was given up
            reading.over = True
        for _ in self._groups():
            pass


S = TypeVar("S", bound=HeapTtlStore)
U = TypeVar("U", bound=StateStore)


class HeapBackend(KeyedBackend):
    """Keeps keyed state in the memory of the process."""

    _value_handle_class = HeapValueHandle

    def __init__(self, key_groups: range, max_parallelism: int, logs_changes: bool = False) -> None:
        """`logs_changes`: it knows what has changed since the last barrier (see `freeze_changes`)."""
        self._logs_changes = logs_changes
        self._maps: dict[str, list[KeyGroupMap]] = {}
        """By state, timers included: what each of the subtask's key groups has."""
        self._ttl: dict[str, HeapTtlStore] = {}
        """States with a time to live."""
        self._sweeps: list[Sweep] = []
        self._restored: tuple[int, dict[bytes, bytes]] = NO_KEY, {}
        """While it is restored: the position of the key group that came last, and its keys."""
        super().__init__(key_groups, max_parallelism)

    def _groups(self, name: str) -> list[KeyGroupMap]:
        if name not in self._maps:
            kind = LoggedMap if self._logs_changes else KeyGroupMap
            self._maps[name] = [kind() for _ in self._key_groups]
        return self._maps[name]

    def _value_store(self, name: str, what: str, life: Lifetime | None) -> ValueStore:
        if life is None:
            return HeapValues(what, self._current, self._groups(name))
        return self._with_ttl(name, HeapTtlValues(what, self._current, self._groups(name), life))

    def _list_store(self, name: str, what: str, life: Lifetime | None) -> ListStore:
        if life is None:
            return HeapLists(what, self._current, self._groups(name))
        return self._with_ttl(name, HeapTtlLists(what, self._current, self._groups(name), life))

    def _map_store(self, name: str, what: str, life: Lifetime | None) -> MapStore:
        if life is None:
            return HeapDicts(what, self._current, self._groups(name))
        return self._with_ttl(name, HeapTtlDicts(what, self._current, self._groups(name), life))

    def _with_ttl(self, name: str, store: S) -> S:
        if name not in self._ttl:
            self._ttl[name] = store
            self._sweeps.append(Sweep(store, self._groups(name)))
        return store

    def _undo_store(self, store: U, undo: UndoLog) -> U:
        return undoable(store, undo)

    def _timer_store(self, name: str) -> HeapTimers:
        return HeapTimers(self._groups(name), self._first)

    def freeze(self) -> HeapSnapshot:
        frozen: list[tuple[FrozenGroup, SnapshotReading]] = []
        names = sorted(self._maps, key=TIMER_STATES.__contains__)  # timers come last
        for i, group in enumerate(self._key_groups):
            states: list[tuple[str, Mapping[bytes, Any]]] = []
            reading = SnapshotReading()
            for name in names:
                data = self._maps[name][i].freeze(reading)
                if data is not None:
                    states.append((name, data))
            if states:
                frozen.append(((group, states), reading))
        ttl = {name: store.frozen() for name, store in self._ttl.items()}
        return HeapSnapshot(self._operator, self._max_parallelism, frozen, ttl, self._written())

    def freeze_changes(self) -> HeapChanges:
        frozen: dict[int, list[tuple[str, ChangedKeys]]] = {}
        reading = SnapshotReading()
        for name, maps in self._maps.items():
            for group, each in zip(self._key_groups, self._logged(maps), strict=True):
                changed = each.freeze_changes(reading)
                if changed is not None:
                    frozen.setdefault(group, []).append((name, changed))
        ttl = {name: store.frozen() for name, store in self._ttl.items()}
        return HeapChanges(self._operator, frozen, ttl, *over_and_since(self._ttl), self._written(), reading)

    def settle(self, changed: bool) -> None:
        for maps in self._maps.values():
            for each in self._logged(maps):
                each.settle(changed)

    def _logged(self, maps: list[KeyGroupMap]) -> Iterator[LoggedMap]:
        for each in maps:
            assert isinstance(each, LoggedMap)
            yield each

    def remove_expired(self) -> None:
        for sweep in self._sweeps:
            self.expired += sweep.step()

    def restore(self, batches: Iterable[StateBatch], allow_unclaimed: bool = False) -> None:
        with garbage.paused():
            super().restore(batches, allow_unclaimed)
            self._restored = NO_KEY, {}
            if sum(len(one.data) for maps in self._maps.values() for one in maps) >= garbage.LARGE_STATE:
                garbage.exempt()

    def _load(
        self,
        name: str,
        index: int,
        keys: list[bytes],
        values: list[Any],
        stamps: Sequence[tuple[int, ...] | None] | None,
    ) -> bytes | None:
        if len(self._declared) > 1:
            keys = self._shared(index, keys)
        store, target = self._ttl.get(name), self._maps[name][index]
        if store is not None:
            assert stamps is not None
            keys, values = store.kept_of(keys, values, stamps)
        rows = dict(zip(keys, values, strict=True))
        if len(rows) < len(keys) or not target.data.keys().isdisjoint(rows):
            return _first_double(keys, target.data)
        target.put_all(rows)
        return None

    def _shared(self, index: int, keys: list[bytes]) -> list[bytes]:
        """The keys as the objects that other states have, as they share those of records: each takes half as much as a
        row of a small value."""
        if self._restored[0] != index:
            self._restored = index, {}
        return list(map(self._restored[1].setdefault, keys, keys))


def _first_double(keys: list[bytes], present: Container[bytes]) -> bytes:
    seen: set[bytes] = set()
    for key in keys:
        if key in seen or key in present:
            return key
        seen.add(key)
    raise AssertionError("no key is there twice")
