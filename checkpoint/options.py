"""Options that are misspelt and arguments that are left out: errors that say what to write."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


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
