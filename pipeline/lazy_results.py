"""What user code may not return where its answer counts, or what it does: code that has yet to run.

A function with a `yield`, or an `async` one, is refused as the step is added. One that returns what such a function
makes, as `lambda order: allowed(order)` may, is only seen when it is called; as an answer it would always be true.
"""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from checkpoint.errors import Explained

LAZY: Final = frozenset({GeneratorType, CoroutineType, AsyncGeneratorType})


class YetToRun(Explained, TypeError):
    """A function has returned a generator or a coroutine. The message says of which step, and what to do."""


def check_has_run(who: str, returned: Any) -> None:
    """
    Raises:
        YetToRun: it is a generator or a coroutine.
    """
    kind = type(returned)
    if kind not in LAZY:
        return
    if kind is CoroutineType:
        returned.close()
        raise YetToRun(f"{who} returned a coroutine, and nothing would await it: call no async function there")
    raise YetToRun(f"{who} returned a generator, which has yet to run: use any(…) or all(…) for an answer, or a loop")
