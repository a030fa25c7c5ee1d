"""Dataclasses as values that `checkpoint.codec` carries, by the declared types of their fields.

| type                                  | as a value                                                  |
|---------------------------------------|-------------------------------------------------------------|
| None, bool, int, float, str, bytes    | itself; a float may come as an int                          |
| Any                                   | itself, whatever the codec carries                          |
| enum of texts                         | its text                                                    |
| list, tuple, named tuple              | a list                                                      |
| dict, Mapping                         | a dict, or a list of pairs if its keys are no plain values  |
| class with `to_wire` and `from_wire`  | what these say                                              |
| other dataclass                       | a dict by field                                             |
| union with None                       | None or the other                                           |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from checkpoint.counted import counted

T = TypeVar("T")

_PLAIN: Final[dict[Any, frozenset[type]]] = {
    NoneType: frozenset({NoneType}),
    bool: frozenset({bool}),
    int: frozenset({int}),
    float: frozenset({float, int}),
    str: frozenset({str}),
    bytes: frozenset({bytes}),
}


class TypeMismatch(ValueError):
    """A value that is not what its declared type says."""

    def __init__(self, what: str, path: tuple[str, ...] = ()):
        """`path`: names of the fields that lead to it."""
        super().__init__(f"field {'.'.join(path)!r} {what}" if path else what)
        self.what = what
        self.path = path


@dataclass(frozen=True, slots=True)
class _Form:
    """How values of one type are written and read."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def to_value(instance: Any) -> dict[str, Any]:
    """A dataclass' fields, by name."""
    cls: Any = type(instance)
    value: dict[str, Any] = _dataclass_form(cls).write(instance)
    return value


def from_value(cls: type[T], value: Any) -> T:
    """The dataclass that `to_value` has written.

    Raises:
        TypeMismatch: a field is missing, unknown or of another type.
    """
    untyped: Any = cls
    instance: T = _dataclass_form(untyped).read(value)
    return instance


def _same(value: Any) -> Any:
    return value


@cache
def _form(hint: Any) -> _Form:
    origin, args = get_origin(hint) or hint, get_args(hint)
    if hint is Any:
        return _Form(_same, _same)
    if origin in _PLAIN:
        return _plain_form(origin)
    if origin in (Union, UnionType):
        return _optional_form(args)
    if origin in (list, Sequence) or (origin is tuple and args[1:] == (...,)):
        return _sequence_form(tuple if origin is tuple else list, _form(args[0]))
    if origin is tuple:
        return _row_form(lambda values: tuple(values), [_form(each) for each in args])
    if origin in (dict, Mapping):
        return _mapping_form(*args)
    if issubclass(origin, StrEnum):
        return _Form(lambda value: value.value, _checked(origin))
    if hasattr(origin, "from_wire"):
        return _Form(lambda value: value.to_wire(), _checked(origin.from_wire))
    if issubclass(origin, tuple):
        hints = get_type_hints(origin)
        return _row_form(lambda values: origin(*values), [_form(hints[name]) for name in origin._fields])
    if is_dataclass(hint):
        cls: Any = hint
        return _dataclass_form(cls)
    raise TypeError(f"{hint} can't travel")


def _plain_form(hint: type) -> _Form:
    allowed = _PLAIN[hint]

    def read(value: Any) -> Any:
        if type(value) not in allowed:
            raise TypeMismatch(f"should be {hint.__name__} and is {type(value).__name__}")
        return value

    return _Form(_same, read)


def _optional_form(args: tuple[Any, ...]) -> _Form:
    (inner,) = (_form(each) for each in args if each is not NoneType)
    return _Form(
        lambda value: None if value is None else inner.write(value),
        lambda value: None if value is None else inner.read(value),
    )


def _sequence_form(make: Callable[[Any], Any], item: _Form) -> _Form:
    return _Form(
        lambda value: [item.write(each) for each in value],
        lambda value: make(item.read(each) for each in _a(list, value)),
    )


def _row_form(make: Callable[[Any], Any], items: list[_Form]) -> _Form:
    def read(value: Any) -> Any:
        if len(_a(list, value)) != len(items):
            raise TypeMismatch(f"should have {counted(len(items), 'part')} and has {len(value)}")
        return make([form.read(each) for form, each in zip(items, value, strict=True)])

    return _Form(lambda value: [form.write(each) for form, each in zip(items, value, strict=True)], read)


def _mapping_form(key_hint: Any, value_hint: Any) -> _Form:
    key, item = _form(key_hint), _form(value_hint)
    if key_hint in _PLAIN:
        return _Form(
            lambda value: {key.write(k): item.write(v) for k, v in value.items()},
            lambda value: {key.read(k): item.read(v) for k, v in _a(dict, value).items()},
        )
    pairs = _sequence_form(list, _row_form(tuple, [key, item]))
    return _Form(lambda value: pairs.write(value.items()), lambda value: dict(pairs.read(value)))


@cache
def _dataclass_form(cls: Any) -> _Form:
    hints = get_type_hints(cls)
    forms = {field.name: _form(hints[field.name]) for field in fields(cls)}

    def write(instance: Any) -> dict[str, Any]:
        return {name: form.write(getattr(instance, name)) for name, form in forms.items()}

    def read(value: Any) -> Any:
        given = _a(dict, value)
        for name in (*forms, *given):
            if name not in given:
                raise TypeMismatch("is missing", (name,))
            if name not in forms:
                raise TypeMismatch("is unknown", (str(name),))
        values = {}
        for name, form in forms.items():
            try:
                values[name] = form.read(given[name])
            except TypeMismatch as error:
                raise TypeMismatch(error.what, (name, *error.path)) from error
        return cls(**values)

    return _Form(write, read)


def _a(wanted: type[T], value: Any) -> T:
    if not isinstance(value, wanted):
        raise TypeMismatch(f"should be {wanted.__name__} and is {type(value).__name__}")
    return value


def _checked(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What a class reads by itself raises whatever it does."""

    def checked(value: Any) -> Any:
        try:
            return read(value)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise TypeMismatch(f"can't be read: {type(error).__name__}: {error}") from error

    return checked
