"""Python's cyclic garbage collector and state of millions of keys.

A collection looks at every entry of every dict that it covers, and holds the whole process meanwhile: 0.15 s a million
keys. Dicts of state are no garbage as long as they are referred to, and reference counting frees them, so they are
exempt (`gc.freeze`, which takes no time). The price: objects that are alive at such a moment, and become garbage in
cycles later, are not freed before the process ends.
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


def exempt() -> None:
    """Whatever is alive now is left out of all collections to come."""
    gc.freeze()


def exempt_after_young_collection() -> None:
    """The same, without what has become garbage a short while ago."""
    gc.collect(1)
    gc.freeze()


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
