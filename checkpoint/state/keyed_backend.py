"""What every keyed backend has: the state of one operator's keys in one subtask, their timers, snapshots.

A backend of another kind subclasses `KeyedBackend`, the snapshots (`checkpoint.state.keyed_snapshot`) and the stores
(`checkpoint.state.stores`); it passes the contracts in `tests/support/keyed_backend_contract.py` and
`keyed_ttl_contract.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, ClassVar, NoReturn, TypeVar

from checkpoint.codec import decode, decode_key
from checkpoint.shown import shown
from checkpoint.state.contents import Declared
from checkpoint.state.descriptors import KeyedStateDescriptor
from checkpoint.state.errors import StateAccessError, StateRestoreError
from checkpoint.state.evolution import Evolution, decoded
from checkpoint.state.handles import (
    ListHandle,
    MapHandle,
    ReadRefreshedMapHandle,
    TypedListHandle,
    TypedMapHandle,
    TypedReadRefreshedMapHandle,
    TypedValueHandle,
    ValueHandle,
)
from checkpoint.state.keyed_snapshot import FrozenChanges, WholeSnapshot
from checkpoint.state.paging.folding import folded
from checkpoint.state.paging.rows import content_of
from checkpoint.state.restored_rows import TWICE, check_rows, refuse_row, stamps_of
from checkpoint.state.snapshot_format import SnapshotFormatError, StateBatch
from checkpoint.state.stores import NO_KEY, CurrentKey, ListStore, MapStore, StateStore, TimerStore, ValueStore
from checkpoint.state.timers import EVENT_TIMERS, PROCESSING_TIMERS, Timers
from checkpoint.state.ttl import ClockName, EventClock, Lifetime, ProcessingClock
from checkpoint.state.undo import UndoLog

S = TypeVar("S", bound=StateStore)


class KeyedBackend(ABC):
    """Keeps the keyed state of one operator in one subtask. Used by the task thread only."""

    _value_handle_class: ClassVar[type[ValueHandle[Any]]] = ValueHandle

    def __init__(self, key_groups: range, max_parallelism: int) -> None:
        """
        Args:
            key_groups: the groups that the subtask owns.
            max_parallelism: number of all key groups.
        """
        if not (0 <= key_groups.start < key_groups.stop <= max_parallelism and key_groups.step == 1):
            raise ValueError(f"{key_groups} is no range of key groups below {max_parallelism}")
        self._key_groups = key_groups
        self._first = key_groups.start
        self._max_parallelism = max_parallelism
        self._operator = "operator"
        self._current = CurrentKey()
        self._declared: dict[str, KeyedStateDescriptor[Any]] = {}
        self._stores: dict[str, StateStore] = {}
        """Of the declared states, by name."""
        self.processing_clock = ProcessingClock()
        """For entries that live by the clock of the host."""
        self.event_clock = EventClock()
        """For entries that live by event time."""
        self.restored_as_it_was = True
        """Whether the state is what the files say that it was restored from. What was left out or is kept otherwise
        would come back with them."""
        self.expired = 0
        """Entries that were removed since their time to live was over."""
        self.migrated = 0
        """Values, items and entries of a snapshot that `migrate` has made new ones of."""
        self._evolutions: dict[str, Evolution] = {}
        self._undo: UndoLog | None = None
        self.event_timers = self._timers(EVENT_TIMERS)
        self.processing_timers = self._timers(PROCESSING_TIMERS)

    def _timers(self, name: str) -> Timers:
        return Timers(name, self._first, self._current, self._timer_store(name))

    @property
    def key_groups(self) -> range:
        return self._key_groups

    @property
    def max_parallelism(self) -> int:
        return self._max_parallelism

    @property
    def operator(self) -> str:
        """As messages and files name it."""
        return self._operator

    # -- access ------------------------------------------------------------------------------------------------

    def undo_by(self, undo: UndoLog) -> None:
        """Have the log take back what a record changes. Comes before the states' handles are made, which else cost
        nothing for it."""
        self._undo = undo
        for timers in (self.event_timers, self.processing_timers):
            timers.undo_by(undo)

    def value_handle(
        self, descriptor: KeyedStateDescriptor[Any], operator: str, default: Any, factory: Callable[[], Any] | None
    ) -> ValueHandle[Any]:
        """A handle to a state with one value a key (see `binding.bind`)."""
        life = self._lifetime(descriptor)
        store = self._value_store(descriptor.name, self._declare(descriptor, operator), life)
        self._stores.setdefault(descriptor.name, store)
        plain = life is None and self._undo is None
        store = self._undoable(store)
        if descriptor.declared is not None:
            return TypedValueHandle[Any](store, default, factory).declare(descriptor.declared)
        return (self._value_handle_class if plain else ValueHandle)(store, default, factory)

    def list_handle(self, descriptor: KeyedStateDescriptor[Any], operator: str) -> ListHandle[Any]:
        """A handle to a state with a list a key."""
        life = self._lifetime(descriptor)
        store = self._list_store(descriptor.name, self._declare(descriptor, operator), life)
        self._stores.setdefault(descriptor.name, store)
        store = self._undoable(store)
        if descriptor.declared is not None:
            return TypedListHandle[Any](store).declare(descriptor.declared)
        return ListHandle(store)

    def map_handle(self, descriptor: KeyedStateDescriptor[Any], operator: str) -> MapHandle[Any, Any]:
        """A handle to a state with a dict a key."""
        life = self._lifetime(descriptor)
        store = self._map_store(descriptor.name, self._declare(descriptor, operator), life)
        self._stores.setdefault(descriptor.name, store)
        store = self._undoable(store)
        refreshed = life is not None and life.refreshed_by_reads
        if descriptor.declared is None:
            return (ReadRefreshedMapHandle if refreshed else MapHandle)(store)
        return (TypedReadRefreshedMapHandle if refreshed else TypedMapHandle)(store).declare(descriptor.declared)

    def _undoable(self, store: S) -> S:
        return store if self._undo is None else self._undo_store(store, self._undo)

    def _declare(self, descriptor: KeyedStateDescriptor[Any], operator: str) -> str:
        """What messages call the state."""
        self._operator = operator
        self._declared.setdefault(descriptor.name, descriptor)
        return f"state {descriptor.name!r} of {operator}"

    def _written(self) -> dict[str, Declared]:
        """What a snapshot notes of the states beside their values."""
        return {name: descriptor.written() for name, descriptor in self._declared.items()}

    def _lifetime(self, descriptor: KeyedStateDescriptor[Any]) -> Lifetime | None:
        ttl = descriptor.ttl
        if ttl is None:
            return None
        return (self.event_clock if ttl.time == "event" else self.processing_clock).lifetime(ttl)

    def set_current_key(self, key: bytes, group: int) -> None:
        """What handles refer to from now on: the encoded key and its key group.

        Raises:
            StateAccessError: the group belongs to another subtask, so the record took a wrong way.
        """
        if group not in self._key_groups:
            self._foreign(group)
        current = self._current
        current.key = key
        current.index = group - self._first

    @property
    def current_key(self) -> CurrentKey:
        """What `set_current_key` sets. A loop over records whose groups were checked sets it by itself."""
        return self._current

    def check_groups(self, groups: Sequence[int]) -> None:
        """
        Raises:
            StateAccessError: as `set_current_key`, for one of them.
        """
        owned = self._key_groups
        if min(groups, default=owned.start) < owned.start or max(groups, default=owned.start) >= owned.stop:
            self._foreign(next(group for group in groups if group not in owned))

    def clear_current_key(self) -> None:
        """From now on there is no current key, and handles refuse to be used."""
        self._current.index = NO_KEY

    def _foreign(self, group: int) -> NoReturn:
        raise StateAccessError(
            f"{self._operator} got a record of key group {group}, but owns {self._key_groups.start}.."
            f"{self._key_groups.stop - 1}; this is a defect in routing, and going on would split the key's state"
        )

    # -- looks from outside ------------------------------------------------------------------------------------

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the declared states."""
        return tuple(self._declared)

    def peek(self, key: bytes, group: int, state: str, most: int) -> Any:
        """What any key has in a declared state (see `StateStore.peek_at`); for others than the operator, and not while
        it processes a record.

        Raises:
            StateAccessError: the group belongs to another subtask.
            TooManyEntries: it is a list or map of more than `most`.
        """
        return self._stores[state].peek_at(self._index(group), key, most)

    def peek_entry(self, key: bytes, group: int, state: str, map_key: Any) -> Any:
        """As `peek`, one entry of a map.

        Raises:
            StateAccessError: as `peek`, or the state is no map.
        """
        store = self._stores[state]
        if not isinstance(store, MapStore):
            raise StateAccessError(f"{store.what} is no map, so it has no entries of their own")
        return store.peek_at_entry(self._index(group), key, map_key)

    def peek_timers(self, key: bytes, group: int, most: int) -> dict[ClockName, list[int]]:
        """When the timers of any key are due, in milliseconds since the epoch, the first one first; by clock.

        Raises:
            StateAccessError: as `peek`.
            TooManyEntries: more than `most` timers, of this key or others, would have to be looked at.
        """
        self._index(group)
        return {
            "event": self.event_timers.times_of(key, group, most),
            "processing": self.processing_timers.times_of(key, group, most),
        }

    def _index(self, group: int) -> int:
        if group not in self._key_groups:
            self._foreign(group)
        return group - self._first

    # -- time to live ------------------------------------------------------------------------------------------

    def remove_expired(self) -> None:
        """Remove some of the entries whose time to live is over, and count them as `expired`.

        Called by the task thread again and again, while no record is in progress; takes some milliseconds at most.
        Whether they are removed is not seen otherwise, so a backend may do that elsewhere.
        """

    def metrics(self) -> dict[str, float]:
        """What the backend counts and measures by itself, by name (see `checkpoint.metrics`)."""
        return {}

    def close(self) -> None:
        """The state is not used any more, nor any snapshot; what the backend holds outside of memory is deleted. May be
        called again."""

    # -- checkpoints -------------------------------------------------------------------------------------------

    @abstractmethod
    def freeze(self) -> WholeSnapshot:
        """The synchronous part of a snapshot: takes time per key group, not per key.

        What is expired by the subtask's clocks as they are now is not part of it, removed or not.

        The snapshot must be released in the end; until then state that changes is copied first.
        """

    def freeze_changes(self) -> FrozenChanges:
        """What has changed since the last call, or since the backend was made; what `freeze` took in between counts,
        too. As `freeze` otherwise. Only of a backend that was made to know its changes."""
        raise NotImplementedError(f"{type(self).__name__} doesn't know what has changed")

    def settle(self, changed: bool) -> None:
        """What was restored is all that there is.

        Args:
            changed: it counts as changed since the last barrier: the files that it comes from are not part of the log.
        """
        raise NotImplementedError(f"{type(self).__name__} doesn't know what has changed")

    def restore(self, batches: Iterable[StateBatch], allow_unclaimed: bool = False) -> None:
        """Take over what `read_batches` or `read_encoded` gives. May be called once for each file that holds some of
        the key groups.

        Args:
            allow_unclaimed: leave out state that the operator doesn't declare, instead of an error.

        Raises:
            StateRestoreError: the rows don't fit the operator's states or key groups, or a `migrate` has failed.
        """
        for batch in self._as_kept(batches):
            self._restore(batch, allow_unclaimed)

    def _as_kept(self, batches: Iterable[StateBatch]) -> Iterator[StateBatch]:
        """Without the pages of lists and maps that are none any more, or get a time to live, which lie in no pages."""

        def is_kept_otherwise(batch: StateBatch) -> bool:
            descriptor = self._declared.get(batch.state)
            if descriptor is None or batch.content is None or batch.content.paged is None:
                return False
            if descriptor.ttl is None and descriptor.content is content_of(batch.content.paged):
                return False
            self.restored_as_it_was = False
            return True

        try:
            yield from folded(batches, is_kept_otherwise)
        except SnapshotFormatError as error:
            raise StateRestoreError(f"{self._operator}: {error}; the checkpoint is damaged") from error

    takes_encoded: ClassVar[bool] = False
    """Whether `restore_encoded` takes less time than decoding the values for `restore`."""

    def restore_encoded(self, batches: Iterable[StateBatch], allow_unclaimed: bool = False) -> None:
        """As `restore`, with the values encoded."""
        self.restore(map(decoded, batches), allow_unclaimed)

    def _restore(self, batch: StateBatch, allow_unclaimed: bool) -> None:
        group, name, keys, namespaces, values = batch[:5]
        for timers in (self.event_timers, self.processing_timers):
            if name == timers.name:
                self._check_group(group, name)
                if batch.encoded:
                    values = list(map(decode, values))
                wrong = timers.restore(group, keys, namespaces or repeat(None), values)
                if wrong is not None:
                    key, problem = wrong
                    raise StateRestoreError(
                        f"{name} of {self._operator}: a row of key {shown(decode_key(key))} {problem}; the checkpoint "
                        "is damaged"
                    )
                return
        descriptor = self._declared.get(name)
        if descriptor is None:
            if allow_unclaimed:
                self.restored_as_it_was = False
                return
            raise StateRestoreError(
                f"the checkpoint holds state {name!r} for {self._operator}, which declares "
                f"{', '.join(map(repr, self._declared)) or 'none'}; declare it again under its old name, "
                "or start with allow_unclaimed=True to drop it"
            )
        self._check_group(group, name)
        what = f"state {name!r} of {self._operator}"
        values = self._evolved(batch, descriptor)
        check_rows(what, batch, values, descriptor)
        if batch.clock != (None if descriptor.ttl is None else descriptor.ttl.time):
            self.restored_as_it_was = False
        twice = self._load(name, group - self._first, keys, values, stamps_of(what, batch, values, descriptor))
        if twice is not None:
            refuse_row(what, twice, TWICE)

    def _evolved(self, batch: StateBatch, descriptor: KeyedStateDescriptor[Any]) -> list[Any]:
        evolution = self._evolutions.get(batch.state)
        if evolution is None or evolution.stored is not batch.content:
            what = f"state {batch.state!r} of {self._operator}"
            evolution = self._evolutions[batch.state] = descriptor.evolution(what, batch.content)
        before = evolution.migrated
        values = evolution.values(batch)
        if evolution.migrated > before:
            self.migrated += evolution.migrated - before
            self.restored_as_it_was = False
        return values

    def _check_group(self, group: int, name: str) -> None:
        if group not in self._key_groups:
            raise StateRestoreError(
                f"state {name!r} of {self._operator}: row of key group {group} outside {self._key_groups}"
            )

    # -- what a backend is made of -----------------------------------------------------------------------------

    @abstractmethod
    def _value_store(self, name: str, what: str, life: Lifetime | None) -> ValueStore:
        """The store of the state of that name; the same state if it is asked for again.

        Args:
            what: the state as messages name it.
            life: of its entries; `None` = they have no time to live. What is over is not there for whoever uses the
                store.
        """

    @abstractmethod
    def _list_store(self, name: str, what: str, life: Lifetime | None) -> ListStore:
        """As `_value_store`."""

    @abstractmethod
    def _map_store(self, name: str, what: str, life: Lifetime | None) -> MapStore:
        """As `_value_store`."""

    @abstractmethod
    def _undo_store(self, store: S, undo: UndoLog) -> S:
        """The same store, whose changes the log can take back (see `undo.Undoable`)."""

    @abstractmethod
    def _timer_store(self, name: str) -> TimerStore:
        """The store of one kind of timers. Called by `__init__`."""

    @abstractmethod
    def _load(
        self,
        name: str,
        index: int,
        keys: list[bytes],
        values: list[Any],
        stamps: Sequence[tuple[int, ...] | None] | None,
    ) -> bytes | None:
        """Take over values of a snapshot. Those of lists and maps without a time to live may be directories and pages
        (see `checkpoint.state.paging`).

        Args:
            index: position of the key group.
            stamps: of the entries of each value, in their order; `None` for those that have none (`ttl.UNKNOWN`), and
                for a state without a time to live.

        Returns:
            A key that has a value already, if there is any; the state is of no use then.
        """
