"""The forms of classes with fields: dataclasses, Structs, pydantic models, named tuples (see `records.py`)."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterable
from copy import deepcopy
from inspect import getattr_static
from types import MemberDescriptorType
from typing import Any, Final

from checkpoint.codec.errors import UnfitClass
from checkpoint.codec.form import Form, stored_as
from checkpoint.counted import counted

_HEAP_TYPE: Final = 1 << 9
"""`Py_TPFLAGS_HEAPTYPE`: the class was made by Python code, or much like one that was."""
_MISSING: Final = object()
_OF_MODELS: Final = frozenset({"more", "set", "extra", "private"})
"""What is kept of a pydantic model beside its fields."""
_CLASS: Final = vars(object)["__class__"]
"""Sets the class of an instance, also of one whose attributes can't be set."""


class RecordForm(Form):
    """Of a class with fields."""

    def __init__(self, cls: Any, names: Iterable[str]) -> None:
        super().__init__(cls)
        self.names = tuple(names)
        self._set_of_names = frozenset(names)

    def needs(self, name: str) -> bool:
        """Whether a value can't be made without this field."""
        return self._default_of(name) is _MISSING

    def _default_of(self, name: str) -> Any:
        """
        Raises:
            UnfitClass: what makes the default has failed.
        """
        try:
            return self._default(name)
        except Exception as error:
            raise UnfitClass(
                f"the default of field {name!r} of class {self.name} raised {type(error).__name__}: {error}"
            ) from error

    @abstractmethod
    def _default(self, name: str) -> Any:
        """A new instance's value of the field; `_MISSING` if it has to be given."""

    def _fitted(self, content: Any) -> dict[str, Any]:
        """The fields as the class has them now."""
        if type(content) is dict and content.keys() == self._set_of_names:
            return content
        if type(content) is not dict:
            raise UnfitClass(
                f"a value of class {self.name} was {stored_as(content)} when it was written, and has fields now"
            )
        unknown = [name for name in content if name not in self._set_of_names]
        fields = {name: content.get(name, _MISSING) for name in self.names}
        for name, value in fields.items():
            if value is _MISSING:
                fields[name] = self._default_of(name)
        missing = [name for name, value in fields.items() if value is _MISSING]
        if unknown or missing:
            changes = [
                f"{', '.join(map(repr, names))} {what}"
                for names, what in (
                    (unknown, "was written and is no field now"),
                    (missing, "was not and has no default"),
                )
                if names
            ]
            raise UnfitClass(
                f"class {self.name} has changed since a value of it was written: {'; '.join(changes)}. Give new fields "
                "a default, and keep old ones"
            )
        return fields

    def _attributes(self, more: dict[str, Any] | None, place: Callable[[str], bool]) -> dict[str, Any]:
        """What a value held beside its fields, as attributes.

        Args:
            place: whether the class has one for an attribute.

        Raises:
            UnfitClass: it has none.
        """
        if more is not None and more.keys() == _OF_MODELS:
            rest = {**(more["extra"] or {}), **(more["private"] or {})}
            if rest:
                raise UnfitClass(
                    f"a value of class {self.name} was a pydantic model when it was written, and held "
                    f"{', '.join(map(repr, rest))} beside its fields"
                )
            more = more["more"]
        lost = [name for name in more or () if not place(name)]
        if lost:
            raise UnfitClass(
                f"a value of class {self.name} held {', '.join(map(repr, lost))} beside its fields when it was "
                "written, and the class has no place for that now"
            )
        return more or {}

    def _missing(self, name: str) -> TypeError:
        return TypeError(f"its field {name!r} is not set")


