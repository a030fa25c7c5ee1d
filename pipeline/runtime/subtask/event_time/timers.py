"""Fires the timers of a subtask's keyed operator."""

from __future__ import annotations

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.state import KeyedBackend
from checkpoint.state.timers import Timer
from pipeline.runtime.subtask.chain import Chain


class TimerFiring:
    """Sets key, timestamp and watermark for `on_timer`. Whoever calls it takes the key back once no more are fired."""

    def __init__(self, chain: Chain, backend: KeyedBackend) -> None:
        """`backend`: of the chain's head."""
        assert chain.on_timer is not None
        self._on_timer = chain.on_timer
        self._record = chain.record
        self._context = chain.contexts[chain.head]
        self._head = chain.time.head
        self._backend = backend

    def due(self, reached: int | None, wall_ms: int) -> bool:
        """Whether a timer is due.

        Args:
            reached: event time in milliseconds, if there is any.
            wall_ms: processing time in milliseconds.
        """
        backend = self._backend
        return (reached is not None and backend.event_timers.due(reached)) or backend.processing_timers.due(wall_ms)

    def fire_event_timer(self, reached: int) -> bool:
        """Fire one that is due; whether there was one."""
        timers = self._backend.event_timers
        timer = timers.pop(reached)
        if timer is None:
            return False
        if reached == MAX_WATERMARK:
            self._ends(timer)
        self._backend.event_clock.fires(timer.at, reached)
        try:
            self._fire(timer, timer.at, reached)
        finally:
            timers.ending = False
        return True

    def fire_processing_timer(self, wall_ms: int) -> bool:
        """Fire one that is due; whether there was one."""
        clock = self._backend.processing_clock
        timer = self._backend.processing_timers.pop(wall_ms)
        if timer is None:
            clock.all_fired()
            return False
        clock.fires(timer.at)
        self._fire(timer, None, self._head.watermark)
        return True

    def passed(self, watermark: int | None) -> None:
        """It was passed on: all timers up to it have fired."""
        self._backend.event_timers.over = watermark == MAX_WATERMARK

    def _ends(self, timer: Timer) -> None:
        """A timer fires since event time has ended. Time is taken to go on behind the data for as long as timers were
        set ahead, so that a queue whose timers set each other gets empty; no longer, so that periodic ones end."""
        timers = self._backend.event_timers
        timers.ending = timers.over = True
        timers.fires = timer.at
        reached = self._head.watermark
        if reached is not None and reached != MAX_WATERMARK:
            timers.within = reached + timers.reach

    def _fire(self, timer: Timer, timestamp: int | None, watermark: int | None) -> None:
        record = self._record
        self._backend.set_current_key(timer.key, timer.group)
        record.key_bytes, record.key_group, record.timestamp = timer.key, timer.group, timestamp
        self._context.watermark = watermark  # steps behind the head have not got it yet
        self._on_timer(timer.at)
