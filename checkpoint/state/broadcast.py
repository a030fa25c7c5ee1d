"""Broadcast state: dicts that every subtask of an operator fills alike, from records that all of them get."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import Any, TypeVar

from checkpoint.codec import EncodingError, decode, encode
from checkpoint.shown import shown
from checkpoint.state.contents import ContentNotes, StateContent
from checkpoint.state.descriptor import StateDescriptor
from checkpoint.state.errors import StateAccessError, StateRestoreError
from checkpoint.state.map_keys import problem_of_key
from checkpoint.state.private_copy import IMMUTABLE
from checkpoint.state.refused_operators import attribute_of, refuse_methods, refuse_operators
from checkpoint.state.undo import Undoable, UndoLog

K = TypeVar("K")
V = TypeVar("V")


class BroadcastStates:
    """The broadcast states of one operator in one subtask. Used by the task thread only."""

    def __init__(self, undo: UndoLog | None = None) -> None:
        """`undo`: takes back what a record changes."""
        self._undo = undo
        self.writable = False
        """Whether the record in progress came to all subtasks, so that all of them write the same."""
        self._handles: dict[str, BroadcastHandle[Any, Any]] = {}

    def handle(self, name: str, operator: str, descriptor: StateDescriptor[Any]) -> BroadcastHandle[Any, Any]:
        if name not in self._handles:
            what = f"broadcast state {name!r} of {operator}"
            self._handles[name] = (
                BroadcastHandle(what, self, descriptor)
                if self._undo is None
                else UndoBroadcastHandle(what, self, descriptor, self._undo)
            )
        return self._handles[name]

    @property
    def declared(self) -> bool:
        """Whether the operator has any."""
        return bool(self._handles)

    def snapshot(self) -> dict[str, dict[bytes, bytes]]:
        """What there is now, encoded, by state; states without entries are left out."""
        return {name: handle.snapshot() for name, handle in self._handles.items() if len(handle)}

    def contents(self) -> dict[str, StateContent]:
        """What the entries of `snapshot` are."""
        return {name: handle.content() for name, handle in self._handles.items() if len(handle)}

    def restore(
        self,
        states: Mapping[str, Mapping[bytes, bytes]],
        allow_unclaimed: bool = False,
        contents: Mapping[str, StateContent] | None = None,
    ) -> None:
        """Take over what `snapshot` gave, in this subtask or another: at a barrier they are equal.

        Args:
            contents: what their entries are, of those of which it is known.
            allow_unclaimed: leave out states that the operator doesn't declare, instead of an error.

        Raises:
            StateRestoreError: the operator doesn't declare one of the states, an entry doesn't fit it, or a `migrate`
                has failed.
        """
        for name, encoded in states.items():
            handle = self._handles.get(name)
            if handle is not None:
                handle.load(encoded, (contents or {}).get(name))
            elif not allow_unclaimed:
                raise StateRestoreError(
                    f"the checkpoint holds broadcast state {name!r}, which the operator doesn't declare; declare it "
                    "again under its old name, or start with allow_unclaimed=True to drop it"
                )


class BroadcastHandle(MutableMapping[K, V]):
    """A dict that is the same in all subtasks. Its own keys compare as those of a `MapState`.

    Readable everywhere; writable only while a record of a broadcast stream is processed. A value is kept as it was when
    it was put: to change it, put it again. One that was changed in place fails the next snapshot, since the change
    would be there until a restore and then be gone.
    """

    __slots__ = ("_descriptor", "_encoded", "_handed_out", "_name", "_notes", "_states", "_values")

    encoding_advice = "it is a state; write what it holds, such as dict(self.rules)"

    def __init__(self, name: str, states: BroadcastStates, descriptor: StateDescriptor[Any]) -> None:
        self._name = name
        self._descriptor = descriptor
        self._notes = self._new_notes()
        self._states = states
        self._values: dict[K, V] = {}
        self._encoded: dict[K, tuple[bytes, bytes]] = {}
        """Each entry as a snapshot holds it, key and value."""
        self._handed_out: set[K] = set()
        """Keys whose values can be changed, and may have been since the last snapshot."""

    def snapshot(self) -> dict[bytes, bytes]:
        """
        Raises:
            StateAccessError: a value was changed in place.
        """
        for key in self._handed_out & self._values.keys():
            self._check_unchanged(key)
        self._handed_out.clear()
        return dict(self._encoded.values())

    def content(self) -> StateContent:
        """What the entries are, or were since the last restore."""
        return self._notes.contents().get(self._name, StateContent())

    def _new_notes(self) -> ContentNotes:
        return ContentNotes({self._name: self._descriptor.written()._replace(content=object)})

    def load(self, encoded: Mapping[bytes, bytes], stored: StateContent | None = None) -> None:
        """Replace all entries by those of a snapshot.

        Args:
            stored: what they are, if it is known.

        Raises:
            StateRestoreError: one doesn't fit, or `migrate` has failed.
        """
        evolution = self._descriptor.evolution(self._name, stored)
        values: dict[K, V] = {}
        for key_data, data in encoded.items():
            key = evolution.key(key_data, "a key")
            if key in values:
                raise StateRestoreError(f"{self._name}: two keys that were different are equal now: {shown(key)}")
            values[key] = evolution.value(data, f"the entry {shown(key)}")
        self._values = values
        self._encoded = {}
        self._notes = self._new_notes()
        # Anew, since another version may have encoded them in another way.
        self._encoded = {key: self._encode(key, value) for key, value in values.items()}
        self._handed_out.clear()

    def _changed(self, key: K) -> bool:
        """Whether the value is not what was put."""
        try:
            return encode(self._values[key]) != self._encoded[key][1]
        except EncodingError:
            return True

    def _check_unchanged(self, key: K) -> None:
        if self._changed(key):
            raise StateAccessError(
                f"the value of {shown(key)} in {self._name} was changed in place, which no checkpoint would keep; put "
                f"it again while a record of a broadcast stream is processed: {attribute_of(self)}[{shown(key)}] = …"
            )

    def __getitem__(self, key: K) -> V:
        value = self._values[key]
        if type(value) not in IMMUTABLE:
            self._handed_out.add(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._check_writable()
        declared = self._descriptor.declared
        problem = None if declared is None else declared.problem(value)
        try:
            problem = problem or problem_of_key(key)
            if problem is None:
                self._encoded[key] = self._encode(key, value)
        except EncodingError as error:
            problem = str(error)
        if problem is not None:
            raise EncodingError(f"{self._name} can't keep the entry of key {shown(key)}: {problem}")
        self._make_again(key)

    def _make_again(self, key: K) -> None:
        """Make the value of what is encoded, and know how it is encoded itself: the pickle of what a pickle gives may
        be another one, for example of a set."""
        known, data = self._encoded[key]
        value: Any = decode(data)
        self._values[key] = value
        if type(value) not in IMMUTABLE:
            self._encoded[key] = known, encode(value)

    def _encode(self, key: K, value: V) -> tuple[bytes, bytes]:
        known = self._encoded.get(key)
        pair = encode(key) if known is None else known[0], encode(value)
        self._notes.note(self._name, [pair[1]], [value])
        if known is None:
            self._notes.note_keys(self._name, [pair[0]])
        return pair

    def __delitem__(self, key: K) -> None:
        self._check_writable()
        del self._values[key]
        del self._encoded[key]

    def clear(self) -> None:
        """Remove all entries."""
        self._check_writable()
        self._values = {}
        self._encoded = {}

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[K]:
        return iter(self._readable())

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> KeysView[K]:
        return self._readable().keys()

    def values(self) -> ValuesView[V]:
        self._handed_out.update(self._values)
        return self._readable().values()

    def items(self) -> ItemsView[K, V]:
        self._handed_out.update(self._values)
        return self._readable().items()

    def _readable(self) -> dict[K, V]:
        """Entries to go through: a copy where they may be changed meanwhile."""
        return self._values.copy() if self._states.writable else self._values

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"

    def _check_writable(self) -> None:
        if not self._states.writable:
            raise StateAccessError(
                f"{self._name} can be changed only while a record of a broadcast stream is processed: only that "
                "reaches every subtask, and all of them must hold the same"
            )


class UndoBroadcastHandle(BroadcastHandle[K, V], Undoable):
    """One whose changes can be taken back. What a value was when it was put is there encoded, so a value that the
    failed record has changed in place is made anew of that."""

    __slots__ = ("_before", "_entries", "_read", "_undo")

    def __init__(self, name: str, states: BroadcastStates, descriptor: StateDescriptor[Any], undo: UndoLog) -> None:
        super().__init__(name, states, descriptor)
        self._undo = undo
        self._read = False
        self._entries: dict[K, tuple[V, tuple[bytes, bytes]] | None] = {}
        """As they were when they were put first: `None`: there was none."""
        self._before: tuple[dict[K, V], dict[K, tuple[bytes, bytes]]] | None = None
        """All of them with their order, when one was removed first."""

    def _touch(self) -> None:
        if not (self._read or self._entries or self._before):
            self._undo.touched(self)

    def _note_all(self) -> None:
        if self._before is None:
            self._touch()
            self._before = dict(self._values), dict(self._encoded)

    def __getitem__(self, key: K) -> V:
        self._touch()
        self._read = True
        return super().__getitem__(key)

    def values(self) -> ValuesView[V]:
        self._touch()
        self._read = True
        return super().values()

    def items(self) -> ItemsView[K, V]:
        self._touch()
        self._read = True
        return super().items()

    def __setitem__(self, key: K, value: V) -> None:
        if self._before is None and key not in self._entries:
            known = self._encoded.get(key)
            self._touch()
            self._entries[key] = None if known is None else (self._values[key], known)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        self._note_all()
        super().__delitem__(key)

    def clear(self) -> None:
        self._note_all()
        super().clear()

    def forget(self) -> None:
        self._read = False
        self._entries = {}
        self._before = None

    def take_back(self) -> None:
        if self._before is not None:
            self._values, self._encoded = self._before
        for key, entry in self._entries.items():
            if entry is not None:
                self._values[key], self._encoded[key] = entry
            else:
                self._values.pop(key, None)
                self._encoded.pop(key, None)
        for key in self._handed_out & self._values.keys():
            if self._changed(key):
                self._make_again(key)


refuse_operators(BroadcastHandle, {"ior": "{0}.update(…)", "or": "dict({0}) | …", "ror": "… | dict({0})"})
refuse_methods(BroadcastHandle, dict, "dict({0}), and {0}[…] = … for what changes")
