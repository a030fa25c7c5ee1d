"""What can be seen of a user's function without calling it."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any, Final

_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_GIVE_NOTHING: Final = frozenset(
    {"side_output", "timer", "processing_timer", "delete_timer", "delete_processing_timer", "clear"}
)
"""Methods that return nothing."""


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
        # What a decorator wraps may take more than what is called: it may give an argument itself.
        signature = inspect.signature(function, follow_wrapped=False)
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
    return code is not None and bool(code.co_flags & inspect.CO_GENERATOR) and not all(_returned(code, _only_leaves))


def _returned(code: CodeType, counts_as_none: Callable[[list[dis.Instruction]], bool] | None = None) -> list[bool]:
    """Whether a return gives the constant `None`, for each return.

    Args:
        counts_as_none: given the instructions of a return statement, whether what it returns is no loss.
    """
    found: list[bool] = []
    instructions = list(dis.get_instructions(code))
    for last, one in zip([None, *instructions], instructions, strict=False):
        if one.opname == "RETURN_CONST":
            found.append(one.argval is None)
        elif one.opname == "RETURN_VALUE":
            # Where one jumps to it, as in `return x or None`, what is returned comes from elsewhere, too.
            nothing = (
                last is not None and last.opname == "LOAD_CONST" and last.argval is None and not one.is_jump_target
            )
            found.append(nothing or (counts_as_none is not None and counts_as_none(_statement(instructions, one))))
    return found


def _statement(instructions: list[dis.Instruction], end: dis.Instruction) -> list[dis.Instruction]:
    """The instructions of what lies within the place of `end` in the source; only `end` where places aren't known."""
    place = end.positions
    if place is None or None in place:
        return [end]
    begin, finish = (place.lineno, place.col_offset), (place.end_lineno, place.end_col_offset)
    return [
        one
        for one in instructions
        if one.positions is not None
        and None not in one.positions
        and begin <= (one.positions.lineno, one.positions.col_offset)
        and (one.positions.end_lineno, one.positions.end_col_offset) <= finish
    ]


def _only_leaves(statement: list[dis.Instruction]) -> bool:
    """Whether a generator's return statement does something and leaves, such as `return ctx.side_output("late", x)`,
    or hands over to another generator, as `return (yield from others)`."""
    return any(
        one.opname in ("YIELD_VALUE", "SEND") or (one.opname in _ATTRIBUTES and one.argval in _GIVE_NOTHING)
        for one in statement
    )


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
