"""How long Python's garbage collector has held this process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


class GcTime:
    """Adds up the time of all collections between `start` and `stop`, in any thread."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self.seconds = 0.0
        self._clock = clock
        self._began: float | None = None

    def start(self) -> None:
        gc.callbacks.append(self._collection)

    def stop(self) -> None:
        gc.callbacks.remove(self._collection)

    def _collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = self._clock()
        elif self._began is not None:  # else started in the middle of one
            self.seconds += self._clock() - self._began
            self._began = None
