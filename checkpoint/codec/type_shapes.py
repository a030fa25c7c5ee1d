"""Types of fields as data that a checkpoint can hold, and whether values of one type are values of another (pure).

A shape is a name, such as `int` or `orders:Level`, or a list: the name of a generic type and the shapes of its
parameters. Beside these there are

| shape                                   |                                                          |
|-----------------------------------------|----------------------------------------------------------|
| `any`                                   | nothing is known of the values: fits all, as all fit it  |
| `["union", a, b, …]`                    |                                                          |
| `["tuple", a, b, …]`, `["tuple…", a]`   | of a fixed length; of any length                         |
| `["literal", x, y, …]`                  | these values                                             |
| `["keys", {key: [shape, required]}]`    | a dict with these keys: a `TypedDict`                    |
"""

from __future__ import annotations

import collections.abc
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias, TypeGuard
from uuid import UUID

from checkpoint.codec.classes import class_of, module_name
from checkpoint.shown import shown

TypeShape: TypeAlias = str | list[Any]

ANY: Final = "any"
UNION: Final = "union"
LITERAL: Final = "literal"
KEYS: Final = "keys"
TUPLE: Final = "tuple"
TUPLES: Final = "tuple…"

_abc: Final = collections.abc
_KNOWN: Final[dict[str, type]] = {
    cls.__name__: cls
    for cls in (
        *(type(None), bool, int, float, str, bytes, bytearray, list, tuple, set, frozenset, dict),
        *(datetime, date, time, timedelta, Decimal, UUID),
        *(_abc.Iterable, _abc.Collection, _abc.Sequence, _abc.MutableSequence, _abc.Set, _abc.MutableSet),
        *(_abc.Mapping, _abc.MutableMapping, _abc.Hashable),
    )
}
"""Types that have the same name everywhere."""
_NAMES: Final = {cls: name for name, cls in _KNOWN.items()}
_SCALARS: Final = (type(None), bool, int, str, bytes)
_QUALIFIERS: Final = (typing.ClassVar, typing.Final, typing.Annotated, typing.Required, typing.NotRequired)


def shape_of_type(annotation: Any, within: frozenset[type] = frozenset()) -> TypeShape:
    """The shape of what an annotation allows; `any` where it can't be told.

    Args:
        annotation: resolved (see `typing.get_type_hints`).
        within: the `TypedDict`s that it is part of; one in itself is `any`.
    """
    if annotation is None or annotation is type(None):
        return "NoneType"
    if isinstance(annotation, typing.NewType):
        return shape_of_type(annotation.__supertype__, within)
    if type(annotation).__name__ == "TypeAliasType":  # Python 3.11 has none of its own
        return shape_of_type(annotation.__value__, within)
    if is_typed_dict(annotation):
        return ANY if annotation in within else [KEYS, keys_of(annotation, within)]
    origin, parameters = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None:
        return _named(annotation) if isinstance(annotation, type) else ANY
    if origin in _QUALIFIERS:
        return shape_of_type(parameters[0], within)
    if origin is typing.Union or origin is types.UnionType:
        return union(shape_of_type(one, within) for one in parameters)
    if origin is typing.Literal:
        return [LITERAL, *parameters] if all(type(one) in _SCALARS for one in parameters) else ANY
    if origin is tuple:
        if len(parameters) == 2 and parameters[1] is Ellipsis:
            return [TUPLES, shape_of_type(parameters[0], within)]
        return [TUPLE, *(shape_of_type(one, within) for one in parameters)]
    if origin in _NAMES and parameters:
        return [_NAMES[origin], *(shape_of_type(one, within) for one in parameters)]
    return _named(origin) if isinstance(origin, type) else ANY


def is_typed_dict(annotation: Any) -> bool:
    """Whether it is a `TypedDict`, of `typing` or of `typing_extensions`."""
    return isinstance(annotation, type) and annotation.__class__.__name__ == "_TypedDictMeta"


def keys_of(cls: Any, within: frozenset[type] = frozenset()) -> dict[str, list[Any]]:
    """The keys of a `TypedDict`, each with its shape and whether it is required."""
    inside, hints = within | {cls}, hints_of(cls, include_extras=True)
    return {
        key: [shape_of_type(hints.get(key, Any), inside), _is_required(hints.get(key), key in cls.__required_keys__)]
        for key in cls.__annotations__
    }


def _is_required(hint: Any, otherwise: bool) -> bool:
    """Whether a key is, by its annotation. A `TypedDict` knows that itself unless its annotations are strings, as
    `from __future__ import annotations` makes them."""
    while (origin := typing.get_origin(hint)) in _QUALIFIERS:
        if origin in (typing.Required, typing.NotRequired):
            return origin is typing.Required
        hint = typing.get_args(hint)[0]
    return otherwise


def hints_of(cls: type, include_extras: bool = False) -> dict[str, Any]:
    """The annotations of a class and its bases, resolved one by one where that can't be done for all: then what can't
    be is left out.

    Args:
        include_extras: with what qualifies them, such as `NotRequired`.
    """
    try:
        return typing.get_type_hints(cls, include_extras=include_extras)
    except Exception:  # a name that only type checkers know, for example
        found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        names = vars(sys.modules.get(base.__module__, types.ModuleType("none")))
        for name, annotation in vars(base).get("__annotations__", {}).items():
            try:
                one = types.SimpleNamespace(__annotations__={name: annotation})
                found.update(typing.get_type_hints(one, names, dict(vars(base)), include_extras))
            except Exception:
                found.pop(name, None)
    return found


