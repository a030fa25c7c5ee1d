"""What options may be, how they may be called, and what is said of those that are wrong."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import PurePath
from typing import Any, TypeGuard, TypeVar

C = TypeVar("C", bound=type)

Seconds = float | int | timedelta
_LARGEST = 2**1023


def seconds(value: Any, name: str, least: float = 0.0, *, finite: bool = False) -> float:
    """`value` (seconds or `timedelta`) as seconds.

    Raises:
        ValueError: it is no duration, is below `least`, or is infinite and must not be; the message names the option.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if not is_number(value):
        raise ValueError(f"{name} must be seconds or a timedelta, not {value!r}")
    if not value >= least:
        raise ValueError(f"{name} must be at least {least:g} s, not {value:g}")
    if finite and value == math.inf:
        raise ValueError(f"{name} must be a finite number of seconds")
    return float(value)


def whole_number(value: Any, name: str, least: int, most: int | None = None, *, unit: str = "") -> int:
    """`value`, which must be a whole number within these bounds.

    Raises:
        ValueError: it is not; the message names the option.
    """
    if is_whole(value) and value >= least and (most is None or value <= most):
        return value
    if most is not None:
        bounds = f" from {least} to {most}"
    else:
        bounds = f" of {unit}, at least {least}" if unit else f" of at least {least}"
    raise ValueError(f"{name} must be a whole number{bounds}, not {value!r}")


def limit(value: Any, name: str) -> int | None:
    """`value`, which must be a whole number of at least 1, or `None` for no limit.

    Raises:
        ValueError: it is neither; the message names the option.
    """
    if value is None or (is_whole(value) and value >= 1):
        return value
    raise ValueError(f"{name} must be a whole number of at least 1, or None for no limit; not {value!r}")


def flag(value: Any, name: str) -> bool:
    """
    Raises:
        ValueError: `value` is not `True` or `False`; the message names the option.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {value!r}")
    return value


def folder(value: Any, example: str) -> str:
    """A folder's path or URI as text, which may be given as a `pathlib` path.

    Args:
        example: a name for a folder, which the error shows.

    Raises:
        ValueError: `value` is neither, or empty.
    """
    text = str(value) if isinstance(value, PurePath) else value
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f'uri must be a folder such as "/data/{example}" or "s3://bucket/{example}", not {value!r}')
    return text


def one_of(value: Any, name: str, allowed: Iterable[Any]) -> None:
    """
    Raises:
        ValueError: `value` is not among `allowed`; the message names the option.
    """
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, not {value!r}")


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number. `True` and `False` are not, though Python has them as such."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number, whole or not, that a float can hold, and neither `True` nor `False`."""
    return isinstance(value, float) or (is_whole(value) and -_LARGEST < value < _LARGEST)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'interval'?`, or an empty text where no name is near."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def named_options(cls: C) -> C:
    """Have the constructor of a class, its class methods and its public methods say which option was meant, or which
    argument is missing.

    For what is called while a job is put together: each call is looked at.
    """
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name != "__init__":
            continue
        where = cls.__name__ if name == "__init__" else f"{cls.__name__}.{name}"
        if inspect.isfunction(member):
            setattr(cls, name, _checked(member, where))
        elif isinstance(member, classmethod | staticmethod):
            setattr(cls, name, type(member)(_checked(member.__func__, where)))
    return cls


def named_arguments(cls: C) -> C:
    """As `named_options`, of the constructor alone: for classes with methods that run for every record."""
    untyped: Any = cls
    untyped.__init__ = _checked(untyped.__init__, cls.__name__)
    return cls


def _checked(function: Callable[..., Any], where: str) -> Callable[..., Any]:
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return function
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [one.name for one in parameters if one.kind in kinds]
    known = frozenset(names)
    arguments = [_shown(one) for one in parameters if one.name not in ("self", "cls")]

    @functools.wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        if not known.issuperset(options):
            name = next(name for name in options if name not in known)
            shown = [one for one in names if one not in ("self", "cls")]
            hint = nearest(name, shown) or "."
            raise TypeError(f"{where} has no option {name!r}{hint} Its options: {', '.join(shown) or 'none'}")
        try:
            return function(*args, **options)
        except TypeError:
            try:
                signature.bind(*args, **options)
            except TypeError as error:
                called = f"{where.rpartition('.')[2]}({', '.join(arguments)})"
                raise TypeError(f"{where}: {error}; it is called as {called}") from None
            raise

    return checked


def _shown(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    return f"{parameter.name}={parameter.default!r}"
