"""Windows of one size, one behind the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline.aggregates import Aggregation
from pipeline.by_event_time import LATE
from pipeline.operators import OperatorContext
from pipeline.windows.durations import in_time
from pipeline.windows.kinds import Tumbling
from pipeline.windows.operator import Options, TimeWindows


class TumblingWindows(TimeWindows):
    """`windows` has the accumulators of each open window by its begin."""

    _frees = ("a window", "its end")

    def __init__(self, window: Tumbling, aggregation: Aggregation, options: Options) -> None:
        super().__init__(window.shown, aggregation, options)
        grid = window.grid()
        self._bounds = grid.bounds
        self._knows = grid.knows
        self._last = [0, 0]
        """Bounds of the window that the last record was in: the next one is mostly in the same."""

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any] | None:
        at = ctx.timestamp
        if at is None:
            self.refuse(value, ctx)
        start, end = self._last
        if not start <= at < end:
            self._last[:] = start, end = self._bounds(at)
        windows = self.windows.value
        before = None if windows is None else windows.get(start)
        if before is None:
            if windows is not None:
                windows = self.where_to_open(windows)
                before = windows.get(start)
            if before is None:
                if not self._opens(end, ctx):
                    ctx.side_output(LATE, value)
                    return None
                before = self._nothing
                if windows is None:
                    windows = self.windows.value = {}
        windows[start] = after = self._add(before, value, at)
        if self._only_final:
            return None
        reached = ctx.key_watermark
        if reached is None or reached < end - 1:
            return self.update(start, ctx)
        return None if reached >= self.closes(end) else (self.result(start, end, after, False, ctx),)

    def _opens(self, end: int, ctx: OperatorContext) -> bool:
        """Whether a window may open still. Sets its next timer, if it may."""
        reached, closes = ctx.key_watermark, self.closes(end)
        if reached is not None and reached >= closes:
            return False
        ctx.timer(closes if reached is not None and reached >= end - 1 else in_time(end - 1))
        return True

    def fire(self, at: int, ctx: OperatorContext) -> Iterable[Any]:
        windows, reached = self.opened(), ctx.key_watermark
        assert reached is not None
        assert windows is not None
        for start, end in self._due(at, windows):
            if reached >= self.closes(end):
                yield self.result(start, end, windows.pop(start), True, ctx)
                self.forget(start)
            else:
                ctx.timer(self.closes(end))
                if at == end - 1:
                    yield self.result(start, end, windows[start], False, ctx)
        if not windows:
            self.leave(ctx)

    def _due(self, at: int, windows: Mapping[int, Any]) -> list[tuple[int, int]]:
        """Bounds of the windows that a timer is for: they fire or close."""
        if at == MAX_WATERMARK:
            return [self._bounds(start) for start in sorted(windows)]
        due = []
        for last in dict.fromkeys((at - self._lateness, at)):
            if self._knows(last):
                start, end = self._bounds(last)
                if end - 1 == last and start in windows:
                    due.append((start, end))
        return due

    def results_of(self, updates: Iterable[Any], ctx: OperatorContext) -> Iterable[Any]:
        windows, reached = self.opened(), ctx.key_watermark
        assert windows is not None
        for start in updates:
            _, end = self._bounds(start)
            if start in windows and (reached is None or reached < end - 1):
                yield self.result(start, end, windows[start], False, ctx)
