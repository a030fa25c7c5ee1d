"""What user code may not return where its answer counts, or what it does: code that has yet to run.

A function with a `yield`, or an `async` one, is refused as the step is added. One that returns what such a function
makes, as `lambda order: allowed(order)` may, is only seen when it is called; as an answer it would always be true. So
are `map(…)` and the like, and a function that wasn't called: `lambda order: order.is_paid`.
"""

from __future__ import annotations

from functools import partial
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    MethodWrapperType,
)
from typing import Any, Final

from checkpoint.errors import Explained

_FUNCTIONS: Final = frozenset({FunctionType, MethodType, BuiltinFunctionType, MethodWrapperType, partial})
_ITERATORS: Final = frozenset({GeneratorType, AsyncGeneratorType, map, filter, zip, enumerate, reversed})
LAZY: Final = frozenset({CoroutineType}) | _ITERATORS
NO_ANSWER: Final = LAZY | _FUNCTIONS


class YetToRun(Explained, TypeError):
    """A function has returned what has yet to run. The message says of which step, and what to do."""


def check_has_run(who: str, returned: Any) -> None:
    """
    Raises:
        YetToRun: it has yet to run.
    """
    kind = type(returned)
    if kind not in LAZY:
        return
    if kind is CoroutineType:
        returned.close()
        raise YetToRun(f"{who} returned a coroutine, and nothing would await it: call no async function there")
    what = "generator" if kind in (GeneratorType, AsyncGeneratorType) else kind.__name__
    raise YetToRun(f"{who} returned a {what}, which has yet to run: use any(…) or all(…) for an answer, or a loop")


def check_answer(who: str, answer: Any) -> None:
    """
    Raises:
        YetToRun: it has yet to run, or is a function that has yet to be called.
    """
    kind = type(answer)
    if kind in _FUNCTIONS:
        name = getattr(answer, "__name__", kind.__name__)
        raise YetToRun(f"{who} returned the function {name}, which would always be true: call it, {name}(…)")
    check_has_run(who, answer)