class DataclassForm(RecordForm):
    def __init__(self, cls: Any) -> None:
        _check_layout(cls)
        self._fields = {field.name: field for field in dataclasses.fields(cls)}
        for name in self._fields:
            kept_by = getattr_static(cls, name, None)
            if type(kept_by) is not MemberDescriptorType and hasattr(type(kept_by), "__set__"):
                raise TypeError(f"its field {name!r} is kept by a {type(kept_by).__qualname__}, not by the instance")
        super().__init__(cls, self._fields)
        self.changeable = not cls.__dataclass_params__.frozen
        self._slots: dict[str, Any] = {
            name: member
            for base in reversed(cls.__mro__)  # of slots of one name the one of the subclass counts
            for name, member in vars(base).items()
            if type(member) is MemberDescriptorType
        }
        self._has_dict = cls.__dictoffset__ != 0

    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        if not self._slots:
            fields = value.__dict__
            if fields.keys() == self._set_of_names:
                return fields, None
        held = dict(value.__dict__) if self._has_dict else {}
        for name, member in self._slots.items():
            try:
                held[name] = member.__get__(value)
            except AttributeError:
                pass  # not set
        held.pop("__orig_class__", None)  # what `Box[int](…)` leaves for type checkers
        fields = {}
        for name in self.names:
            if name in held:
                fields[name] = held.pop(name)
                continue
            default = self._fields[name].default  # the class has it, if the field is no slot
            if name in self._slots or default is dataclasses.MISSING:
                raise self._missing(name)
            fields[name] = default
        return fields, held or None

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        fields = self._fitted(content)
        value = object.__new__(self.cls)
        if more:
            fields = {**fields, **self._attributes(more, lambda name: self._has_dict or name in self._slots)}
        if not self._slots:
            value.__dict__.update(fields)
            return value
        for name, item in fields.items():
            if name in self._slots:
                self._slots[name].__set__(value, item)
            else:
                value.__dict__[name] = item
        return value

    def _default(self, name: str) -> Any:
        field = self._fields[name]
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        return _MISSING if field.default is dataclasses.MISSING else field.default


class StructForm(RecordForm):
    """Msgspec makes a Struct by its constructor only. So that no `__post_init__` runs, a value is made of a subclass
    without one, and its class is set then."""

    def __init__(self, cls: Any) -> None:
        from msgspec import Struct, structs

        super().__init__(cls, cls.__struct_fields__)
        self.changeable = not cls.__struct_config__.frozen
        self._as_dict, self._set = structs.asdict, structs.force_setattr
        self._new, self._set_again = cls, False
        if hasattr(cls, "__post_init__"):
            # An `__init_subclass__` would hear of the subclass.
            hears = getattr_static(cls, "__init_subclass__") is not getattr_static(Struct, "__init_subclass__")
            self._set_again = hears
            if not hears:
                members = {"__post_init__": lambda self: None, "__module__": cls.__module__}
                self._new = type(cls)(cls.__name__, (cls,), members)
        self._has_dict = cls.__dictoffset__ != 0

    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        try:
            fields = self._as_dict(value)
        except AttributeError as error:
            raise TypeError(f"a field is not set: {error}") from None
        if self._set_again:
            try:
                self.cls(**deepcopy(fields))
            except Exception as error:
                raise TypeError(f"it would not come back: {type(error).__name__}: {error}") from error
        return fields, (value.__dict__ or None) if self._has_dict else None

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        fields = self._fitted(content)
        if self._set_again:
            value = self._made(fields)
        else:
            value = self._new(**fields)
            if self._new is not self.cls:
                _CLASS.__set__(value, self.cls)
        if more and (attributes := self._attributes(more, lambda name: self._has_dict)):
            value.__dict__.update(attributes)
        return value

    def _made(self, fields: dict[str, Any]) -> Any:
        """By the constructor of the class itself, which may change what it gets."""
        try:
            value = self.cls(**deepcopy(fields))
        except Exception as error:
            raise UnfitClass(
                f"a value of class {self.name} can't be made of what it held: {type(error).__name__}: {error}"
            ) from error
        for name, item in fields.items():
            self._set(value, name, item)
        return value

    def _default(self, name: str) -> Any:
        from msgspec import NODEFAULT, structs

        (field,) = (each for each in structs.fields(self.cls) if each.name == name)
        if field.default_factory is not NODEFAULT:
            return field.default_factory()
        return _MISSING if field.default is NODEFAULT else field.default


