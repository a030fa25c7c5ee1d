"""The heap backend: keyed state in dicts, snapshots by copy-on-write."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import repeat
from threading import Lock
from typing import Any, Final, Literal, NoReturn

from checkpoint.codec import decode_key
from checkpoint.shown import shown
from checkpoint.state import garbage
from checkpoint.state.descriptors import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateDescriptor,
    ValueState,
)
from checkpoint.state.errors import StateAccessError, StateRestoreError
from checkpoint.state.groups import KeyContext, KeyGroupMap, OpenSnapshots
from checkpoint.state.handles import AggregatingHandle, ListHandle, MapHandle, ReducingHandle, ValueHandle
from checkpoint.state.snapshot import FrozenGroup, SnapshotAbandoned, SnapshotFooter, StateBatch, write_snapshot
from checkpoint.state.timers import EVENT_TIMERS, PROCESSING_TIMERS, Timers

_FREED_AT_ONCE: Final = 64
"""Values; some microseconds each."""


class HeapSnapshot:
    """The state as it was when a barrier was taken. Made by the task thread, written and released by any thread."""

    def __init__(self, operator: str, max_parallelism: int, groups: list[FrozenGroup]) -> None:
        self._operator = operator
        self._max_parallelism = max_parallelism
        self._groups = groups
        self._lock = Lock()
        self._writing = False
        self._abandoned = False
        self.released = False
        """Whether the backend may change what this snapshot saw. Only ever turns true."""

    def write(
        self, sink: Callable[[memoryview], object], compression: Literal["lz4", "zstd", "none"] = "lz4"
    ) -> SnapshotFooter:
        """Write the file (see `checkpoint.state.snapshot`) piece by piece into `sink`, then release the snapshot.

        Takes its time and lets the task thread run in between; belongs into a pool.

        Args:
            sink: called with each next piece of the file; may keep it.

        Raises:
            EncodingError: a value can't be kept; the message names the operator, the state and the key.
            SnapshotAbandoned: `release` was called.
        """
        with self._lock:
            if self.released or self._writing:
                raise SnapshotAbandoned(f"this snapshot of {self._operator} was written or released before")
            self._writing = True
        try:
            return write_snapshot(
                self._given_up_one_by_one(),
                sink,
                compression,
                operator=self._operator,
                max_parallelism=self._max_parallelism,
                abandoned=lambda: self._abandoned,
            )
        finally:
            self._finish()

    def release(self) -> None:
        """Give the snapshot up, since its checkpoint is aborted. A `write` under way ends with `SnapshotAbandoned`.

        May be called at any time, also after `write`.
        """
        with self._lock:
            self._abandoned = True
            if not self._writing:
                self._finish()

    def _given_up_one_by_one(self) -> Iterator[FrozenGroup]:
        """The groups; each is freed when the next one is asked for, unless the caller still holds it. Nobody else may
        know values that were changed since the barrier, and to free them at once would hold the interpreter for as long
        as that takes, so that is done piece by piece."""
        groups = self._groups
        groups.reverse()
        while groups:
            kept = [list(data.values()) for _, data in groups[-1][1]]
            yield groups.pop()
            for values in kept:
                while values:
                    del values[-_FREED_AT_ONCE:]

    def _finish(self) -> None:
        for _ in self._given_up_one_by_one():
            pass
        self.released = True


class HeapBackend:
    """Keeps the keyed state of one operator in one subtask. Used by the task thread only.

    Args:
        key_groups: the groups that the subtask owns.
        max_parallelism: number of all key groups.
    """

    def __init__(self, key_groups: range, max_parallelism: int) -> None:
        if not (0 <= key_groups.start < key_groups.stop <= max_parallelism and key_groups.step == 1):
            raise ValueError(f"{key_groups} is no range of key groups below {max_parallelism}")
        self._key_groups = key_groups
        self._first = key_groups.start
        self._max_parallelism = max_parallelism
        self._operator = "operator"
        self._context = KeyContext()
        self._open = OpenSnapshots()
        self._states: dict[str, tuple[StateDescriptor[Any], list[KeyGroupMap]]] = {}
        self.event_timers = self._timers(EVENT_TIMERS)
        self.processing_timers = self._timers(PROCESSING_TIMERS)

    def _timers(self, name: str) -> Timers:
        return Timers(name, self._key_groups, self._context, lambda: KeyGroupMap(self._open))

    # -- access ------------------------------------------------------------------------------------------------

    def handle(self, descriptor: StateDescriptor[Any], operator: str) -> Any:
        """A handle to the state for an operator of that name; see `descriptors.bind`."""
        self._operator = operator
        if descriptor.name not in self._states:
            self._states[descriptor.name] = (descriptor, [KeyGroupMap(self._open) for _ in self._key_groups])
        groups = self._states[descriptor.name][1]
        where = (f"state {descriptor.name!r} of {operator}", groups, self._context)
        match descriptor:
            case ValueState():
                return ValueHandle(*where, descriptor.default, descriptor.factory)
            case ReducingState():
                return ReducingHandle(*where, descriptor.reduce_fn, descriptor.default, descriptor.factory)
            case AggregatingState():
                return AggregatingHandle(*where, descriptor.create, descriptor.add, descriptor.result)
            case ListState():
                return ListHandle(*where)
            case MapState():
                return MapHandle(*where)
        raise StateAccessError(f"the heap backend knows no state of type {type(descriptor).__qualname__}")

    def set_current_key(self, key: bytes, group: int) -> None:
        """What handles refer to from now on: the encoded key and its key group.

        Raises:
            StateAccessError: the group belongs to another subtask, so the record took a wrong way.
        """
        if group not in self._key_groups:
            self._foreign(group)
        context = self._context
        context.key = key
        context.index = group - self._first

    def clear_current_key(self) -> None:
        """From now on there is no current key, and handles refuse to be used."""
        self._context.index = None

    def _foreign(self, group: int) -> NoReturn:
        raise StateAccessError(
            f"{self._operator} got a record of key group {group}, but owns {self._key_groups.start}.."
            f"{self._key_groups.stop - 1}; this is a defect in routing, and going on would split the key's state"
        )

    # -- checkpoints -------------------------------------------------------------------------------------------

    def freeze(self) -> HeapSnapshot:
        """The synchronous part of a snapshot: takes time per key group, not per key.

        The snapshot must be written or released in the end; until then state that changes is copied first.
        """
        frozen: list[FrozenGroup] = []
        kept = self._kept()
        for i, group in enumerate(self._key_groups):
            states = []
            for name, maps in kept:
                data = maps[i].freeze()
                if data is not None:
                    states.append((name, data))
            if states:
                frozen.append((group, states))
        snapshot = HeapSnapshot(self._operator, self._max_parallelism, frozen)
        self._open.add(snapshot)
        return snapshot

    def _kept(self) -> list[tuple[str, list[KeyGroupMap]]]:
        """The maps of every state, and of timers, by name."""
        kept = [(name, maps) for name, (_, maps) in self._states.items()]
        return kept + [(timers.name, timers.maps) for timers in (self.event_timers, self.processing_timers)]

    def _is_large(self) -> bool:
        return sum(len(one.data) for _, maps in self._kept() for one in maps) >= garbage.LARGE_STATE

    def restore(self, batches: Iterable[StateBatch], allow_unclaimed: bool = False) -> None:
        """Take over what `read_batches` gives. May be called once for each file that holds some of the key groups.

        Args:
            allow_unclaimed: leave out state that the operator doesn't declare, instead of an error.

        Raises:
            StateRestoreError: the rows don't fit the operator's states or key groups.
        """
        with garbage.paused():
            for batch in batches:
                self._restore(batch, allow_unclaimed)
            if self._is_large():
                garbage.exempt()

    def _restore(self, batch: StateBatch, allow_unclaimed: bool) -> None:
        group, name, keys, namespaces, values = batch
        for timers in (self.event_timers, self.processing_timers):
            if name == timers.name:
                self._check_group(group, name)
                wrong = timers.restore(group, keys, namespaces or repeat(None), values)
                if wrong is not None:
                    key, problem = wrong
                    raise StateRestoreError(
                        f"{name} of {self._operator}: a row of key {shown(decode_key(key))} {problem}; the checkpoint "
                        "is damaged"
                    )
                return
        state = self._states.get(name)
        if state is None:
            if allow_unclaimed:
                return
            raise StateRestoreError(
                f"the checkpoint holds state {name!r} for {self._operator}, which declares "
                f"{', '.join(map(repr, self._states)) or 'none'}; declare it again under its old name, "
                "or start with allow_unclaimed=True to drop it"
            )
        self._check_group(group, name)
        descriptor, maps = state
        kind = type(descriptor).__name__
        if namespaces is not None:
            i = next(i for i, namespace in enumerate(namespaces) if namespace is not None)
            self._refuse(name, keys[i], f"has a namespace ({namespaces[i]!r}), which {kind} doesn't have")
        if not all(issubclass(one, descriptor.content) for one in set(map(type, values))):
            i = next(i for i, value in enumerate(values) if not isinstance(value, descriptor.content))
            self._refuse(name, keys[i], f"is no {kind}; declare the state as it was when the checkpoint was taken")
        rows, target = dict(zip(keys, values, strict=True)), maps[group - self._first]
        if len(rows) < len(keys) or not target.data.keys().isdisjoint(rows):
            self._refuse(name, _first_double(keys, target.data), "is in the checkpoint twice")
        target.put_all(rows)

    def _refuse(self, name: str, key: bytes, problem: str) -> NoReturn:
        raise StateRestoreError(
            f"state {name!r} of {self._operator}: the value of key {shown(decode_key(key))} {problem}"
        )

    def _check_group(self, group: int, name: str) -> None:
        if group not in self._key_groups:
            raise StateRestoreError(
                f"state {name!r} of {self._operator}: row of key group {group} outside {self._key_groups}"
            )


def _first_double(keys: list[bytes], present: Container[bytes]) -> bytes:
    seen: set[bytes] = set()
    for key in keys:
        if key in seen or key in present:
            return key
        seen.add(key)
    raise AssertionError("no key is there twice")
