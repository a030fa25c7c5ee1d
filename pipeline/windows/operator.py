"""What the operators of all kinds of windows have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, NoReturn, cast

from checkpoint.shown import shown
from checkpoint.state import ValueState
from checkpoint.state.stores import PagedStore
from pipeline.aggregates import Aggregation
from pipeline.by_event_time import NoTimestamp
from pipeline.errors import PipelineError
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.paged import mapping
from pipeline.windows.durations import in_time, later_by

MOST_AT_ONCE: Final = 1000
"""Results of a key that one timer gives. A barrier waits for no more than that."""


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
    _timers_end = True

    windows: ValueState[Any] = ValueState()
    """What a subclass keeps for a key: deleted when nothing is left."""
    updated: ValueState[Any] = ValueState()
    """With early results from time to time: when the next ones are due."""
    changed: ValueState[Any] = ValueState()
    """What has changed since the last ones: `{what: None}`."""

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
        self._early_before = options.early
        """What `early` was in the run that is gone on with; 0 also if that isn't known."""

    def open(self, ctx: OperatorContext) -> None:
        if self._early_before != self._early:
            for _ in cast(PagedStore, self.updated.store).each_key():
                self._follow_early(ctx)

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

    _frees: tuple[str, str]
    """What is kept, and what the watermark has to pass for it to go, without lateness."""

    # -- what it uses -------------------------------------------------------------------------------------------

    def opened(self) -> MutableMapping[int, Any] | None:
        """The open windows of the current key, where they are a dict."""
        return mapping.entries(self.windows)

    def where_to_open(self, windows: dict[int, Any]) -> MutableMapping[int, Any]:
        """Where another one of the current key's windows goes.

        Args:
            windows: the value of state.
        """
        return mapping.with_room(self.windows, windows)

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
        if mapping.has(self.changed, what):
            return ()
        if self.updated.value is None:
            self._next_results((ctx.processing_time // self._early + 1) * self._early, ctx)
        changed = self._noted()
        if changed is None:
            changed = self.changed.value = {}
        mapping.with_room(self.changed, changed)[what] = None
        return ()

    def on_timer(self, timestamp: int, ctx: OperatorContext) -> Iterable[Any]:
        if ctx.timestamp is None:
            return self._early_results(timestamp, ctx)
        return () if self.windows.value is None else self.fire(timestamp, ctx)

    def _early_results(self, at: int, ctx: OperatorContext) -> Iterable[Any]:
        self._noted()
        changed = mapping.entries(self.changed)
        self.updated.clear()
        if changed is None or self.windows.value is None:
            mapping.remove_all(self.changed)
            return ()
        updates = list(islice(changed, MOST_AT_ONCE))
        if len(updates) == len(changed):
            mapping.remove_all(self.changed)
        else:
            for what in updates:
                del changed[what]
            self._next_results(at, ctx)
        return self.results_of(updates, ctx)

    def _follow_early(self, ctx: OperatorContext) -> None:
        """What the current key has noted goes by the `early` of now: dropped, or due when it would have been."""
        self._noted()
        due = self.updated.value
        if not self._early:
            ctx.delete_processing_timer(due)
            self.updated.clear()
            mapping.remove_all(self.changed)
        elif self._early_before:
            ctx.delete_processing_timer(due)
            changed = due - self._early_before  # or later
            self._next_results((changed // self._early + 1) * self._early, ctx)

    def _next_results(self, at: int, ctx: OperatorContext) -> None:
        self.updated.value = at
        ctx.processing_timer(at)

    def _noted(self) -> Any:
        """The value of `changed`."""
        due = self.updated.value
        if type(due) is tuple:  # one value had both, before there were pages
            self.updated.value, self.changed.value = due
        return self.changed.value

    def leave(self, ctx: OperatorContext) -> None:
        """The current key has no open windows any more."""
        self.windows.clear()
        if self._early:
            self._noted()
            if (due := self.updated.value) is not None:
                ctx.delete_processing_timer(due)
                self.updated.clear()
            mapping.remove_all(self.changed)

    def forget(self, what: Any) -> None:
        """There is nothing left of what has changed."""
        if self._early:
            self._noted()
            if mapping.has(self.changed, what) and (changed := mapping.entries(self.changed)) is not None:
                del changed[what]

    def refuse(self, value: Any, ctx: OperatorContext) -> NoReturn:
        """
        Raises:
            NoTimestamp: always.
        """
        raise NoTimestamp(
            f"a record of key {shown(ctx.key)} has no timestamp, so it is in no window: {shown(value, 200)}; put "
            "assign_timestamps(WatermarkStrategy.bounded(…)) directly behind the source"
        )

    def _keeps(self) -> tuple[str, ...]:
        what, until = self._frees
        return (f"{what} of a key is kept until the watermark passes {later_by(until, self._lateness)}",)

    # -- what must fit when state is restored -------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> Any:
        return {
            "window": self._window,
            "lateness": self._lateness,
            "early": self._early,
            "aggregates": self._aggregation.layout,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        before, now = _shown(state["window"], state.get("lateness", 0)), _shown(self._window, self._lateness)
        if before != now:
            raise PipelineError(
                f"the checkpoint has windows {before}, and the step has {now} now: open windows can't be cut anew, and "
                "their timers are set. Give the step another id, so that it begins anew, and leave the old state behind"
            )
        self._aggregation.check_layout(f"windows {now}", state["aggregates"])
        self._early_before = state.get("early", 0)


def _shown(window: str, lateness: int) -> str:
    return f"{window} with lateness={lateness / 1000}"