class ModelForm(RecordForm):
    """A pydantic model."""

    def __init__(self, cls: Any) -> None:
        _check_layout(cls)
        super().__init__(cls, cls.model_fields)
        self.changeable = not cls.model_config.get("frozen", False)
        self._private = frozenset(
            name for name, attribute in cls.__private_attributes__.items() if self._has_default(attribute)
        )
        """Private attributes that have a value from the start on."""

    @staticmethod
    def _has_default(attribute: Any) -> bool:
        from pydantic_core import PydanticUndefined

        return attribute.default is not PydanticUndefined or attribute.default_factory is not None

    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        from pydantic import BaseModel

        state = BaseModel.__getstate__(value)
        fields, more = {}, dict(state["__dict__"])
        for name in self.names:
            if name not in more:
                raise self._missing(name)
            fields[name] = more.pop(name)
        given = state["__pydantic_fields_set__"]
        extra, private = state["__pydantic_extra__"], state["__pydantic_private__"]
        for name in self._private:
            if private is None or name not in private:  # would be there again behind the way
                raise TypeError(f"its private attribute {name!r} is not set")
        if not more and given == self._set_of_names and extra is None and private is None:
            return fields, None
        return fields, {"more": more, "set": sorted(given), "extra": extra, "private": private}

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        if more is not None and more.keys() != _OF_MODELS:
            raise UnfitClass(
                f"a value of class {self.name} was no pydantic model when it was written, and held "
                f"{', '.join(map(repr, more))} beside its fields"
            )
        held = more or {"more": {}, "set": self.names, "extra": None, "private": None}
        extra, private = held["extra"], held["private"]
        if extra and type(content) is dict and (now := self._set_of_names.intersection(extra)):
            content = {**content, **{name: extra[name] for name in now}}  # they have become fields
            extra = {name: item for name, item in extra.items() if name not in now}
        if extra is None and self.cls.model_config.get("extra") == "allow":
            extra = {}
        fields = self._fitted(content)
        if self._private and (private is None or not self._private <= private.keys()):
            attributes = self.cls.__private_attributes__  # some came later
            came = {name: self._made(attributes[name], fields) for name in self._private.difference(private or ())}
            private = {**(private or {}), **came}
        value = object.__new__(self.cls)
        for name, item in (
            ("__dict__", {**fields, **held["more"]}),
            ("__pydantic_fields_set__", set(held["set"])),
            ("__pydantic_extra__", extra),
            ("__pydantic_private__", private),
        ):
            object.__setattr__(value, name, item)
        return value

    @staticmethod
    def _made(attribute: Any, fields: dict[str, Any]) -> Any:
        """The default of a private attribute. (Its own `get_default` differs between versions of pydantic.)"""
        factory = attribute.default_factory
        if factory is None:
            return deepcopy(attribute.default)
        return factory(dict(fields)) if getattr(attribute, "default_factory_takes_validated_data", None) else factory()

    def _default(self, name: str) -> Any:
        field = self.cls.model_fields[name]
        if field.is_required() or getattr(field, "default_factory_takes_validated_data", None):
            return _MISSING
        return field.get_default(call_default_factory=True)


class NamedTupleForm(RecordForm):
    changeable = False

    def __init__(self, cls: Any) -> None:
        super().__init__(cls, cls._fields)
        self._has_dict = cls.__dictoffset__ != 0

    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        if len(value) != len(self.names):
            raise TypeError(f"it has {counted(len(value), 'item')}, and its class {counted(len(self.names), 'field')}")
        fields = dict(zip(self.names, tuple.__iter__(value), strict=True))
        return fields, (value.__dict__ or None) if self._has_dict else None

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        fields = self._fitted(content)
        value = tuple.__new__(self.cls, [fields[name] for name in self.names])
        if more and (attributes := self._attributes(more, lambda name: self._has_dict)):
            value.__dict__.update(attributes)
        return value

    def _default(self, name: str) -> Any:
        return self.cls._field_defaults.get(name, _MISSING)


def _check_layout(cls: type) -> None:
    """
    Raises:
        TypeError: instances hold something beside attributes.
    """
    for base in cls.__mro__[:-1]:
        if not base.__flags__ & _HEAP_TYPE:
            raise TypeError(f"it is also a {base.__qualname__}, whose content would be lost; give it a field for that")
