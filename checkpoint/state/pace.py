"""How a thread that makes bytes of Python objects shares the interpreter with the task thread, which goes first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_SLICE: Final = 8e-4
"""Seconds of work after which the other thread gets its turn. Less than Python's interval of switching
(`pipeline.runtime.subtask.process`), so that it is not interrupted."""
_SHORT: Final = 1e-4
"""Seconds; enough for a thread that waits to wake up and take the interpreter lock."""
_LONG: Final = 4e-3
"""Seconds that a thread gets that uses them. With what it takes to get the interpreter back, it has five sixths."""
_FIRST: Final = 3e-3
"""Seconds of work before the first pause: what is done by then is not worth one."""
_AT_ONCE: Final = 0.01
"""Seconds of work with short pauses, whoever uses the interpreter. That is all that small state takes: long pauses
would delay its checkpoint by more than they leave to the task."""
_SHARE: Final = 6
"""After a pause the work goes on for a share of one in so many of it, if that is longer: where there is no CPU to be
had, pauses take much longer than asked for."""
_KEPT: Final = 3e-4
"""Seconds beyond a pause for which the interpreter was not to be had: another thread was using it."""


class Pace:
    """Of one piece of work. Pauses are long while another thread of the process uses the interpreter, else short, so
    that work beside a task that waits takes no longer than it must; and short while the work may soon be done."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._pause = _SHORT
        self._began = clock()
        """When the work went on."""
        self._worked = 0.0
        """Seconds of work before that."""
        self._ends = self._began + _FIRST

    def give_way(self) -> None:
        """Called again and again between pieces of the work; pauses where it is time to."""
        now = self._clock()
        if now < self._ends:
            return
        self._sleep(self._pause)
        self._worked += now - self._began
        self._began = woken = self._clock()
        used = woken - now - self._pause > _KEPT
        self._pause = _LONG if used and self._worked >= _AT_ONCE else _SHORT
        self._ends = woken + max(_SLICE, (woken - now) / _SHARE)
