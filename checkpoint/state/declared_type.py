"""The type that an operator declares for the values of a state: `ValueState(Order)`."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Final, Protocol, TypeAlias, get_origin

from checkpoint.codec.classes import class_of, name_of
from checkpoint.codec.records import is_value_class
from checkpoint.codec.type_shapes import (
    KEYS,
    TypeShape,
    base_name,
    is_keys,
    is_typed_dict,
    keys_differ,
    keys_of,
    one_by_one,
)
from checkpoint.shown import shown
from checkpoint.state.contents import StateContent

_NONE: Final = type(None)


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _Struct(Protocol):
    __struct_fields__: ClassVar[tuple[str, ...]]


class _NamedTuple(Protocol):
    @property
    def _fields(self) -> tuple[str, ...]: ...


RecordClass: TypeAlias = _Dataclass | _Struct | _NamedTuple | Enum
"""For type checkers: what a state can be declared for, as far as they can tell."""


class DeclaredType:
    """A class of values: values are its instances, or of its subclasses, or None."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.name: str = cls.__qualname__

    @property
    def shape(self) -> TypeShape:
        """As a checkpoint notes it.

        Raises:
            TypeError: the class could not be found again.
        """
        return name_of(self.cls)

    def takes(self, kind: type) -> bool:
        """Whether values of this type may be of the declared one."""
        return kind is _NONE or issubclass(kind, self.cls)

    def problem(self, value: Any) -> str | None:
        """Why a value can't be put; `None` if it can."""
        if self.takes(type(value)):
            return None
        return f"{shown(value)} is a {type(value).__qualname__}, and the state is declared for values of {self.name}"

    def misfit(self, value: Any, stored: StateContent | None) -> str | None:
        """Why a value of a snapshot is of another type; `None` if it isn't.

        Args:
            stored: what the snapshot says of the state.
        """
        if self.takes(type(value)):
            return None
        return f"it is a {type(value).__qualname__}, and the state is declared for values of {self.name} now"

    def holds_for(self, stored: StateContent) -> bool:
        """Whether a snapshot says enough of its values to tell that all of them are of this type."""
        return (stored.types is not None or stored.declared is not None) and not self.misfits(stored)

    def misfits(self, stored: StateContent) -> list[str]:
        """Why values of a snapshot are of other types, as far as it says."""
        names = stored.types
        if names is None:
            declared = () if stored.declared is None else one_by_one(stored.declared)
            names = frozenset(map(base_name, declared))
        return [
            f"values are of type {name.rpartition(':')[2]}, and the state is declared for values of {self.name} now"
            for name in sorted(names)
            if not self._takes_name(name)
        ]

    def _takes_name(self, name: str) -> bool:
        found = class_of(name) if ":" in name else None
        return ":" in name if found is None else self.takes(found)  # that a class is gone is told of the class


class DeclaredKeys(DeclaredType):
    """A `TypedDict`: values are dicts. What becomes of their keys nobody checks, so they count only where a snapshot
    was taken with other keys declared, or with none."""

    @property
    def shape(self) -> TypeShape:
        return [KEYS, self._keys]

    @property
    def _keys(self) -> dict[str, Any]:
        if self.cls is not None:
            self._known = keys_of(self.cls)
        return self._known

    def __getstate__(self) -> dict[str, Any]:
        # What its annotations mean can be told only where its module is.
        return {"cls": None, "name": self.name, "_known": self._keys}

    def takes(self, kind: type) -> bool:
        return kind is _NONE or kind is dict

    def holds_for(self, stored: StateContent) -> bool:
        return stored.declared is not None and not self.misfits(stored)

    def misfit(self, value: Any, stored: StateContent | None) -> str | None:
        if value is None:
            return None
        if type(value) is not dict:
            return super().misfit(value, stored)
        if stored is not None and stored.declared is not None:
            return "; ".join(self.misfits(stored)) or None
        keys = self._keys
        unknown = [f"its key {shown(key)} is no key of {self.name}" for key in value if key not in keys]
        missing = [
            f"its key {key!r} is missing, which {self.name} requires"
            for key, (_, required) in keys.items()
            if required and key not in value
        ]
        return "; ".join(unknown + missing) or None

    def misfits(self, stored: StateContent) -> list[str]:
        declared = [] if stored.declared is None else one_by_one(stored.declared)
        known = [shape[1] for shape in declared if is_keys(shape)]
        if not known or len(known) < len(declared):
            return super().misfits(stored)
        differ = dict.fromkeys(problem for keys in known for problem in keys_differ(keys, self._keys))
        return [f"{self.name} has changed since: {'; '.join(differ)}"] if differ else []

    def _takes_name(self, name: str) -> bool:
        return name == "dict" or (":" in name and class_of(name) is None)


def declared_type(cls: Any) -> DeclaredType | None:
    """
    Args:
        cls: a class, or a generic one with its parameters, which values don't keep.

    Returns:
        `None` if it is no class of values.
    """
    cls = get_origin(cls) or cls
    if is_typed_dict(cls):
        return DeclaredKeys(cls)
    return DeclaredType(cls) if is_value_class(cls) else None
