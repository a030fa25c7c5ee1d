"""Values of users' classes: taken apart into what the codec carries, and put together again.

| class              | taken apart into                                                                    |
|--------------------|-------------------------------------------------------------------------------------|
| dataclass          | its fields, and what else the instance holds                                        |
| `msgspec.Struct`   | the same                                                                            |
| pydantic model     | its fields; which of them were set, private attributes and extra ones               |
| named tuple        | its fields                                                                          |
| enum               | the member's name; the number of flags that have none                               |
| registered pickled | its pickle                                                                          |

Instances are made without `__init__` and `__post_init__`, which could change what they hold. Only a Struct can't be
made so: its `__post_init__` runs, and the fields are set to what they were behind it.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum, Flag
from types import MemberDescriptorType
from typing import Any, ClassVar, Final

from ormsgpack import packb

from checkpoint.codec.classes import class_of, forms, is_pickled, name_of
from checkpoint.codec.errors import UnfitClass

_HEAP_TYPE: Final = 1 << 9
"""`Py_TPFLAGS_HEAPTYPE`: the class was made by Python code, or much like one that was."""
_MISSING: Final = object()


class Form(ABC):
    """How the values of one class are taken apart and made."""

    changeable: bool = True
    """Whether a value can be changed in place, apart from what it holds."""
    shape: Any = None
    """What `checkpoint.codec.class_shapes` has found out about the class."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.name = name_of(cls)
        self.head: Final = packb(self.name)

    @abstractmethod
    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        """The content of a value, which must not be changed: a dict by field, or something plain. And what else it
        holds, if anything.

        Raises:
            TypeError: this very value can't be carried; the message says why.
        """

    @abstractmethod
    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        """The value that `take` took apart; may keep the dicts.

        Raises:
            UnfitClass: the class has changed since.
        """

    def copy(self, value: Any, copied: Callable[[Any], Any]) -> Any:
        """A copy of the value that shares nothing that can be changed. `copied` does the same for what it holds."""
        content, more = self.take(value)
        return self.make(copied(content), None if more is None else copied(more))


class RecordForm(Form):
    """Of a class with fields."""

    def __init__(self, cls: Any, names: Iterable[str]) -> None:
        super().__init__(cls)
        self.names = tuple(names)
        self._set_of_names = frozenset(names)

    def needs(self, name: str) -> bool:
        """Whether a value can't be made without this field."""
        return self._default(name) is _MISSING

    @abstractmethod
    def _default(self, name: str) -> Any:
        """A new instance's value of the field; `_MISSING` if it has to be given."""

    def _fitted(self, content: Any) -> dict[str, Any]:
        """The fields as the class has them now."""
        if type(content) is dict and content.keys() == self._set_of_names:
            return content
        if type(content) is not dict:
            raise UnfitClass(
                f"a value of class {self.name} was {_kind(content)} when it was written, and has fields now"
            )
        unknown = [name for name in content if name not in self._set_of_names]
        fields = {name: content.get(name, _MISSING) for name in self.names}
        for name, value in fields.items():
            if value is _MISSING:
                fields[name] = self._default(name)
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

    def _missing(self, name: str) -> TypeError:
        return TypeError(f"its field {name!r} is not set")


class _Dataclass(RecordForm):
    def __init__(self, cls: Any) -> None:
        _check_layout(cls)
        self._fields = {field.name: field for field in dataclasses.fields(cls)}
        super().__init__(cls, self._fields)
        self.changeable = not cls.__dataclass_params__.frozen
        self._slots: dict[str, Any] = {
            name: member
            for base in cls.__mro__
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
            if name not in held:
                raise self._missing(name)
            fields[name] = held.pop(name)
        return fields, held or None

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        fields = self._fitted(content)
        value = object.__new__(self.cls)
        if more:
            fields = {**fields, **more}
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


class _Struct(RecordForm):
    def __init__(self, cls: Any) -> None:
        from msgspec import structs

        super().__init__(cls, cls.__struct_fields__)
        self.changeable = not cls.__struct_config__.frozen
        self._as_dict, self._set = structs.asdict, structs.force_setattr
        self._set_again = hasattr(cls, "__post_init__")
        self._has_dict = cls.__dictoffset__ != 0

    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        try:
            fields = self._as_dict(value)
        except AttributeError as error:
            raise TypeError(f"a field is not set: {error}") from None
        return fields, (value.__dict__ or None) if self._has_dict else None

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        fields = self._fitted(content)
        value = self.cls(**fields)
        if self._set_again:
            for name, item in fields.items():
                self._set(value, name, item)
        if more:
            value.__dict__.update(more)
        return value

    def _default(self, name: str) -> Any:
        from msgspec import NODEFAULT, structs

        (field,) = (each for each in structs.fields(self.cls) if each.name == name)
        if field.default_factory is not NODEFAULT:
            return field.default_factory()
        return _MISSING if field.default is NODEFAULT else field.default


class _Model(RecordForm):
    """A pydantic model."""

    def __init__(self, cls: Any) -> None:
        _check_layout(cls)
        super().__init__(cls, cls.model_fields)
        self.changeable = not cls.model_config.get("frozen", False)

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
        if not more and given == self._set_of_names and extra is None and private is None:
            return fields, None
        return fields, {"more": more, "set": sorted(given), "extra": extra, "private": private}

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        fields = self._fitted(content)
        held = more or {"more": {}, "set": self.names, "extra": None, "private": None}
        value = object.__new__(self.cls)
        for name, item in (
            ("__dict__", {**fields, **held["more"]}),
            ("__pydantic_fields_set__", set(held["set"])),
            ("__pydantic_extra__", held["extra"]),
            ("__pydantic_private__", held["private"]),
        ):
            object.__setattr__(value, name, item)
        return value

    def _default(self, name: str) -> Any:
        field = self.cls.model_fields[name]
        return _MISSING if field.is_required() else field.get_default(call_default_factory=True)


class _NamedTuple(RecordForm):
    changeable = False

    def __init__(self, cls: Any) -> None:
        super().__init__(cls, cls._fields)
        self._has_dict = cls.__dictoffset__ != 0

    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        if len(value) != len(self.names):
            raise TypeError(f"it has {len(value)} items, and its class {len(self.names)} fields")
        fields = dict(zip(self.names, tuple.__iter__(value), strict=True))
        return fields, (value.__dict__ or None) if self._has_dict else None

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        fields = self._fitted(content)
        value = tuple.__new__(self.cls, [fields[name] for name in self.names])
        if more:
            value.__dict__.update(more)
        return value

    def _default(self, name: str) -> Any:
        return self.cls._field_defaults.get(name, _MISSING)


class _Enum(Form):
    changeable = False

    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        name = value._name_
        if self.cls._member_map_.get(name) is value:
            return name, None
        if isinstance(value, Flag) and type(value._value_) is int and self.cls(value._value_) is value:
            return value._value_, None
        raise TypeError(f"it is no member of {self.cls.__qualname__}")

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        if type(content) is int and issubclass(self.cls, Flag):
            try:
                return self.cls(content)
            except ValueError as error:
                raise UnfitClass(f"enum {self.name} has changed since a value of it was written: {error}") from None
        if type(content) is not str:
            raise UnfitClass(f"{self.name} is an enum, and was {_kind(content)} when a value of it was written")
        try:
            return self.cls._member_map_[content]
        except KeyError:
            raise UnfitClass(
                f"enum {self.name} has no member {content!r} now, and it had when a value was written; keep the member"
            ) from None

    def copy(self, value: Any, copied: Callable[[Any], Any]) -> Any:
        return value


class _Pickler(pickle.Pickler):
    def persistent_id(self, item: Any) -> str | None:
        """Classes that a worker may not find in a module go by the name that it knows them by."""
        if not isinstance(item, type) or item.__module__ == "builtins":
            return None
        try:
            return name_of(item)
        except TypeError:
            return None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, name: str) -> Any:
        found = class_of(name)
        if found is None:
            raise UnfitClass(_not_here(name))
        return found


