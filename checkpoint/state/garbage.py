"""Python's cyclic garbage collector and state of millions of keys.

A collection looks at every entry of every dict that it covers, and holds the whole process meanwhile: 0.1 s a million
keys. Also the most frequent ones do, for dicts that are new: after a barrier those are all that were copied on their
first change. Dicts of state are no garbage as long as they are referred to, and reference counting frees them, so they
are left out (`gc.freeze`, which takes no time).

That leaves out whatever else is alive, too; cycles that become garbage later stay until everything is looked at again
(`pipeline.runtime.subtask.gc_pauses`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LARGE_STATE: Final = 100_000
"""Entries of one subtask. A collection of fewer is over in some milliseconds."""
LARGE_MAP: Final = 1_000
"""Entries of one dict."""

_looking_at_all = False


def exempt() -> None:
    """Whatever is alive now is left out of collections to come."""
    if not _looking_at_all:
        gc.freeze()


def look_at_all(now: bool) -> None:
    """Whether the next full collection is to look at everything, so that nothing may be left out until it has."""
    global _looking_at_all
    _looking_at_all = now


@contextmanager
def paused() -> Iterator[None]:
    """No collections, while much is made that stays."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
