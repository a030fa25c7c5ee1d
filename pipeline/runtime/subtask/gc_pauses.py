"""Collections of Python's garbage collector that do not stop a subtask for long.

A full collection looks at every list, dict and object that is alive, and holds the interpreter meanwhile: 2 s for ten
million lists. Python makes one whenever a quarter has been added, so a subtask that keeps much would stand still again
and again. Reference counts free nearly everything without it; only cycles need it, and what checkpoints keep has none.

So what has survived a collection that took its time is set aside (`gc.freeze`), and later ones look only at what came
since: they stay about as short as that one. Python counts what is made less what is freed, and while a snapshot frees
old values as fast as new ones are made, young objects gather unnoticed: a hundred thousand before the default
thresholds make an older generation due. So it is made due after fewer collections of the younger one.

A source's batch has thousands of records and messages. Python collects for 700 new objects by default, so ten times or
more for such a batch, which took about a twentieth of a keyed sum's CPU time; so the youngest generation is larger.

A cycle that was set aside and is dropped afterwards stays until everything is looked at again, which happens once an
hour at most: so what such cycles take is what an hour makes.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from checkpoint.state import garbage

_LONG: Final = 0.005
"""Seconds that a collection may take before what survived it is set aside."""
_YOUNG: Final = 2_000
"""So many objects more than were freed make a collection of the youngest generation due."""
_YOUNGER: Final = 3
"""So many collections of a generation make one of the next older due; Python's own default is 10."""
_LOOK_AT_ALL: Final = 3600.0
"""Seconds between two full collections that look at everything."""
_FULL: Final = 2


class GcTime:
    """Adds up the time of all collections between `start` and `stop`, in whichever thread they run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._began: float | None = None

    def start(self) -> None:
        gc.callbacks.append(self._collection)

    def stop(self) -> None:
        gc.callbacks.remove(self._collection)

    def _collection(self, phase: str, info: dict[str, int]) -> None:
        now = self._clock()
        if phase == "start":
            self._began = now
        elif self._began is not None:  # else started in the middle of one
            took, self._began = now - self._began, None
            self.seconds += took
            self._collected(info["generation"], took, now)

    def _collected(self, generation: int, took: float, now: float) -> None:
        """A collection has ended."""


class ShortCollections(GcTime):
    """Keeps them short meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._looked_at_all = clock()
        self._set_aside = False
        self._thresholds = gc.get_threshold()
        self._orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Whether to go on. No other queue may be filled in the middle of a collection."""
        self._thread = threading.Thread(target=self._make_small, name="weir-gc", daemon=True)

    def start(self) -> None:
        """Set aside what is there: modules, classes, code."""
        super().start()
        gc.freeze()
        self._set_aside = True
        self._thresholds = gc.get_threshold()
        youngest, *older = self._thresholds
        if youngest > 0:  # else nothing is collected
            gc.set_threshold(max(youngest, _YOUNG), *(min(each, _YOUNGER) for each in older))
        self._thread.start()

    def stop(self) -> None:
        self._orders.put(False)
        self._thread.join()
        gc.set_threshold(*self._thresholds)
        super().stop()
        gc.unfreeze()

    def _make_small(self) -> None:
        """In a thread of its own: a full collection that finds nearly everything set aside, so that Python takes little
        for a quarter more, and the next one comes while there is little to look at."""
        while self._orders.get():
            gc.collect()

    def _collected(self, generation: int, took: float, now: float) -> None:
        if generation == 0:
            return
        if generation != _FULL:
            if took > _LONG:
                garbage.exempt()
                self._set_aside = True
        elif self._set_aside and now - self._looked_at_all >= _LOOK_AT_ALL:
            gc.unfreeze()  # the next one looks at everything; it comes soon, since this one looked at little
            garbage.look_at_all(True)
            self._set_aside = False
            self._looked_at_all = now
        else:
            garbage.look_at_all(False)
            if took > _LONG:
                gc.freeze()
                self._orders.put(True)
            self._set_aside = self._set_aside or took > _LONG