class PickledForm(Form):
    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        out = io.BytesIO()
        try:
            _Pickler(out, 5).dump(value)
        except Exception as error:
            raise TypeError(f"it can't be pickled: {type(error).__name__}: {error}") from error
        return out.getvalue(), None

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        if type(content) is not bytes:
            raise UnfitClass(
                f"class {self.name} is registered with pickle, and was {_kind(content)} when a value of it was written"
            )
        value = _Unpickler(io.BytesIO(content)).load()
        if type(value) is not self.cls:
            raise UnfitClass(f"the pickle of a value of {self.name} gives a {type(value).__qualname__}")
        return value


class Opaque:
    """A value of a user's class as its bytes, where it is only passed on."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    encoding_advice: ClassVar[str] = "it was read without its class"


def form_of(cls: type) -> Form | None:
    """How values of this very class are carried; `None` if they aren't.

    Raises:
        TypeError: the class is of a kind that is carried, and this one can't be; the message says why.
    """
    known: Form | None = forms.get(cls)
    if known is None:
        kind = _form_class(cls)
        if kind is None:
            return None
        known = forms[cls] = kind(cls)
    return known


def form_named(name: Any) -> Form:
    """The form of the class that bytes name.

    Raises:
        UnfitClass: the class isn't here, or is of no kind whose values are carried.
    """
    cls = class_of(name) if type(name) is str else None
    if cls is None:
        raise UnfitClass(_not_here(name))
    try:
        form = form_of(cls)
    except TypeError as error:
        raise UnfitClass(f"a value of class {name} can't be read: {error}") from None
    if form is None:
        raise UnfitClass(
            f"a value of class {name} can't be read: that is no dataclass, Struct, enum, named tuple or pydantic "
            "model, and not registered with pickle"
        )
    return form


def _form_class(cls: type) -> type[Any] | None:
    if is_pickled(cls):
        return PickledForm
    if issubclass(cls, Enum):
        return _Enum
    if dataclasses.is_dataclass(cls):
        return _Dataclass
    if issubclass(cls, tuple):
        return _NamedTuple if isinstance(getattr(cls, "_fields", None), tuple) else None
    # A value of such a class can't be there before these were imported.
    msgspec, pydantic = sys.modules.get("msgspec"), sys.modules.get("pydantic")
    if msgspec is not None and issubclass(cls, msgspec.Struct):
        return _Struct
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        return _Model
    return None


def is_value_class(cls: Any) -> bool:
    """Whether values of this class may be carried."""
    return isinstance(cls, type) and _form_class(cls) is not None


def _check_layout(cls: type) -> None:
    """
    Raises:
        TypeError: instances hold something beside attributes.
    """
    for base in cls.__mro__[:-1]:
        if not base.__flags__ & _HEAP_TYPE:
            raise TypeError(f"it is also a {base.__qualname__}, whose content would be lost; give it a field for that")


def _kind(content: Any) -> str:
    return {dict: "a class with fields", str: "an enum", int: "an enum of flags"}.get(type(content), "pickled")


def _not_here(name: Any) -> str:
    return (
        f"a value of class {name} can't be read: there is no such class in the modules that are loaded here. Define it "
        "under its old name, in the script or in a module that the script imports"
    )
