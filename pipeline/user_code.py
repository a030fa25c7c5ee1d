"""What can be seen of a user's function without calling it."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to be awaited, or to be iterated by `async for`."""
    plain = _plain(function)
    return inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether calling it only makes a generator."""
    return inspect.isgeneratorfunction(_plain(function))


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Whether it can be called with so many arguments by place. True where that can't be seen."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def returns_nothing(function: Callable[..., Any]) -> bool:
    """Whether it returns `None` wherever it returns, and yields nothing. False where that can't be seen."""
    if _plain(function) is print:
        return True
    code = _code(function)
    if code is None or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return False
    returned = _returned(code)
    return bool(returned) and all(returned)


def loses_return(function: Callable[..., Any]) -> bool:
    """Whether it is a generator that returns values, too, which nobody gets."""
    code = _code(function)
    return code is not None and bool(code.co_flags & inspect.CO_GENERATOR) and not all(_returned(code))


def _returned(code: CodeType) -> list[bool]:
    """Of each return, whether what it returns is the constant `None`."""
    found: list[bool] = []
    last: dis.Instruction | None = None
    for one in dis.get_instructions(code):
        if one.opname == "RETURN_VALUE":
            found.append(last is not None and last.opname == "LOAD_CONST" and last.argval is None)
        elif one.opname == "RETURN_CONST":
            found.append(one.argval is None)
        last = one
    return found


def _code(function: Callable[..., Any]) -> CodeType | None:
    return getattr(_plain(function), "__code__", None)


def _plain(function: Any) -> Any:
    """The function behind bound methods, partials and objects that can be called."""
    while True:
        if isinstance(function, partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__code__") or isinstance(function, type) or inspect.isbuiltin(function):
            return function
        else:
            call = inspect.getattr_static(type(function), "__call__", None)
            return call if inspect.isfunction(call) else function
