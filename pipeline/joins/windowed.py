"""`a.join(b, window=Tumbling(60))`: pairs of records that are in one window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from heapq import merge
from typing import Any, ClassVar

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.state import ValueState
from pipeline.errors import PipelineError
from pipeline.joins.cuts import Due, cut_of
from pipeline.joins.options import LEFT, RIGHT, How, Select, checked_how, output_of, pair, timestamp_of, too_late
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.paged.timeline import Timeline
from pipeline.windows import Window


class WindowJoin(KeyedOperator):
    """Joins each left record with each right one that is in the same window, for every window that has both.

    All results of a window come when it closes. A timer is for one window, so that a barrier waits for no more, unless
    event time has ended.
    """

    needs_event_time: ClassVar[str] = "joins the records of windows"
    _inputs = (LEFT, RIGHT)
    _timers_can_be_left_out = False  # one lets many records go

    left: ValueState[Any] = ValueState()
    right: ValueState[Any] = ValueState()

    def __init__(self, window: Window, how: How = "inner", select: Select | None = None, who: str = "join") -> None:
        """
        Args:
            who: names the join in errors.

        Raises:
            PipelineError: an argument has a value that it can't have.
        """
        self._who = who
        self._how = checked_how(who, how)
        self._cut = cut_of(who, window)
        self._window = window.shown
        self._output = output_of(who, select)

    def open(self, ctx: OperatorContext) -> None:
        self._lefts, self._rights = self._sides = [Timeline(one) for one in (self.left, self.right)]

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        return self._keep(LEFT, self._lefts, value, ctx)

    def process_connected(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        return self._keep(RIGHT, self._rights, value, ctx)

    def on_timer(self, timestamp: int, ctx: OperatorContext) -> Iterable[Any]:
        watermark, after = ctx.key_watermark, timestamp - 1
        assert watermark is not None
        while True:
            times = merge(*(one.times() for one in self._sides))
            earliest = next(times, None)
            if earliest is None:
                return
            due = self._cut.due(earliest, times, after)
            if due.closes > watermark or (after >= timestamp and watermark != MAX_WATERMARK):
                ctx.timer(due.closes)
                return
            lefts, rights = (_records(one, due) for one in self._sides)
            for side in self._sides:
                side.drop(side.count_until(due.frees - 1))
            after = max(timestamp, due.last)
            ctx.emit_at(due.closes)
            yield from self._results(lefts, rights, due, ctx)

    def snapshot(self, checkpoint_id: int) -> Any:
        return {"window": self._window}

    def restore(self, state: Any) -> None:
        if state.get("window") != self._window:
            raise PipelineError(
                f"{self._who}: the checkpoint's state is that of a join by {state.get('window', 'within')}, whose "
                f"timers are set, and the step has {self._window} now: give the step another id, so that it begins anew"
            )

    def _keeps(self) -> tuple[str, ...]:
        return (f"a record of either stream is kept until the watermark passes {self._cut.frees}",)

    # -- inside -------------------------------------------------------------------------------------------------

    def _keep(self, side: str, kept: Timeline, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        at = timestamp_of(self._who, side, value, ctx)
        closes = self._cut.closes(at, ctx.key_watermark)
        if closes is None:
            too_late(side, value, ctx)
            return ()
        if kept.insert(at, value):
            ctx.timer(closes)  # those of later windows are set one by one
        return ()

    def _results(self, lefts: list[Any], rights: list[Any], due: Due, ctx: OperatorContext) -> Iterator[Any]:
        key = ctx.key
        output = partial(_of_window, due) if self._output is pair else self._output
        for left in lefts:
            for right in rights:
                yield output(key, left, right)
        if not rights and self._how in ("left", "full"):
            for left in lefts:
                yield output(key, left, None)
        if not lefts and self._how in ("right", "full"):
            for right in rights:
                yield output(key, None, right)


def _of_window(due: Due, key: Any, left: Any, right: Any) -> dict[str, Any]:
    """A result without `select`."""
    return {"key": key, "start": due.first, "end": due.end, LEFT: left, RIGHT: right}


def _records(of: Timeline, due: Due) -> list[Any]:
    return [one for found in of.near(due.first, due.last) for one in found.columns[1][found.first : found.stop]]
