"""What the values of a state are, as a snapshot says beside them: a start can tell whether they fit the classes of the
program without reading them (see `checkpoint.state.evolution`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from checkpoint.codec.class_shapes import ClassShape
from checkpoint.codec.classes import name_of
from checkpoint.codec.classes_held import ClassesHeld
from checkpoint.codec.records import is_value_class
from checkpoint.codec.type_shapes import TypeShape, union
from checkpoint.state.paging.rows import Paged, members, paged_in
from checkpoint.state.stores import MISSING

_TYPES: Final[tuple[type | None, ...]] = (
    *(int,) * 0x80,
    *(dict,) * 0x10,
    *(list,) * 0x10,
    *(str,) * 0x20,
    *(type(None), None, bool, bool),
    *(bytes,) * 3,
    *(None,) * 3,
    *(float,) * 2,
    *(int,) * 8,
    *(None,) * 5,
    *(str,) * 3,
    *(list,) * 2,
    *(dict,) * 2,
    *(int,) * 0x20,
)
"""Of values by the first byte of msgpack; `None` of extensions, which may be anything."""


class Declared(NamedTuple):
    """What an operator says of a state."""

    content: type
    """`list` or `dict` if a value has members, which are looked at one by one."""
    shape: TypeShape | None
    """The type of the values, or members; `None` if it isn't declared."""


UNDECLARED: Final = Declared(object, None)


@dataclass(frozen=True)
class StateContent:
    """What the values of one state are; of a list state its items, of a map state the values of its entries."""

    classes: tuple[ClassShape, ...] = ()
    """Of values of users' classes at any depth. A class that has changed meanwhile may be there twice."""
    types: frozenset[str] | None = None
    """Names of the types of the values themselves, apart from None; `None` = not known."""
    declared: TypeShape | None = None
    """The type that the operator declared for them, if it did; a union of the types that it declared in turn."""
    paged: Paged | None = None
    """Whether there may be rows of maps, or of lists, that lie in pages (see `checkpoint.state.paging`)."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "classes": [shape.to_wire() for shape in self.classes],
            "types": None if self.types is None else sorted(self.types),
            "declared": self.declared,
            **({} if self.paged is None else {"paged": self.paged}),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> StateContent:
        """
        Raises:
            KeyError, TypeError, ValueError: it is damaged.
        """
        types, paged = wire["types"], wire.get("paged")
        if paged not in (None, "map", "list"):
            raise ValueError(f"{paged!r} are no rows in pages")
        classes = tuple(map(ClassShape.from_wire, wire["classes"]))
        return cls(classes, None if types is None else frozenset(types), wire["declared"], paged)

    def with_(self, other: StateContent) -> StateContent:
        """Of the values of both together."""
        return StateContent(
            tuple(ClassesHeld((*self.classes, *other.classes)).shapes),
            None if self.types is None or other.types is None else self.types | other.types,
            None if self.declared is None or other.declared is None else union([self.declared, other.declared]),
            self.paged or other.paged,
        )


def together(files: Iterable[Mapping[str, StateContent]]) -> dict[str, StateContent]:
    """What the values in several files are, by state. Of a state of which one of them doesn't say it, with what they
    do say."""
    found: dict[str, StateContent] = {}
    for contents in files:
        for name, content in contents.items():
            found[name] = found[name].with_(content) if name in found else content
    return found


class ContentNotes:
    """Notes what the values of each state are while they are written. For one thread at a time."""

    def __init__(
        self, declared: Mapping[str, Declared] | None = None, known: Mapping[str, StateContent] | None = None
    ) -> None:
        """
        Args:
            declared: of the states that the operator declares.
            known: of values that are written as they were found.
        """
        self._declared = declared or {}
        self._known = known or {}
        self._classes: dict[str, ClassesHeld] = {}
        self._types: dict[str, set[type] | None] = {}
        self._paged: dict[str, Paged] = {}

    def note(self, state: str, encoded: Sequence[bytes | None], values: Sequence[Any] | None) -> None:
        """Values of a state are written.

        Args:
            encoded: `None` where a key has no value any more.
            values: the same as they were; `None` if that isn't known.
        """
        if state not in self._classes:
            known = self._known.get(state)
            self._classes[state] = ClassesHeld(() if known is None else known.classes)
            self._types[state] = set()
        self._classes[state].look_at([data for data in encoded if data is not None])
        if state in self._declared and (paged := paged_in(encoded, self._declared[state].content)) is not None:
            self._paged[state] = paged
        types = self._types[state]
        if types is None:
            return
        if state not in self._declared:
            self._types[state] = None
        elif values is None:
            found = None if self._declared[state].content in (list, dict) else types_of_encoded(encoded)
            self._types[state] = None if found is None else types | found
        else:
            there = [value for value in values if value is not MISSING] if None in encoded else values
            types.update(map(type, looked_at(there, self._declared[state].content)))

    def note_keys(self, state: str, encoded: Sequence[bytes]) -> None:
        """Keys are written that belong to a state's values, where they aren't part of them."""
        if state in self._classes:
            self._classes[state].look_at(encoded)

    def contents(self) -> dict[str, StateContent]:
        """By state, of those that have values, or of which it was known."""
        found = dict(self._known)
        for state, held in self._classes.items():
            types, known = self._types[state], self._known.get(state)
            declared = known.declared if known is not None else self._declared.get(state, UNDECLARED).shape
            paged = self._paged.get(state) or (None if known is None else known.paged)
            names = None if types is None else type_names(types)
            found[state] = StateContent(tuple(held.shapes), names, declared, paged)
        return found


def types_of_encoded(encoded: Iterable[bytes | None]) -> set[type] | None:
    """The types of encoded values, as far as their first bytes tell; `None` if they don't tell that of all."""
    found = {_TYPES[first] for first in {data[0] for data in encoded if data is not None}}
    return None if None in found else {cls for cls in found if cls is not None}


def looked_at(values: Sequence[Any], content: type) -> Iterable[Any]:
    """What is looked at of values: themselves, or their members."""
    return members(values, content) if content in (list, dict) else values


def type_names(types: Iterable[type]) -> frozenset[str]:
    """The names of the types of values that a state holds, apart from None."""
    return frozenset(name_of(cls) if is_value_class(cls) else cls.__name__ for cls in types if cls is not type(None))
