"""Operator list and union state: lists that belong to a subtask of an operator and to no key, spread anew when the
parallelism changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar, overload

from checkpoint.codec import EncodingError, decode, encode
from checkpoint.codec.classes_held import ClassesHeld
from checkpoint.shown import shown
from checkpoint.state.contents import Declared, StateContent, type_names
from checkpoint.state.descriptor import StateDescriptor
from checkpoint.state.errors import StateRestoreError
from checkpoint.state.refused_operators import refuse_methods, refuse_operators
from checkpoint.state.undo import Undoable, UndoLog

T = TypeVar("T")

LIST: Final = "operator list"
"""After a restore at another parallelism every item is in one subtask."""
UNION: Final = "operator union"
"""After a restore every item is in all subtasks."""
KINDS: Final = (LIST, UNION)

Chunk: TypeAlias = list[Any]
"""Some items as a snapshot holds them: how many, the msgpack list of each one's own msgpack, and what they are
(`StateContent.to_wire`), which older snapshots don't say."""
Stored: TypeAlias = dict[str, dict[str, list[Chunk]]]
"""The lists of one operator in one subtask as a snapshot holds them: chunks by kind and name; no empty lists."""

_CHUNK_ITEMS: Final = 1024
_CHUNK_BYTES: Final = 1 << 20


class OperatorListHandle(Sequence[T]):
    """A list of one subtask. An item is kept as it was when it was put, and reading it gives a new object each time:
    changing that changes nothing that lasts.

    There is no way to change a place of the list: items are added at the end, or all are replaced. So what a snapshot
    has to hold fast are the list and its length.
    """

    __slots__ = ("_descriptor", "_items", "_name", "_types")

    encoding_advice = "it is a state; write what it holds, such as list(self.held)"

    def __init__(self, name: str, descriptor: StateDescriptor[Any]) -> None:
        self._name = name
        self._descriptor = descriptor
        self._items: list[bytes] = []
        """Encoded. Never changed in front of its end; whatever else changes replaces the list."""
        self._types: dict[type, None] = {}
        """Of the items, and of some that were refused; in the order in which they came. Replaced as `_items` is."""

    def append(self, item: T) -> None:
        """Add an item at the end.

        Raises:
            EncodingError: it can't be kept in a checkpoint.
        """
        self._items.append(self._encoded(item))

    def extend(self, items: Iterable[T]) -> None:
        """Add items at the end; none if one of them can't be kept.

        Raises:
            EncodingError: as `append`.
        """
        self._items.extend([self._encoded(item) for item in items])

    def update(self, items: Iterable[T]) -> None:
        """Replace all items; nothing changes if one of the new ones can't be kept.

        Raises:
            EncodingError: as `append`.
        """
        new = list(items)
        self._items = [self._encoded(item) for item in new]
        self._types = dict.fromkeys(map(type, new))

    def clear(self) -> None:
        """Remove all items."""
        self._items, self._types = [], {}

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [decode(item) for item in self._items[index]]
        item: T = decode(self._items[index])
        return item

    def __iter__(self) -> Iterator[T]:
        """The items as they are now; the list may be changed while they are gone through."""
        return map(decode, islice(self._items, len(self._items)))

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"

    def _encoded(self, item: T) -> bytes:
        declared = self._descriptor.declared
        problem = None if declared is None else declared.problem(item)
        if problem is not None:
            raise EncodingError(f"{self._name} can't keep the item {shown(item, 200)}: {problem}")
        self._types[type(item)] = None
        try:
            return encode(item)
        except EncodingError as error:
            raise EncodingError(f"{self._name} can't keep the item {shown(item, 200)}: {error}") from None

    def freeze(self) -> FrozenList:
        """What it holds now, untouched by later changes. Copies nothing."""
        return FrozenList(self._items, frozenset(self._types), self._descriptor.written())

    def load(self, chunks: Iterable[Chunk]) -> None:
        """Replace all items by those of a snapshot.

        Raises:
            StateRestoreError: one doesn't fit, or `migrate` has failed.
        """
        items: list[bytes] = []
        types: dict[type, None] = {}
        for _, data, *wire in chunks:
            stored = StateContent.from_wire(wire[0]) if wire else None
            evolution = self._descriptor.evolution(self._name, stored)
            for item in decode(data):
                before = evolution.migrated
                new = evolution.value(item, f"item {len(items)}")
                types[type(new)] = None
                items.append(item if evolution.migrated == before else encode(new))
        self._items, self._types = items, types


