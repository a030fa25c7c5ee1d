"""Windows of one size that overlap, made of panes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline.aggregates import Aggregation
from pipeline.by_event_time import LATE
from pipeline.operators import OperatorContext
from pipeline.windows.durations import in_time
from pipeline.windows.folding import Folding
from pipeline.windows.kinds import Sliding
from pipeline.windows.operator import MOST_AT_ONCE, Options, TimeWindows


class SlidingWindows(TimeWindows):
    """`windows` has the accumulators of each pane by its begin, as long as a window with it is open.

    A pane sets one timer, for the first of its windows that has not fired. Each window that fires sets the one of the
    next window, if that has any of its panes.
    """

    _frees = ("a pane", "the end of the last window with it")

    def __init__(self, window: Sliding, aggregation: Aggregation, options: Options) -> None:
        super().__init__(window.shown, aggregation, options)
        self._panes = window.panes()
        self._last = [0, 0]
        """Bounds of the pane that the last record was in: the next one is mostly in the same."""
        self._folding = Folding(self._panes, aggregation.merge)

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any] | None:
        at = ctx.timestamp
        if at is None:
            self.refuse(value, ctx)
        pane, end = self._last
        if not pane <= at < end:
            pane = self._panes.pane(at)
            self._last[:] = pane, pane + self._panes.width
        panes = self.windows.value
        before = None if panes is None else panes.get(pane)
        if before is None:
            if panes is not None:
                panes = self.where_to_open(panes)
                before = panes.get(pane)
            if before is None:
                if not self._opens(pane, ctx):
                    ctx.side_output(LATE, value)
                    return None
                before = self._nothing
                if panes is None:
                    panes = self.windows.value = {}
        panes[pane] = self._add(before, value, at)
        if pane < self._folding.until:
            self._folding.forget(self.windows.store.key)
        return None if self._only_final else self._changed(pane, panes, ctx)

    def _opens(self, pane: int, ctx: OperatorContext) -> bool:
        """Whether one of a pane's windows is open. Sets the timers that it needs, if one is."""
        reached, last = ctx.key_watermark, self._panes.last_end(pane)
        if reached is None:
            ctx.timer(in_time(self._panes.first_end(pane) - 1))
            return True
        if reached >= self.closes(last):
            return False
        for end in self._fired(pane, reached):
            ctx.timer(self.closes(end))
        for end in self._panes.ends(pane, reached + 2, last)[:1]:
            ctx.timer(in_time(end - 1))
        return True

    def _fired(self, pane: int, reached: int) -> range:
        """The ends of a pane's windows that have fired and are open."""
        return self._panes.ends(pane, reached - self._lateness + 2, reached + 1)

    def _changed(self, pane: int, panes: MutableMapping[int, Any], ctx: OperatorContext) -> Iterator[Any]:
        reached = ctx.key_watermark
        if reached is not None:
            yield from self._results(self._fired(pane, reached), panes, None, ctx)
        if reached is None or reached < self._panes.last_end(pane) - 1:
            yield from self.update(pane, ctx)

    def leave(self, ctx: OperatorContext) -> None:
        self._folding.forget(self.windows.store.key)
        super().leave(ctx)

    def results_of(self, updates: Iterable[Any], ctx: OperatorContext) -> Iterable[Any]:
        panes, reached = self.opened(), ctx.key_watermark
        assert panes is not None
        ends: set[int] = set()
        for pane in updates:
            least = self._panes.first_end(pane) if reached is None else reached + 2
            ends.update(self._panes.ends(pane, least, self._panes.last_end(pane)))
        yield from self._results(sorted(ends), panes, None, ctx)

    def fire(self, at: int, ctx: OperatorContext) -> Iterable[Any]:
        panes, reached = self.opened(), ctx.key_watermark
        assert reached is not None
        assert panes is not None
        at_once = len(panes) * (self._panes.size // self._panes.slide + 1) <= MOST_AT_ONCE
        if at == MAX_WATERMARK or (at_once and ctx.watermark == MAX_WATERMARK):
            yield from self._end(at, panes, ctx)
            return
        if self._lateness and self._panes.is_end(at - self._lateness + 1):
            yield from self._close(at - self._lateness + 1, panes, ctx)
        if self._panes.is_end(at + 1):
            yield from self._fire(at + 1, panes, ctx)
        if not panes:
            self.leave(ctx)

    def _fire(self, end: int, panes: MutableMapping[int, Any], ctx: OperatorContext) -> Iterator[Any]:
        slide, width = self._panes.slide, self._panes.width
        staying = range(end - self._panes.size + slide, end, width)
        # A key of which little is known is asked for its panes, and not for each that it may have.
        few, many = (panes, staying) if len(panes) < len(staying) else (staying, panes)
        if (end - width in panes and staying) or any(map(many.__contains__, few)):
            ctx.timer(in_time(end - 1 + slide))
        if self._lateness == 0:
            yield from self._close(end, panes, ctx)
            return
        # Also where it might close at once: windows that end earlier still need its panes, and close in order.
        ctx.timer(self.closes(end))
        reached = ctx.key_watermark
        assert reached is not None
        if reached < self.closes(end):
            yield from self._results((end,), panes, False, ctx)

    def _close(self, end: int, panes: MutableMapping[int, Any], ctx: OperatorContext) -> Iterator[Any]:
        yield from self._results((end,), panes, True, ctx)
        for pane in self._panes.ending_with(end):
            if panes.pop(pane, None) is not None:
                self.forget(pane)

    def _end(self, at: int, panes: MutableMapping[int, Any], ctx: OperatorContext) -> Iterator[Any]:
        """At the end of event time all that is open closes, unless it is more than a barrier may wait for."""
        least = at + 1 - self._lateness
        ends = {end for pane in panes for end in self._panes.ends(pane, least, self._panes.last_end(pane))}
        yield from self._results(sorted(ends), panes, True, ctx)
        for pane in panes:
            self.forget(pane)
        panes.clear()
        self.leave(ctx)

    def _results(
        self, ends: Iterable[int], panes: MutableMapping[int, Any], final: bool | None, ctx: OperatorContext
    ) -> Iterator[Any]:
        """`final`: `None` = it isn't, and the window's panes go on changing."""
        key = None if final is None else self.windows.store.key
        for end in ends:
            accumulators = self._folding.merged(end, panes, key)
            if accumulators is not None:
                yield self.result(end - self._panes.size, end, accumulators, bool(final), ctx)
