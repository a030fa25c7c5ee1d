"""Waits of the main thread that a signal always reaches.

Python runs a signal's handler in the main thread, between two of its instructions. A signal that comes after the last
look for one and before a lock blocks is noted, and handled only once that lock is free: with a wait that has no end,
never. https://docs.python.org/3/library/signal.html#execution-of-python-signal-handlers
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

_LOOK: Final = 0.2
"""Seconds after which a wait looks for signals that it has missed."""
_T = TypeVar("_T")


def await_event(event: threading.Event, seconds: float | None = None) -> bool:
    """Whether it was set within `seconds`; `None`: wait until it is."""
    return _until(event.wait, bool, seconds)


def await_answer(answers: queue.SimpleQueue[_T], seconds: float | None = None) -> _T:
    """The next of them.

    Raises:
        queue.Empty: none came within `seconds`.
    """

    def get(timeout: float) -> list[_T]:
        try:
            return [answers.get(timeout=timeout)]
        except queue.Empty:
            return []

    if found := _until(get, bool, seconds):
        return found[0]
    raise queue.Empty


def _until(wait: Callable[[float], _T], done: Callable[[_T], bool], seconds: float | None) -> _T:
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        left = _LOOK if until is None else until - time.monotonic()
        result = wait(max(0.0, min(left, _LOOK)))
        if done(result) or left <= 0:
            return result