class UndoListHandle(OperatorListHandle[T], Undoable):
    """One whose changes can be taken back."""

    __slots__ = ("_before", "_undo")

    def __init__(self, name: str, descriptor: StateDescriptor[Any], undo: UndoLog) -> None:
        super().__init__(name, descriptor)
        self._undo = undo
        self._before: tuple[list[bytes], int, dict[type, None], int] | None = None
        """The list, its length, its types, and how many of these there were."""

    def _note(self) -> None:
        if self._before is None:
            self._before = self._items, len(self._items), self._types, len(self._types)
            self._undo.touched(self)

    def append(self, item: T) -> None:
        self._note()
        super().append(item)

    def extend(self, items: Iterable[T]) -> None:
        self._note()
        super().extend(items)

    def update(self, items: Iterable[T]) -> None:
        self._note()
        super().update(items)

    def clear(self) -> None:
        self._note()
        super().clear()

    def forget(self) -> None:
        self._before = None

    def take_back(self) -> None:
        assert self._before is not None
        self._items, length, self._types, types = self._before
        del self._items[length:]
        for one in list(self._types)[types:]:
            del self._types[one]


refuse_operators(
    OperatorListHandle,
    {
        "iadd": "{0}.extend(…)",
        "imul": "{0}.update(list({0}) * …)",
        "add": "list({0}) + …",
        "radd": "… + list({0})",
        "eq": "list({0}) == …",
        "ne": "list({0}) != …",
        "setitem": "{0}.update(…) with all items",
        "delitem": "{0}.update(…) with all items",
    },
)


refuse_methods(OperatorListHandle, list, "list({0}), and {0}.update(…) with what it becomes")


class FrozenList:
    """The items of a list at one moment; read by any thread while the task goes on adding."""

    __slots__ = ("_declared", "_items", "_length", "_types")

    def __init__(self, items: list[bytes], types: frozenset[type], declared: Declared) -> None:
        self._items = items
        self._types = types
        self._declared = declared
        self._length = len(items)

    def __len__(self) -> int:
        return self._length

    def chunks(self) -> list[Chunk]:
        """As a snapshot holds them. Takes its time for a long list and belongs into a pool."""
        chunks: list[Chunk] = []
        part: list[bytes] = []
        size = 0
        for item in islice(self._items, self._length):
            part.append(item)
            size += len(item)
            if len(part) == _CHUNK_ITEMS or size >= _CHUNK_BYTES:
                chunks.append(self._chunk(part))
                part, size = [], 0
        if part:
            chunks.append(self._chunk(part))
        return chunks

    def _chunk(self, items: list[bytes]) -> Chunk:
        held = ClassesHeld()
        held.look_at(items)
        content = StateContent(tuple(held.shapes), type_names(self._types), self._declared.shape)
        return [*_chunk(items), content.to_wire()]


