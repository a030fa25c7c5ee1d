"""What the operators of all kinds of windows have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from checkpoint.shown import shown
from checkpoint.state import ValueState
from pipeline.aggregates import Aggregation
from pipeline.by_event_time import NoTimestamp
from pipeline.errors import PipelineError
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.windows import pages
from pipeline.windows.durations import in_time
from pipeline.windows.pages import Pages, in_pages


@dataclass(frozen=True)
class Options:
    """What all windows by time may have."""

    lateness: int = 0
    """Milliseconds for which a window stays open behind its end."""
    early: int | None = None
    """Milliseconds of processing time between early results; 0 = one at each update, `None` = none."""


class TimeWindows(KeyedOperator):
    """Windows by event time.

    A window [start, end) *fires* when the watermark reaches its last millisecond, end - 1, and *closes* when it reaches
    end - 1 + lateness. In between, each record that comes gives a new result. The last result, at the close, is final,
    and the state of the window is gone with it. Late is what no open window has room for.

    All is judged by `ctx.key_watermark`, which doesn't go back when a job is rescaled: a window that has closed never
    opens again. What is kept for a key is one value, a plain dict or list that is changed in place, so that a record
    costs one look into the state; many windows of a dict are kept in pages.
    """

    needs_event_time: ClassVar[str] = "closes windows by event time"
    _timers_can_be_left_out = False  # it would leave open windows without one

    windows: ValueState[Any] = ValueState()
    """What a subclass keeps for a key: deleted when nothing is left."""
    updated: ValueState[Any] = ValueState()
    """With early results from time to time: `(when the next ones are due, {what has changed since: None})`."""

    def __init__(self, window: str, aggregation: Aggregation, options: Options) -> None:
        """`window`: what restored state must have been made by."""
        self._window = window
        self._aggregation = aggregation
        self._add = aggregation.add
        self._merge = aggregation.merge
        self._nothing = aggregation.create()
        self._lateness = options.lateness
        self._early = options.early
        self._only_final = options.lateness == 0 and options.early is None

    # -- what a subclass implements -----------------------------------------------------------------------------

    def fire(self, at: int, ctx: OperatorContext) -> Iterable[Any]:
        """The results that are due at that time, by a timer of the current key, which has open windows."""
        raise NotImplementedError

    def results_of(self, updates: Iterable[Any], ctx: OperatorContext) -> Iterable[Any]:
        """The results, not final, of windows that have not fired and that have changed.

        Args:
            updates: what `update` was given.
        """
        raise NotImplementedError

    # -- what it uses -------------------------------------------------------------------------------------------

    def opened(self) -> MutableMapping[int, Any] | None:
        """The open windows of the current key, where they are a dict."""
        windows = self.windows.value
        return Pages(self.windows) if windows is not None and in_pages(windows) else windows

    def where_to_open(self, windows: dict[int, Any]) -> MutableMapping[int, Any]:
        """Where another one of the current key's windows goes.

        Args:
            windows: the value of state.
        """
        if in_pages(windows):
            return Pages(self.windows)
        return windows if len(windows) < pages.MOST else Pages.cut(self.windows)

    def closes(self, end: int) -> int:
        """When the window closes that ends there."""
        return in_time(end - 1 + self._lateness)

    def result(self, start: int, end: int, accumulators: Any, final: bool, ctx: OperatorContext) -> dict[str, Any]:
        """What is emitted, with the last millisecond of the window as timestamp."""
        ctx.emit_at(in_time(end - 1))
        return {
            "key": ctx.key,
            "start": start,
            "end": end,
            "final": final,
            **self._aggregation.result(accumulators),
        }

    def update(self, what: Any, ctx: OperatorContext) -> Iterable[Any]:
        """Something has changed that has not fired. Returns early results, if they are due."""
        if self._early is None:
            return ()
        if self._early == 0:
            return self.results_of((what,), ctx)
        before = self.updated.value
        if before is not None:
            before[1][what] = None
            return ()
        at = (ctx.processing_time // self._early + 1) * self._early
        self.updated.value = (at, {what: None})
        ctx.processing_timer(at)
        return ()

    def on_timer(self, timestamp: int, ctx: OperatorContext) -> Iterable[Any]:
        if ctx.timestamp is None:
            updates = self.updated.value
            self.updated.clear()
            if updates is None or self.windows.value is None:
                return ()
            return self.results_of(updates[1], ctx)
        return () if self.windows.value is None else self.fire(timestamp, ctx)

    def leave(self, ctx: OperatorContext) -> None:
        """The current key has no open windows any more."""
        self.windows.clear()
        if self._early and (updates := self.updated.value) is not None:
            ctx.delete_processing_timer(updates[0])
            self.updated.clear()

    def forget(self, what: Any) -> None:
        """There is nothing left of what has changed."""
        if self._early and (updates := self.updated.value) is not None:
            updates[1].pop(what, None)

    def refuse(self, value: Any, ctx: OperatorContext) -> NoReturn:
        """
        Raises:
            NoTimestamp: always.
        """
        raise NoTimestamp(
            f"a record of key {shown(ctx.key)} has no timestamp, so it is in no window: {shown(value, 200)}; put "
            "assign_timestamps(WatermarkStrategy.bounded(…)) directly behind the source"
        )

    # -- what must fit when state is restored -------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> Any:
        return {"window": self._window, "lateness": self._lateness, "aggregates": self._aggregation.layout}

    def restore(self, state: Mapping[str, Any]) -> None:
        before, now = _shown(state["window"], state.get("lateness", 0)), _shown(self._window, self._lateness)
        if before != now:
            raise PipelineError(
                f"the checkpoint has windows {before}, and the step has {now} now: open windows can't be cut anew, and "
                "their timers are set. Give the step another id, so that it begins anew, and leave the old state behind"
            )
        self._aggregation.check_layout(f"windows {now}", state["aggregates"])


def _shown(window: str, lateness: int) -> str:
    return f"{window} with lateness={lateness / 1000}"
