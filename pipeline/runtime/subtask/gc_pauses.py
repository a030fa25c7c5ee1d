"""Full collections of Python's garbage collector that do not stop a subtask for long.

A full collection looks at every list, dict and object that is alive, and holds the interpreter meanwhile: 2 s for ten
million lists. Python makes one whenever a quarter has been added, so a subtask that keeps much would stand still again
and again. Reference counts free nearly everything without it; only cycles need it, and what checkpoints keep has none.

So what has survived a full collection that took its time is set aside (`gc.freeze`), and later ones look only at what
came since: they stay about as short as that one. A cycle that was set aside and is dropped afterwards stays until
everything is looked at again, which happens once an hour at most: so what such cycles take is what an hour makes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

_LONG: Final = 0.01
"""Seconds that a full collection may take before what survived it is set aside."""
_LOOK_AT_ALL: Final = 3600.0
"""Seconds between two full collections that look at everything."""
_FULL: Final = 2


class ShortCollections:
    """Keeps full collections short between `start` and `stop`, in whichever thread they run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: float | None = None
        self._looked_at_all = clock()
        self._set_aside = False

    def start(self) -> None:
        """Set aside what is there: modules, classes, code."""
        gc.callbacks.append(self._collection)
        gc.freeze()
        self._set_aside = True

    def stop(self) -> None:
        gc.callbacks.remove(self._collection)
        gc.unfreeze()

    def _collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != _FULL:
            return
        now = self._clock()
        if phase == "start":
            self._began = now
        elif self._began is not None:  # else started in the middle of one
            took, self._began = now - self._began, None
            if self._set_aside and now - self._looked_at_all >= _LOOK_AT_ALL:
                gc.unfreeze()  # the next one looks at everything; it comes soon, since this one looked at little
                self._set_aside = False
                self._looked_at_all = now
            elif took > _LONG:
                gc.freeze()
                self._set_aside = True