class OperatorLists:
    """The list and union states of one operator in one subtask. Used by the task thread only."""

    def __init__(self, undo: UndoLog | None = None) -> None:
        """`undo`: takes back what a record changes."""
        self._undo = undo
        self._handles: dict[str, dict[str, OperatorListHandle[Any]]] = {kind: {} for kind in KINDS}

    def handle(self, name: str, kind: str, operator: str, descriptor: StateDescriptor[Any]) -> OperatorListHandle[Any]:
        """
        Args:
            kind: one of `KINDS`.
            operator: its class, for messages.
        """
        handles = self._handles[kind]
        if name not in handles:
            what = f"{kind} state {name!r} of {operator}"
            handles[name] = (
                OperatorListHandle(what, descriptor)
                if self._undo is None
                else UndoListHandle(what, descriptor, self._undo)
            )
        return handles[name]

    @property
    def declared(self) -> bool:
        """Whether the operator has any."""
        return any(self._handles.values())

    def freeze(self) -> FrozenLists:
        """The synchronous part of a snapshot; copies nothing."""
        return FrozenLists(
            {
                kind: {name: handle.freeze() for name, handle in handles.items() if len(handle)}
                for kind, handles in self._handles.items()
            }
        )

    def restore(self, stored: Mapping[str, Mapping[str, Iterable[Chunk]]], allow_unclaimed: bool = False) -> None:
        """Take over what `shared_out` gave this subtask.

        Args:
            allow_unclaimed: leave out states that the operator doesn't declare, instead of an error.

        Raises:
            StateRestoreError: the operator doesn't declare one of the states, or as one of the other kind.
        """
        for kind, states in stored.items():
            for name, chunks in states.items():
                handle = self._handles[kind].get(name)
                if handle is not None:
                    handle.load(chunks)
                elif not allow_unclaimed:
                    raise StateRestoreError(
                        f"the checkpoint holds {kind} state {name!r}, which the operator doesn't declare; declare it "
                        "again under its old name, or start with allow_unclaimed=True to drop it"
                    )


class FrozenLists:
    """The lists of one operator in one subtask as they were when a barrier was taken; good in any thread."""

    def __init__(self, lists: Mapping[str, Mapping[str, FrozenList]]) -> None:
        self._lists = lists

    def stored(self) -> Stored:
        """What the snapshot holds: takes its time for long lists and belongs into a pool."""
        return {
            kind: {name: each.chunks() for name, each in states.items()}
            for kind, states in self._lists.items()
            if states
        }


def shared_out(
    olds: Mapping[int, Mapping[str, Mapping[str, Sequence[Chunk]]]], old_parallelism: int, index: int, parallelism: int
) -> Stored:
    """What of a checkpoint's lists comes to one subtask.

    Each gets its own back if the parallelism is the same. Otherwise the items of a list state, in order of the old
    subtasks, are cut into contiguous parts whose lengths differ by one at most. Of a union state everybody gets all,
    in order of the old subtasks, whether the parallelism has changed or not.

    Args:
        olds: by index of the old subtask what `FrozenLists.stored` gave, perhaps among other things; those without
            any may be missing.
        index: of the new subtask, from 0.
    """
    mine: Stored = {}
    for kind in KINDS:
        in_order = [(i, olds[i][kind]) for i in sorted(olds) if kind in olds[i]]
        for name in dict.fromkeys(name for _, states in in_order for name in states):
            if kind == LIST and parallelism == old_parallelism:
                chunks = [chunk for i, states in in_order if i == index for chunk in states.get(name, ())]
            else:
                chunks = [chunk for _, states in in_order for chunk in states.get(name, ())]
                if kind == LIST:
                    total = sum(chunk[0] for chunk in chunks)
                    chunks = _cut(chunks, index * total // parallelism, (index + 1) * total // parallelism)
            if chunks:
                mine.setdefault(kind, {})[name] = chunks
    return mine


def _cut(chunks: Iterable[Chunk], start: int, stop: int) -> list[Chunk]:
    """The items from `start` to below `stop`. Only chunks that a border goes through are taken apart."""
    found: list[Chunk] = []
    first = 0
    for chunk in chunks:
        count, data, *content = chunk
        low, high = max(start - first, 0), min(stop - first, count)
        if low < high:
            found.append(chunk if high - low == count else [*_chunk(decode(data)[low:high]), *content])
        first += count
    return found


def _chunk(items: list[bytes]) -> Chunk:
    return [len(items), encode(items)]
