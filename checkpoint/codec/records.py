"""Values of users' classes: taken apart into what the codec carries, and put together again.

| class              | taken apart into                                                                    |
|--------------------|-------------------------------------------------------------------------------------|
| dataclass          | its fields, and what else the instance holds                                        |
| `msgspec.Struct`   | the same                                                                            |
| pydantic model     | its fields; which of them were set, private attributes and extra ones               |
| named tuple        | its fields                                                                          |
| enum               | the member's name; of combined flags their names, or the number if they have none   |
| registered pickled | its pickle                                                                          |

Instances are made without `__init__` and `__post_init__`, which could change what they hold, or refuse it. Of a Struct
whose class also has an `__init_subclass__` it runs, and the fields are set to what they were behind it.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from collections.abc import Callable, Mapping
from enum import Enum, Flag
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Final

from checkpoint.codec.classes import class_of, forms, is_pickled, name_of
from checkpoint.codec.errors import UnfitClass
from checkpoint.codec.form import Form, stored_as
from checkpoint.codec.record_forms import DataclassForm, ModelForm, NamedTupleForm, StructForm

_AND: Final = "|"
"""Between the names of combined flags."""


class _Enum(Form):
    changeable = False

    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        name = value._name_
        members = self.cls._member_map_
        if members.get(name) is value:
            return name, None
        if isinstance(value, Flag) and type(value._value_) is int and self.cls(value._value_) is value:
            return _names_of(value, members) or value._value_, None
        raise TypeError(f"it is no member of {self.cls.__qualname__}")

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        if type(content) is int and issubclass(self.cls, Flag):
            try:
                return self.cls(content)
            except ValueError as error:
                raise UnfitClass(f"enum {self.name} has changed since a value of it was written: {error}") from None
        if type(content) is not str:
            raise UnfitClass(f"{self.name} is an enum, and was {stored_as(content)} when a value of it was written")
        found = self.cls._member_map_.get(content)
        if found is not None:
            return found
        names = content.split(_AND) if issubclass(self.cls, Flag) else [content]
        for name in names:
            if name not in self.cls._member_map_:
                raise UnfitClass(
                    f"enum {self.name} has no member {name!r} now, and it had when a value was written; keep the member"
                )
        return reduce(or_, map(self.cls._member_map_.__getitem__, names))

    def copy(self, value: Any, copied: Callable[[Any], Any]) -> Any:
        return value


def _names_of(value: Flag, members: Mapping[str, Flag]) -> str | None:
    """The names of combined flags: a number would mean others once these have other numbers. `None`: some have none."""
    names, bits = [], 0
    for name, one in sorted(members.items(), key=lambda item: item[1]._value_.bit_count()):
        if one in value and one._value_ & ~bits and _AND not in name and one._name_ == name:
            names.append(name)
            bits |= one._value_
    return _AND.join(names) if len(names) > 1 and bits == value._value_ else None


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
    _comes_back = False
    """Whether that was tried, with the first value: what can't be read must not get into a checkpoint."""

    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        out = io.BytesIO()
        try:
            _Pickler(out, 5).dump(value)
        except Exception as error:
            raise TypeError(f"it can't be pickled: {type(error).__name__}: {error}") from error
        if not self._comes_back:
            try:
                self.make(out.getvalue(), None)
            except UnfitClass as error:
                raise TypeError(f"it would not come back: {error}") from error
            self._comes_back = True
        return out.getvalue(), None

    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        if type(content) is not bytes:
            raise UnfitClass(
                f"class {self.name} is registered with pickle, and was {stored_as(content)} when a value of it was "
                "written"
            )
        try:
            value = _Unpickler(io.BytesIO(content)).load()
        except UnfitClass:
            raise
        except Exception as error:
            raise UnfitClass(
                f"the pickle of a value of {self.name} can't be read: {type(error).__name__}: {error}"
            ) from error
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
        return DataclassForm
    if issubclass(cls, tuple):
        return NamedTupleForm if isinstance(getattr(cls, "_fields", None), tuple) else None
    # A value of such a class can't be there before these were imported.
    msgspec, pydantic = sys.modules.get("msgspec"), sys.modules.get("pydantic")
    if msgspec is not None and issubclass(cls, msgspec.Struct):
        return StructForm
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        return ModelForm
    return None


def is_value_class(cls: Any) -> bool:
    """Whether values of this class may be carried."""
    return isinstance(cls, type) and _form_class(cls) is not None


def _not_here(name: Any) -> str:
    return (
        f"a value of class {name} can't be read: there is no such class in the modules that are loaded here. Define it "
        "under its old name, in the script or in a module that the script imports"
    )
