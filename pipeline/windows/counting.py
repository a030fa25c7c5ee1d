"""Windows that go by the number of records, and windows without an end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from checkpoint.counted import counted
from checkpoint.state import ValueState
from pipeline.aggregates import Aggregation
from pipeline.errors import PipelineError
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.windows.durations import FOR_EVER, in_seconds
from pipeline.windows.kinds import CountWindow, Global


class _Untimed(KeyedOperator):
    """Its windows say by `start` and `end` from when their records are: the lowest timestamp, and a millisecond behind
    the highest; `None` if one has no timestamp."""

    windows: ValueState[Any] = ValueState()

    def __init__(self, window: str, aggregation: Aggregation) -> None:
        self._window = window
        self._aggregation = aggregation
        self._nothing = (aggregation.create(), None, None)

    def added(
        self, before: tuple[Any, Any, Any], value: Any, ctx: OperatorContext, first: bool
    ) -> tuple[Any, Any, Any]:
        """Accumulators, lowest and highest timestamp, with one more record."""
        accumulators, low, high = before
        at = ctx.timestamp
        accumulators = self._aggregation.add(accumulators, value, at)
        if first:
            return accumulators, at, at
        return (accumulators, *_around((low, high), (at, at)))

    def merged(self, a: tuple[Any, Any, Any], b: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        return (self._aggregation.merge(a[0], b[0]), *_around(a[1:], b[1:]))

    def result(self, window: tuple[Any, Any, Any], final: bool, ctx: OperatorContext) -> dict[str, Any]:
        accumulators, low, high = window
        if high is not None:
            ctx.emit_at(high)
        end = None if high is None else high + 1
        return {"key": ctx.key, "start": low, "end": end, "final": final, **self._aggregation.result(accumulators)}

    def snapshot(self, checkpoint_id: int) -> Any:
        return {"window": self._window, "aggregates": self._aggregation.layout}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state["window"] != self._window:
            raise PipelineError(
                f"the checkpoint has windows {state['window']}, and the step has {self._window} now: what has been "
                "counted can't be cut anew. Give the step another id, so that it begins anew, and leave the old state "
                "behind"
            )
        self._aggregation.check_layout(f"windows {self._window}", state["aggregates"])


class CountWindows(_Untimed):
    """`windows` is `[records in the last pane, panes that are full since the last result, panes…]`, the oldest pane
    first. A pane has as many records as windows and slides have as greatest common divisor."""

    def __init__(self, window: CountWindow, aggregation: Aggregation) -> None:
        super().__init__(window.shown, aggregation)
        self._slide = window.slide_or_size
        self._pane = window.pane
        self._panes = window.size // self._pane
        self._until = self._slide // self._pane
        """Panes from one result to the next."""

    def _keeps(self) -> tuple[str, ...]:
        if self._panes == self._until:
            return (f"what fills no window of a key yet is kept until it does, or {FOR_EVER}",)
        return (
            f"the last {counted(self._panes * self._pane, 'record of a key is', 'records of a key are')} kept, as "
            f"panes, {FOR_EVER}",
        )

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any] | None:
        state = self.windows.value
        if state is None:
            state = self.windows.value = []
            state += [0, 0]
        first = state[0] == 0
        if first:
            state.append(self._nothing)
        state[-1] = self.added(state[-1], value, ctx, first)
        state[0] += 1
        if state[0] < self._pane:
            return None
        state[0] = 0
        state[1] += 1
        if state[1] < self._until:
            return None
        state[1] = 0
        result = self.result(reduce(self.merged, state[2:]), True, ctx)
        staying = self._panes - self._until
        del state[2 : max(2, len(state) - staying)]
        if len(state) == 2:
            self.windows.clear()
        return (result,)


class GlobalWindows(_Untimed):
    """`windows` is how many records have come since the last result of a key's one window, that window, and whether it
    has a timer. (What triggers results may change from one run to the next.)"""

    def __init__(self, window: Global, aggregation: Aggregation) -> None:
        super().__init__(window.shown, aggregation)
        self._count = window.count
        self._seconds = window.every_ms
        self._clear = window.clear

    def _keeps(self) -> tuple[str, ...]:
        if self._clear and self._seconds is not None:
            return (f"the window of a key is kept until its next result, {in_seconds(self._seconds)} at most",)
        until = f"until its next result, or {FOR_EVER}" if self._clear else FOR_EVER
        return (f"the window of a key is kept {until}",)

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any] | None:
        state = self.windows.value
        since, window, timed = (0, self._nothing, False) if state is None else state
        window = self.added(window, value, ctx, state is None)
        since += 1
        if self._seconds is not None and not timed:
            ctx.processing_timer((ctx.processing_time // self._seconds + 1) * self._seconds)
            timed = True
        if self._count is None or since < self._count:
            self.windows.value = (since, window, timed)
            return None
        return self._tell(window, timed, ctx)

    def on_timer(self, timestamp: int, ctx: OperatorContext) -> Iterable[Any]:
        state = self.windows.value
        if state is None:
            return ()
        since, window, _ = state
        if since and self._seconds is not None:
            return self._tell(window, False, ctx)
        self.windows.value = (since, window, False)
        return ()

    def _tell(self, window: tuple[Any, Any, Any], timed: bool, ctx: OperatorContext) -> Iterable[Any]:
        if self._clear:
            self.windows.clear()
        else:
            self.windows.value = (0, window, timed)
        return (self.result(window, self._clear, ctx),)


def _around(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    if a[0] is None or b[0] is None:
        return None, None
    return min(a[0], b[0]), max(a[1], b[1])
