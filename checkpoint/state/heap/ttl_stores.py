"""The stores of the heap backend for states with a time to live: stamps lie beside the values.

What is over is not there for whoever uses a store. It is removed by `sweep`, and where a write comes upon it; a read
removes nothing, so that it needs no copy while a snapshot is open.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.heap.stores import HeapStore, check_number
from checkpoint.state.heap.ttl_rows import LivingDicts, LivingLists, LivingValues
from checkpoint.state.private_copy import IMMUTABLE
from checkpoint.state.snapshot_writer import TtlRows
from checkpoint.state.stores import MISSING, CurrentKey, ListStore, MapStore, ValueStore, refuse_without_key
from checkpoint.state.ttl import UNKNOWN, Lifetime

Stamps: TypeAlias = Sequence[int] | None
"""Of the entries of one key, in their order; `None` = not known."""

LARGE: Final = 4096
"""Entries of one key; of more than that a part is looked at in one go."""
_PART: Final = 1024
_PER_LOOK: Final = 64
"""Entries of one key that are looked at in the time that a key of its own takes."""


class Swept(NamedTuple):
    """What was done about the entries of one key."""

    removed: int
    """Entries."""
    work: int
    """In keys of one entry."""
    again: bool = False
    """More of its entries may be over."""


_NOTHING: Final = Swept(0, 1)


class HeapTtlStore(HeapStore):
    """A state with a time to live. What it keeps for a key has stamps first and values second; each member has a
    stamp."""

    __slots__ = ("life",)

    def __init__(self, what: str, current: CurrentKey, groups: list[KeyGroupMap], life: Lifetime) -> None:
        super().__init__(what, current, groups)
        self.life = life

    def peek_at(self, index: int, key: bytes, most: int) -> Any:
        kept = self._groups[index].data.get(key)
        if kept is None:
            return MISSING
        if self.has_members:
            check_number(len(kept[0]), most)
        return self._living_of(kept)

    @abstractmethod
    def _living_of(self, kept: Any) -> Any:
        """What is not over of what it keeps for a key, or `MISSING`."""

    @abstractmethod
    def kept(self, value: Any, stamps: Stamps) -> Any:
        """What is kept for a value of a snapshot."""

    def kept_of(self, keys: list[bytes], values: list[Any], stamps: Sequence[Stamps]) -> tuple[list[bytes], list[Any]]:
        """Keys of a snapshot, and what is kept for each. Those of lists and maps without entries, which only tools
        write, are left out."""
        entries = zip(keys, values, stamps, strict=True)
        kept = [(key, self.kept(value, of)) for key, value, of in entries if value or not self.has_members]
        return [key for key, _ in kept], [one for _, one in kept]

    @abstractmethod
    def sweep(self, group: KeyGroupMap, key: bytes) -> Swept:
        """Remove what is over of a key that is present."""

    @abstractmethod
    def frozen(self) -> TtlRows:
        """What a snapshot needs that is taken now."""


class HeapTtlValues(HeapTtlStore, ValueStore):
    """Keeps pairs of stamp and value."""

    __slots__ = ()

    has_members = False

    def get(self) -> Any:
        current, life = self._current, self.life
        try:
            group = self._groups[current.index]
            stamp, value = group.data[current.key]
        except KeyError:
            return MISSING
        except IndexError:
            refuse_without_key(self.what)
        if stamp <= life.bound and life.over(stamp):
            return MISSING
        if group.private is not None and type(value) not in IMMUTABLE:
            value = group.own(current.key)[1]
        if life.refreshed_by_reads and (now := life.stamp()) > stamp:
            group.put(current.key, (now, value))
        return value

    def peek(self) -> Any:
        kept = self._group().data.get(self._current.key)
        return MISSING if kept is None or self.life.over(kept[0]) else kept[1]

    def put(self, value: Any) -> None:
        key = self._current.key
        try:
            group = self._groups[self._current.index]
        except IndexError:
            refuse_without_key(self.what)
        stamp, kept = self.life.stamp(), group.data.get(key)
        if kept is not None and kept[0] > stamp != UNKNOWN:
            stamp = kept[0]  # a record that is older than another takes nothing from it
        if group.private is None:
            group.data[key] = stamp, value
        else:
            group.put(key, (stamp, value))

    def _living_of(self, kept: Any) -> Any:
        return MISSING if self.life.over(kept[0]) else kept[1]

    def kept(self, value: Any, stamps: Stamps) -> tuple[int, Any]:
        return UNKNOWN if stamps is None else stamps[0], value

    def sweep(self, group: KeyGroupMap, key: bytes) -> Swept:
        if not self.life.over(group.data[key][0]):
            return _NOTHING
        group.remove(key)
        return Swept(1, 1)

    def frozen(self) -> TtlRows:
        return LivingValues(self.life.frozen())


class HeapTtlLists(HeapTtlStore, ListStore):
    """Keeps pairs of lists: stamps, and items."""

    __slots__ = ()

    def items(self) -> list[Any]:
        group, key, life = self._group(), self._current.key, self.life
        if key not in group.data:
            return []
        stamps, items = group.own(key)
        if min(stamps) <= life.bound:
            living = [i for i, stamp in enumerate(stamps) if not life.over(stamp)]
            if not living:
                return []
            if len(living) < len(items):
                stamps, items = [stamps[i] for i in living], [items[i] for i in living]
                if life.refreshed_by_reads:
                    group.put(key, (stamps, items))
        if life.refreshed_by_reads:
            now = life.stamp()
            stamps[:] = [now if now > stamp else stamp for stamp in stamps]
        return list(items)

    def append(self, item: Any) -> None:
        key, stamp = self._current.key, self.life.stamp()
        try:
            group = self._groups[self._current.index]
        except IndexError:
            refuse_without_key(self.what)
        if key in group.data:
            stamps, items = group.own(key)
            stamps.append(stamp)
            items.append(item)
        else:
            group.put(key, ([stamp], [item]))

    def extend(self, items: list[Any]) -> None:
        group, key, added = self._group(), self._current.key, [self.life.stamp()] * len(items)
        if key in group.data:
            stamps, present = group.own(key)
            stamps.extend(added)
            present.extend(items)
        elif items:
            group.put(key, (added, items))

    def replace(self, items: list[Any]) -> None:
        if items:
            self._group().put(self._current.key, ([self.life.stamp()] * len(items), items))
        else:
            self.delete()

    def count(self) -> int:
        kept = self._group().data.get(self._current.key)
        if kept is None:
            return 0
        stamps = kept[0]
        return len(stamps) if min(stamps) > self.life.bound else len(stamps) - sum(map(self.life.over, stamps))

    def _living_of(self, kept: Any) -> Any:
        over = self.life.over
        return [item for stamp, item in zip(*kept, strict=True) if not over(stamp)] or MISSING

    def kept(self, value: Any, stamps: Stamps) -> tuple[list[int], list[Any]]:
        return [UNKNOWN] * len(value) if stamps is None else list(stamps), value

    def sweep(self, group: KeyGroupMap, key: bytes) -> Swept:
        life, stamps = self.life, group.data[key][0]
        if len(stamps) > LARGE:
            return self._sweep_front(group, key)
        work = 1 + len(stamps) // _PER_LOOK
        if min(stamps) > life.bound:
            return Swept(0, work)
        living = [i for i, stamp in enumerate(stamps) if not life.over(stamp)]
        removed = len(stamps) - len(living)
        if not living:
            group.remove(key)
        elif removed:
            stamps, items = group.own(key)
            stamps[:] = [stamps[i] for i in living]
            items[:] = [items[i] for i in living]
        return Swept(removed, work)

    def _sweep_front(self, group: KeyGroupMap, key: bytes) -> Swept:
        """Of a long list the oldest items, which lie in front unless event time came out of order."""
        over, stamps = 0, group.data[key][0]
        while over < _PART and self.life.over(stamps[over]):
            over += 1
        if over:
            stamps, items = group.own(key)
            del stamps[:over], items[:over]
        return Swept(over, 1 + over // _PER_LOOK, over == _PART)

    def frozen(self) -> TtlRows:
        return LivingLists(self.life.frozen())


class HeapTtlDicts(HeapTtlStore, MapStore):
    """Keeps pairs of dicts with the same keys: stamps, and values."""

    __slots__ = ()

    def get(self, map_key: Any) -> Any:
        key, life = self._current.key, self.life
        try:
            group = self._groups[self._current.index]
            stamps, values = group.data[key]
            stamp = stamps[map_key]
        except KeyError:
            return MISSING
        except IndexError:
            refuse_without_key(self.what)
        if stamp <= life.bound and life.over(stamp):
            return MISSING
        value = values[map_key]
        refreshed = life.stamp() if life.refreshed_by_reads else stamp
        if refreshed > stamp or (group.private is not None and type(value) not in IMMUTABLE):
            stamps, values = group.own(key)
            value = values[map_key]
            if refreshed > stamp:
                stamps[map_key] = refreshed
        return value

    def peek(self, map_key: Any) -> Any:
        return self._living_entry(self._group(), self._current.key, map_key)

    def _living_entry(self, group: KeyGroupMap, key: bytes, map_key: Any) -> Any:
        """For reading only."""
        kept = group.data.get(key)
        if kept is None or map_key not in kept[0] or self.life.over(kept[0][map_key]):
            return MISSING
        return kept[1][map_key]

    def put(self, map_key: Any, value: Any) -> None:
        key, life = self._current.key, self.life
        try:
            group = self._groups[self._current.index]
        except IndexError:
            refuse_without_key(self.what)
        stamp = life.stamp()
        if key not in group.data:
            group.put(key, ({map_key: stamp}, {map_key: value}))
            return
        stamps, values = group.own(key)
        before = stamps.get(map_key)
        if before is not None:
            if life.over(before):  # so that it comes last, as a new entry does
                del stamps[map_key], values[map_key]
            elif before > stamp != UNKNOWN:
                stamp = before
        stamps[map_key] = stamp
        values[map_key] = value

    def remove(self, map_key: Any) -> bool:
        group, key = self._group(), self._current.key
        stamps: dict[Any, int] = group.data[key][0] if key in group.data else {}
        if map_key not in stamps:
            return False
        living = not self.life.over(stamps[map_key])
        if len(stamps) == 1:
            group.remove(key)
        else:
            stamps, values = group.own(key)
            del stamps[map_key], values[map_key]
        return living

    def count(self) -> int:
        kept = self._group().data.get(self._current.key)
        if kept is None:
            return 0
        stamps: dict[Any, int] = kept[0]
        if min(stamps.values()) > self.life.bound:
            return len(stamps)
        return len(stamps) - sum(map(self.life.over, stamps.values()))

    def keys(self) -> dict[Any, Any]:
        kept = self._group().data.get(self._current.key)
        return {} if kept is None else self._living(*kept)

    def entries(self) -> dict[Any, Any]:
        group, key, life = self._group(), self._current.key, self.life
        if key not in group.data:
            return {}
        stamps, values = group.own(key)
        living = self._living(stamps, values)
        if life.refreshed_by_reads:
            now = life.stamp()
            stamps.update((map_key, now) for map_key in living if stamps[map_key] < now)
        return living

    def _living(self, stamps: dict[Any, int], values: dict[Any, Any]) -> dict[Any, Any]:
        life = self.life
        if min(stamps.values()) > life.bound:
            return dict(values)
        return {map_key: value for map_key, value in values.items() if not life.over(stamps[map_key])}

    def _living_of(self, kept: Any) -> Any:
        return self._living(*kept) or MISSING

    def peek_at_entry(self, index: int, key: bytes, map_key: Any) -> Any:
        return self._living_entry(self._groups[index], key, map_key)

    def kept(self, value: Any, stamps: Stamps) -> tuple[dict[Any, int], dict[Any, Any]]:
        return dict.fromkeys(value, UNKNOWN) if stamps is None else dict(zip(value, stamps, strict=True)), value

    def sweep(self, group: KeyGroupMap, key: bytes) -> Swept:
        life, stamps = self.life, group.data[key][0]
        if len(stamps) > LARGE:
            return self._sweep_some(group, key)
        work = 1 + len(stamps) // _PER_LOOK
        if min(stamps.values()) > life.bound:
            return Swept(0, work)
        over = [map_key for map_key, stamp in stamps.items() if life.over(stamp)]
        if len(over) == len(stamps):
            group.remove(key)
        elif over:
            stamps, values = group.own(key)
            for map_key in over:
                del stamps[map_key], values[map_key]
        return Swept(len(over), work)

    def _sweep_some(self, group: KeyGroupMap, key: bytes) -> Swept:
        """Of a large map the first entries; those that live change places, so that others are looked at next time."""
        life, stamps = self.life, group.data[key][0]
        first = [(map_key, stamps[map_key]) for map_key in islice(stamps, _PART)]
        over = sum(life.over(stamp) for _, stamp in first)
        if not over and group.is_shared(key):
            return Swept(0, 1 + _PART // _PER_LOOK)
        stamps, values = group.own(key)
        for map_key, stamp in first:
            del stamps[map_key]
            if life.over(stamp):
                del values[map_key]
            else:
                stamps[map_key] = stamp
        return Swept(over, 1 + _PART // _PER_LOOK, over > 0)

    def frozen(self) -> TtlRows:
        return LivingDicts(self.life.frozen())


def over_and_since(stores: Mapping[str, HeapTtlStore]) -> tuple[dict[str, int], dict[str, int]]:
    """Of the states whose clock is known, what a barrier notes (see `checkpoint.state.keyed_snapshot.FrozenChanges`).

    Args:
        stores: by name of the state.
    """
    lives = {name: store.life for name, store in stores.items() if store.life.now is not None}
    return {name: life.bound for name, life in lives.items()}, {name: life.began for name, life in lives.items()}