def _named(cls: type) -> TypeShape:
    if cls in _NAMES:
        return _NAMES[cls]
    if cls in (object, Any) or "<locals>" in cls.__qualname__:
        return ANY
    return f"{module_name(cls.__module__)}:{cls.__qualname__}"


def union(members: Iterable[TypeShape]) -> TypeShape:
    """The shape of values that are each of one of these types."""
    found: list[TypeShape] = []
    for one in members:
        if one == ANY:
            return ANY
        found += [each for each in (one[1:] if _is(one, UNION) else [one]) if each not in found]
    return found[0] if len(found) == 1 else [UNION, *found]


def _is(shape: TypeShape, kind: str) -> TypeGuard[list[Any]]:
    return type(shape) is list and shape[0] == kind


# -- whether they fit -------------------------------------------------------------------------------------------


def fits(old: TypeShape, new: TypeShape) -> bool:
    """Whether all values of the one type are values of the other, as far as can be told. An int is a float, and a bool
    an int, as they are for type checkers."""
    if ANY in (old, new) or old == new:
        return True
    if _is(old, UNION):
        return all(fits(one, new) for one in old[1:])
    if _is(new, UNION):
        return any(fits(old, one) for one in new[1:])
    if _is(old, LITERAL):
        return all(_is_one_of(value, new) for value in old[1:])
    if _is(new, LITERAL):
        return False
    if _is(old, KEYS):
        return _keys_fit(old[1], new)
    if _is(new, KEYS):
        return old == "dict"  # its keys are not known
    return _classes_fit(old, new) and _parameters_fit(old, new)


def _is_one_of(value: Any, new: TypeShape) -> bool:
    if _is(new, LITERAL):
        return any(type(value) is type(one) and value == one for one in new[1:])
    return fits(type(value).__name__, new)


def _keys_fit(old: Mapping[str, Any], new: TypeShape) -> bool:
    if not _is(new, KEYS):
        return fits(["dict", "str", union(shape for shape, _ in old.values()) if old else ANY], new)
    return not keys_differ(old, new[1])


def one_by_one(shape: TypeShape) -> list[TypeShape]:
    """The types of a union; another one alone."""
    return list(shape[1:]) if _is(shape, UNION) else [shape]


def is_keys(shape: TypeShape | None) -> TypeGuard[list[Any]]:
    """Whether it is the shape of a `TypedDict`."""
    return shape is not None and _is(shape, KEYS)


def keys_differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """In what values of one `TypedDict` don't fit another one."""
    problems = []
    for key, (shape, required) in old.items():
        if key not in new:
            problems.append(f"{key!r} was written and is no key now")
        elif not fits(shape, new[key][0]):
            problems.append(f"{key!r} was {text(shape)} and is {text(new[key][0])} now")
        elif new[key][1] and not required:
            problems.append(f"{key!r} could be left out and is required now")
    problems += [f"{key!r} was not there and is required" for key, (_, must) in new.items() if must and key not in old]
    return problems


def base_name(shape: TypeShape) -> str:
    """The name of the type without its parameters."""
    name: str = shape if type(shape) is str else shape[0]
    return {TUPLES: "tuple", KEYS: "dict"}.get(name, name)


def _classes_fit(old: TypeShape, new: TypeShape) -> bool:
    before, now = base_name(old), base_name(new)
    if before == now:
        return True
    if {before, now} == {"int", "float"} or (before, now) == ("bool", "float"):
        return now == "float"
    classes = [_KNOWN.get(name) or class_of(name) for name in (before, now)]
    if None in classes:
        # Values of a class that isn't here are told as such; of an abstract one there are none.
        return ":" in before and ":" in now
    return issubclass(classes[0], classes[1])  # type: ignore[arg-type]


def _parameters_fit(old: TypeShape, new: TypeShape) -> bool:
    before, now = _parameters(old), _parameters(new)
    if _is(new, TUPLE):
        return not _is(old, TUPLES) and (not before or len(before) == len(now)) and all(map(fits, before, now))
    if _is(old, TUPLE) and now:
        return all(fits(one, now[0]) for one in before)
    return len(before) != len(now) or all(map(fits, before, now))


def _parameters(shape: TypeShape) -> list[TypeShape]:
    return list(shape[1:]) if type(shape) is list else []


# -- as text ------------------------------------------------------------------------------------------------------


def text(shape: TypeShape) -> str:
    """As one would write it in an annotation."""
    if type(shape) is str:
        return {"NoneType": "None", ANY: "of any type"}.get(shape, shape.rpartition(":")[2])
    kind, parts = shape[0], shape[1:]
    if kind == UNION:
        return " | ".join(map(text, parts))
    if kind == LITERAL:
        return f"Literal[{', '.join(shown(one, 30) for one in parts)}]"
    if kind == KEYS:
        return f"dict[{', '.join(parts[0])}]"
    if kind == TUPLES:
        return f"tuple[{text(parts[0])}, ...]"
    return f"{kind}[{', '.join(map(text, parts)) or '()'}]"
