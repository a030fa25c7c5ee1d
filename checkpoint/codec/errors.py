"""What the codec's errors say: which value it is, where it sits, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from checkpoint.errors import Explained
from checkpoint.shown import shown


class EncodingError(Explained, TypeError):
    """A value that can't travel or be kept; the message names its type, the path to it and what to do."""


class DecodingError(ValueError):
    """Bytes that no version of this codec wrote."""


class UnfitClass(Explained, LookupError):
    """Bytes hold a value of a class that isn't here, or that has other fields now; the message names both."""


class UnknownTimeZone(LookupError):
    """A value holds a time zone that this machine has no data for."""


PLAIN: Final = (
    "None, bool, int, float, str, bytes, Decimal, UUID, date, datetime, time, timedelta, or a list, tuple, set or dict "
    "of these, or of dataclasses, Structs, enums and named tuples"
)
EQUAL_NOW: Final = (
    "keys or members of it are equal that were not when they were put: they have changed since, and one of them would "
    "be lost"
)
_CONTAINERS: Final = frozenset({list, tuple, dict, set, frozenset})


def explained(
    value: Any,
    root: str,
    problem: Callable[[Any], str | None],
    cause: BaseException,
    limits: tuple[int, int],
    parts: Callable[[Any], dict[str, Any]] = lambda item: {},
) -> EncodingError:
    """The error to raise for a value that could not be encoded.

    Args:
        root: what to call the value.
        problem: what is wrong with an item itself, apart from its content; `None` if nothing is.
        limits: how deep containers, and those among them that msgpack has no type for, may nest.
        parts: what an item without a problem holds by attributes.
    """
    for path, item, depth, extensions in _walk(value, root, problem, parts):
        if depth > limits[0] or extensions > limits[1]:
            deep = f"{limits[0]} levels" if depth > limits[0] else f"{limits[1]} levels of tuples and sets"
            return EncodingError(f"{root} nests deeper than {deep}, or contains itself; flatten it")
        wrong = problem(item)
        if wrong is not None:
            return EncodingError(f"can't encode {type(item).__qualname__} at {path}: {wrong}")
    return EncodingError(f"can't encode {root} of type {type(value).__qualname__}: {cause}")


def _walk(
    value: Any, root: str, problem: Callable[[Any], str | None], parts: Callable[[Any], dict[str, Any]]
) -> Iterator[tuple[str, Any, int, int]]:
    """Every item with the path to it and the containers around it, containers before their content."""
    pending: list[tuple[str, Any, int, int]] = [(root, value, 0, 0)]
    while pending:
        path, item, depth, extensions = pending.pop()
        kind = type(item)
        inside = depth + (kind in _CONTAINERS), extensions + (kind in (tuple, set, frozenset))
        yield path, item, *inside
        if kind is list or kind is tuple:
            pending.extend((f"{path}[{i}]", item[i], *inside) for i in range(len(item) - 1, -1, -1))
        elif kind is set or kind is frozenset:
            pending.extend((f"a member of {path}", member, *inside) for member in item)
        elif kind is dict:
            for key, content in reversed(item.items()):
                pending.append((f"{path}[{shown(key)}]", content, *inside))
                pending.append((f"key {shown(key)} of {path}", key, *inside))
        elif problem(item) is None and (attributes := parts(item)):
            for name, content in reversed(attributes.items()):
                pending.append((f"{path}.{name}", content, 1, extensions + 1))


_UNRUN: Final = {
    GeneratorType: "use list(x), or flat_map for any number of records",
    CoroutineType: "await it; map_async does",
    AsyncGeneratorType: "collect what it gives with async for, in map_async",
}


def advice(item: Any) -> str:
    """What to do about an item of a type that isn't carried."""
    kind = type(item)
    own = getattr(kind, "encoding_advice", None)
    if own is not None:
        return str(own)
    if kind is memoryview:
        return "use bytes(x)"
    if isinstance(item, datetime):
        return "use .to_pydatetime() or an int of milliseconds"
    if kind in _UNRUN:
        return f"a {kind.__name__} is no value but code that has yet to run: {_UNRUN[kind]}"
    if kind.__module__.partition(".")[0] == "numpy":
        return "use .item() for a scalar, .tolist() for an array"
    for base in (dict, list, tuple, str, bool, int, float, bytes, bytearray, set, frozenset):
        if isinstance(item, base):
            return f"subclasses lose their type on the way; use {base.__name__}(x)"
    return f"convert it to plain values: {PLAIN}; or let it be pickled, with pipeline.register_pickle(the class)"
